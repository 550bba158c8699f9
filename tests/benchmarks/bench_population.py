"""Populations side by side: fidelity to agents of unseen days, the time that a fit takes, and arrival times.

    python -m tests.benchmarks.bench_population [ARCHIVE ...] [--methods chain,mixture] [--seeds 5] [--rows 8000]

Every other day is for training and the days between are held out; a log of fewer than four days is cut into halves of
its requests. The floor is real against real at the same sizes, one row an agent and day. Each figure of a method is the
mean over seeds less the floor, with the standard deviation where there are several: KL of the worst column, mean KL of
pairs (nats), held-out AUC of a classifier; then the processor time of a fit. Arrival statistics are mean distances over
the two-hour parts of the held-out days, beside those of another real day. Without an archive, eight days of the preset
`kmps` are simulated. CTGAN joins where it is installed.
"""

import argparse
import datetime as dt
import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from evaluation.certify.arrival_statistics import arrival_statistics
from evaluation.certify.generating import STATISTICS, arrival_distances, logged_arrivals
from evaluation.certify.measures import column_kl, pairwise_kl, two_sample_auc
from evaluation.certify.samples import Coding, Sample
from evaluation.simulator.logs import simulate
from logs_schema import Archive
from twin.placement.encoding import DAY_S, day_start_s
from twin.population import (
    MAKERS,
    AgentTable,
    Population,
    PopulationConfig,
    draw_agents,
    fit_population,
    sample_agents,
)
from twin.population.adversarial import AdversarialConfig
from twin.population.arrival_times import MONDAY_S, WEEK_S, draw_arrivals
from twin.population.arrivals import read_arrivals

AUC_ROWS = 3000
THIN = 100
"""Days of fewer requests say nothing about arrival statistics."""
Generate = Callable[[int, AgentTable, AgentTable], AgentTable]
"""(seed, training rows, real rows whose conditions are asked for) -> as many generated rows."""


class Figures(NamedTuple):
    """How two samples differ."""

    columns: dict[str, float]
    pairs: float
    auc: float

    def told(self) -> tuple[float, float, float]:
        """Worst column, pairs, AUC."""
        return max(self.columns.values()), self.pairs, self.auc


def figures(real: AgentTable, made: AgentTable, seed: int) -> Figures:
    """All measures."""
    one, other = (Sample(table.continuous, table.labels) for table in (real, made))
    coding = Coding(one)
    pairs = float(np.mean(list(pairwise_kl(coding, one, other).values())))
    random = np.random.default_rng(seed)
    rows = [random.permutation(sample.num_rows)[:AUC_ROWS] for sample in (one, other)]
    auc = two_sample_auc(coding, one.take(rows[0]), other.take(rows[1]), seed=seed)
    return Figures(column_kl(coding, one, other), pairs, auc)


def by_population(population: Population) -> Generate:
    """Fits and samples one of the project's methods."""

    def generate(seed: int, train: AgentTable, real: AgentTable) -> AgentTable:
        model = fit_population(jax.random.key(seed), population, train)
        for warning in model.record.get("warnings", []):
            print(f"    {population.name}, seed {seed}: {warning}")
        return sample_agents(jax.random.key(1000 + seed), model, real.conditions)

    return generate


def by_ctgan(seed: int, train: AgentTable, real: AgentTable) -> AgentTable:
    """CTGAN with its defaults on the same columns, amounts that are unknown replaced by their median."""
    import pandas
    from ctgan import CTGAN

    filled = {
        name: np.where(np.isnan(column), np.nanmedian(column), column)
        for name, column in train.continuous.items()
    }
    model = CTGAN(epochs=100, verbose=False, cuda=False)
    model.set_random_state(seed)
    model.fit(pandas.DataFrame({**train.labels, **filled}), list(train.labels))
    made = model.sample(real.num_rows)
    labels = {name: made[name].to_numpy(str) for name in train.labels}
    scenario = labels.pop("scenario")
    conditions = real.conditions._replace(scenario=scenario)
    return AgentTable(conditions, labels, {name: made[name].to_numpy(float) for name in filled})


