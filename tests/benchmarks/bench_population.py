"""What `schedtwin reproduce table1` leaves out: CTGAN, where it is installed, and arrival times.

    python -m tests.benchmarks.bench_population [ARCHIVE ...] [--seeds 5] [--rows 8000]

CTGAN is held against the agents of unseen days exactly as the methods of table 1 are, beside their floor: KL of the
worst column, mean KL of pairs (nats), held-out AUC of a classifier. Arrival statistics are mean distances over the
two-hour parts of the held-out days, beside those of another real day. Without an archive, eight days of the preset
`kmps` are simulated.
"""

import argparse
import datetime as dt
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evaluation.certify.arrival_statistics import arrival_statistics
from evaluation.certify.generating import STATISTICS, arrival_distances, logged_arrivals
from evaluation.reproduction.populations import FLOOR, GeneratedAgents, Made, draw, measure, ways_of
from evaluation.simulator.logs import simulate
from logs_schema import Archive
from logs_schema.calendar import DAY_S, MONDAY_S, WEEK_S
from twin.placement.encoding import day_start_s
from twin.population import AgentTable, PopulationConfig
from twin.population.arrival_times import draw_arrivals
from twin.population.arrivals import read_arrivals

THIN = 100
"""Days of fewer requests say nothing about arrival statistics."""


def by_ctgan(seed: int, agents: GeneratedAgents, _: object) -> Made:
    """CTGAN with its defaults on the same columns, amounts that are unknown replaced by their median."""
    import pandas
    from ctgan import CTGAN

    train, conditions = agents.train, agents.real.conditions
    filled = {
        name: np.where(np.isnan(column), np.nanmedian(column), column)
        for name, column in train.continuous.items()
    }
    model = CTGAN(epochs=100, verbose=False, cuda=False)
    model.set_random_state(seed)
    model.fit(pandas.DataFrame({**train.labels, **filled}), list(train.labels))
    tables = []
    for _ in agents.others:
        made = model.sample(agents.real.num_rows)
        labels = {name: made[name].to_numpy(str) for name in train.labels}
        asked = conditions._replace(scenario=labels.pop("scenario"))
        tables.append(AgentTable(asked, labels, {name: made[name].to_numpy(float) for name in filled}))
    return Made(tuple(tables))


def compare(archive: Archive, num_seeds: int, max_rows: int) -> None:
    """CTGAN beside the floor."""
    print(f"{'seed':>10}{'':8}{'worst column':>14}{'pairs':>10}{'AUC':>10}{'fit, CPU s':>12}")
    for seed in range(num_seeds):
        agents = draw(archive, max_rows=max_rows, rows_an_agent=PopulationConfig().rows_an_agent, seed=seed)
        for name, generate in {**ways_of(()), "ctgan": by_ctgan}.items():
            show(seed, name, measure(generate, seed, agents))


def show(seed: int, name: str, found: dict[str, Any]) -> None:
    """One line."""
    worst = max(found["columns"], key=found["columns"].get)
    figures = f"{found['columns'][worst]:14.4f}{found['pairs']:10.4f}{found['auc']:10.4f}"
    print(
        f"{seed:10}{'':2}{name:6}{figures}{found['fit_cpu_s'] if name != FLOOR else 0:12.0f}  {worst}",
        flush=True,
    )


def arrivals(archive: Archive, num_days: int = 12) -> None:
    """Arrival statistics of held-out days, generated and of the training day before each; thin days left out."""
    days = [day for day in archive.days("requests") if archive.num_rows("requests", day) >= THIN]
    pairs = list(zip(days[0::2], days[1::2], strict=False))
    if len(pairs) < 2:
        print(f"arrivals: too few days of {THIN} requests to hold any out")
        return
    model = read_arrivals(archive, days[0::2])
    held = [pairs[place] for place in np.unique(np.linspace(0, len(pairs) - 1, num_days).astype(int))]
    other, real = ([logged_arrivals(archive, day) for day in part] for part in zip(*held, strict=True))
    keys = jax.random.split(jax.random.key(0), len(held))
    made = [
        np.asarray(draw_arrivals(key, model, offset_s=_of_week(day), length_s=DAY_S), float)
        for key, (_, day) in zip(keys, held, strict=True)
    ]
    told, floor = (_nan_mean(arrival_distances(real, part)) for part in (made, other))
    means = [_nan_mean(np.array([_of_day(times) for times in part]).T) for part in (real, made, other)]
    memory = ", ".join(f"{w:.2f} at {p:.3f}" for w, p in zip(model.share, model.persistence, strict=True))
    print(f"arrivals on {len(held)} days, memory {memory}")
    print(f"{'':26}{'distance':>10}{'floor':>10}   of a day: {'real':>10}{'generated':>11}{'other':>10}")
    for row in zip(STATISTICS, told, floor, *means, strict=True):
        print("{:26}{:10.3f}{:10.3f}   {:>22.4f}{:>11.4f}{:>10.4f}".format(*row))


def _of_day(times_s: np.ndarray) -> tuple[float, ...]:
    found = arrival_statistics(times_s, DAY_S)
    return found.rate_per_s, found.dispersion, found.autocorrelation, found.gap_variation


def _nan_mean(values: np.ndarray) -> np.ndarray:
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=1) / known.sum(axis=1))


def _of_week(day: dt.date) -> float:
    return (day_start_s(day) - MONDAY_S) % WEEK_S


def main() -> None:
    """Prints both for every archive."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("archives", type=Path, nargs="*")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=20_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.archives:
            arguments.archives = [Path(folder) / "kmps"]
            simulate("kmps", 8, "mix", 0, arguments.archives[0])
        for path in arguments.archives:
            archive = Archive(path)
            print(f"== {path.name}")
            if importlib.util.find_spec("ctgan") is not None:
                compare(archive, arguments.seeds, arguments.rows)
            arrivals(archive)


if __name__ == "__main__":
    main()
