"""Populations side by side on one archive: fidelity to agents of unseen days, and the time that a fit takes.

    python -m tests.benchmarks.bench_population [ARCHIVE] [--methods gan_smmsg,mixture] [--seeds 5] [--rows 8000]

Every other day is for training and the days between are held out. The floor is real against real at the same sizes.
Each figure is the mean over seeds, with the standard deviation where there are several: KL of the worst column, mean KL
of pairs (nats), held-out AUC of a classifier, processor time of the fit. Without an archive, eight days of the
preset `kmps` are simulated. CTGAN joins where it is installed.
"""

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from evaluation.certify.measures import column_kl, pairwise_kl, two_sample_auc
from evaluation.certify.samples import Coding, Sample
from evaluation.simulator.logs import simulate
from logs_schema import Archive
from twin.population import AgentTable, draw_agents, fit_population, sample_agents
from twin.population.adversarial import AdversarialConfig
from twin.population.bootstrap import bootstrap
from twin.population.gan_smmsg import gan_smmsg, gan_smmsg_paper
from twin.population.marginals import marginals
from twin.population.mixture import mixture
from twin.population.plain_gan import plain_gan
from twin.population.population import Population
from twin.population.wgan import wgan
from twin.population.wgan_gp import wgan_gp

MAKERS = {
    made().name: made
    for made in (bootstrap, marginals, mixture, gan_smmsg, gan_smmsg_paper, plain_gan, wgan, wgan_gp)
}
Generate = Callable[[int, AgentTable, int], AgentTable]


def sample_of(table: AgentTable) -> Sample:
    """As the measures of the certificate want it."""
    return Sample(table.continuous, table.labels)


def figures(real: AgentTable, made: AgentTable, seed: int) -> tuple[float, float, float]:
    """Worst column's KL, mean pairwise KL, AUC."""
    one, other = sample_of(real), sample_of(made)
    coding = Coding(one)
    pairs = pairwise_kl(coding, one, other)
    return (
        max(column_kl(coding, one, other).values()),
        float(np.mean(list(pairs.values()))),
        two_sample_auc(coding, one, other, seed=seed),
    )


def by_population(population: Population) -> Generate:
    """Fits and samples one of the project's methods."""

    def generate(seed: int, train: AgentTable, num_rows: int) -> AgentTable:
        model = fit_population(jax.random.key(seed), population, train)
        for warning in model.record.get("warnings", []):
            print(f"    {population.name}, seed {seed}: {warning}")
        return sample_agents(jax.random.key(1000 + seed), model, num_rows)

    return generate


def by_ctgan(seed: int, train: AgentTable, num_rows: int) -> AgentTable:
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
    made = model.sample(num_rows)
    labels = {name: made[name].to_numpy(str) for name in train.labels}
    scenario = labels.pop("scenario")
    conditions = train.conditions.take(np.arange(num_rows) % train.num_rows)._replace(scenario=scenario)
    return AgentTable(conditions, labels, {name: made[name].to_numpy(float) for name in filled})


def shortened(population: Population, make: Callable[..., Population], num_rounds: int) -> Population:
    """The same with fewer rounds, where it is trained."""
    if not isinstance(population.config, AdversarialConfig):
        return population
    search = replace(population.config.search, num_rounds=num_rounds)
    return make(replace(population.config, search=search))


def main() -> None:
    """Prints the table, a line a method."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("archive", type=Path, nargs="?")
    parser.add_argument("--methods", default=",".join(MAKERS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=4000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.archive or Path(folder) / "archive"
        if arguments.archive is None:
            simulate("kmps", 8, "mix", 0, path)
        compare(arguments, Archive(path))


def compare(arguments: argparse.Namespace, archive: Archive) -> None:
    """The lines of one archive."""
    days = archive.days("requests")
    train, report = draw_agents(archive, days[0::2], max_rows=arguments.rows)
    test, _ = draw_agents(archive, days[1::2], seed=1, max_rows=arguments.rows)
    random = np.random.default_rng(0)
    size = min(train.num_rows, test.num_rows)
    real = test.take(random.permutation(test.num_rows)[:size])
    print(f"one row a {report.unit}: {train.num_rows} training rows, {size} real and generated ones compared")
    print(f"{'':17}{'worst column':>15}{'pairs':>15}{'AUC':>15}{'fit, CPU s':>12}")
    show("floor", [(*figures(real, train.take(random.permutation(train.num_rows)[:size]), 0), 0.0)])
    ways = {}
    for name in arguments.methods.split(","):
        ways[name] = by_population(shortened(MAKERS[name](), MAKERS[name], arguments.rounds))
    if importlib.util.find_spec("ctgan") is not None:
        ways["ctgan"] = by_ctgan
    for name, generate in ways.items():
        rows = []
        for seed in range(arguments.seeds):
            begun = time.process_time()
            made = generate(seed, train, size)
            spent = time.process_time() - begun
            rows.append((*figures(real, made, seed), spent))
        show(name, rows)


def show(name: str, rows: list[tuple[float, float, float, float]]) -> None:
    """One line of the table."""
    mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
    spreads = [f" ({value:.3f})" if len(rows) > 1 else "" for value in spread]
    cells = [f"{value:.3f}{extra}" for value, extra in zip(mean[:3], spreads[:3], strict=True)]
    print(f"{name:17}" + "".join(f"{cell:>15}" for cell in cells) + f"{mean[3]:12.0f}", flush=True)


if __name__ == "__main__":
    main()