def ways_of(names: Sequence[str], num_rounds: int | None) -> dict[str, Generate]:
    """Every way to generate, trained ones for at most so many rounds."""
    ways = {}
    for name in names:
        is_trained = isinstance(MAKERS[name]().config, AdversarialConfig)
        made = PopulationConfig(name, num_rounds=num_rounds if is_trained else None).population()
        assert made is not None
        ways[name] = by_population(made)
    if importlib.util.find_spec("ctgan") is not None:
        ways["ctgan"] = by_ctgan
    return ways


def split(archive: Archive, max_rows: int, rows_an_agent: int) -> tuple[AgentTable, ...]:
    """Training rows, training rows at one an agent, held-out rows at one an agent."""
    days = archive.days("requests")
    if len(days) >= 4:
        train, _ = draw_agents(archive, days[0::2], max_rows=max_rows, rows_an_agent=rows_an_agent)
        single, _ = draw_agents(archive, days[0::2], seed=2, max_rows=max_rows)
        test, report = draw_agents(archive, days[1::2], seed=1, max_rows=max_rows)
    else:
        every, report = draw_agents(archive, days, max_rows=2 * max_rows)
        train = single = every.take(np.arange(0, every.num_rows, 2))
        test = every.take(np.arange(1, every.num_rows, 2))
    known = np.isin(test.conditions.scenario, train.conditions.scenario)
    print(
        f"one row a {report.unit}: {train.num_rows} training rows, {int(known.sum())} held out"
        + (f", {int((~known).sum())} of unseen scenarios left out" if not known.all() else "")
    )
    return (*_alike(train, single, test.take(np.flatnonzero(known))),)


def _alike(*tables: AgentTable) -> tuple[AgentTable, ...]:
    """The columns that all of them have."""
    labels = set.intersection(*(set(table.categorical) for table in tables))
    amounts = set.intersection(*(set(table.continuous) for table in tables))
    return tuple(
        AgentTable(
            table.conditions,
            {name: column for name, column in table.categorical.items() if name in labels},
            {name: column for name, column in table.continuous.items() if name in amounts},
        )
        for table in tables
    )


def compare(arguments: argparse.Namespace, archive: Archive) -> None:
    """The table of one archive."""
    train, single, test = split(archive, arguments.rows, arguments.rows_an_agent)
    random = np.random.default_rng(0)
    size = min(single.num_rows, test.num_rows)
    real, other = (table.take(random.permutation(table.num_rows)[:size]) for table in (test, single))
    floor = figures(real, other, 0)
    print(f"{'':17}{'worst column':>17}{'pairs':>17}{'AUC':>17}{'fit, CPU s':>12}")
    print(f"{'floor':17}" + "".join(f"{value:17.4f}" for value in floor.told()))
    for name, generate in ways_of(arguments.methods.split(","), arguments.rounds).items():
        rows, over = [], []
        for seed in range(arguments.seeds):
            begun = time.process_time()
            made = generate(seed, train, real)
            spent = time.process_time() - begun
            found = figures(real, made, seed)
            over.append([found.columns[column] - floor.columns[column] for column in floor.columns])
            rows.append((max(over[-1]), found.pairs - floor.pairs, found.auc - floor.auc, spent))
        worst = int(np.argmax(np.mean(over, axis=0)))
        show(name, rows, list(floor.columns)[worst])


def show(name: str, rows: list[tuple[float, float, float, float]], worst: str) -> None:
    """One line of the table."""
    mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
    spreads = [f" ({value:.4f})" if len(rows) > 1 else "" for value in spread]
    cells = [f"{value:+.4f}{extra}" for value, extra in zip(mean[:3], spreads[:3], strict=True)]
    print(f"{name:17}" + "".join(f"{cell:>17}" for cell in cells) + f"{mean[3]:12.0f}  {worst}", flush=True)


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
        np.asarray(draw_arrivals(key, model, offset_s=_of_week(day), length_s=DAY_S)[0], float)
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
    """Prints a table for every archive."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("archives", type=Path, nargs="*")
    parser.add_argument("--methods", default=",".join(MAKERS), help="empty: arrivals only")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rows-an-agent", type=int, default=PopulationConfig().rows_an_agent)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.archives:
            arguments.archives = [Path(folder) / "kmps"]
            simulate("kmps", 8, "mix", 0, arguments.archives[0])
        for path in arguments.archives:
            archive = Archive(path)
            print(f"== {path.name}")
            if arguments.methods:
                compare(arguments, archive)
            arrivals(archive)


if __name__ == "__main__":
    main()
