"""How far generated agents are from those of days that were held out: the measures behind paper 000's table 1.

Every other day is for training and the days between are held out; a log of fewer than four days is cut into halves of
its requests. Both samples hold one row an agent and day. KL of single columns is passed by a product of marginals, so
that of pairs and a classifier stand beside it; and real agents of the training days, held against those of the held-out
days at the same sizes, are the floor of all three.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from evaluation.certify.measures import column_kl, pairwise_kl, two_sample_auc
from evaluation.certify.samples import Coding, Sample
from logs_schema import Archive
from logs_schema.errors import ConfigError
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
from twin.population.asking import OnLook

FLOOR = "floor"
AUC_ROWS = 3000
MIN_DAYS = 4
"""Fewer are cut into halves of their requests."""


class Drawn(NamedTuple):
    """The agents of an archive."""

    train: AgentTable  # what methods learn from: several rows an agent where there are few
    other: AgentTable  # of the training days too, one row an agent and as many as `real`: the floor
    real: AgentTable  # held out
    unit: str
    num_unseen: int  # held-out rows left out, because training has never seen their scenario


class Made(NamedTuple):
    """Agents that a method generated, and what it had to say while it learned."""

    table: AgentTable
    warnings: tuple[str, ...] = ()


Generate = Callable[[int, Drawn, OnLook | None], Made]
"""(seed, agents, shows progress) -> as many agents as are held out, under the same scenarios and times of day."""


def draw(archive: Archive, *, max_rows: int, rows_an_agent: int) -> Drawn:
    """Draws the agents to learn from, and those to be held against.

    Args:
        archive: Of the log.
        max_rows: Rows of each part at most.
        rows_an_agent: Training rows of every agent and day at most.

    Raises:
        ConfigError: No agent is left that is held out and of a scenario that training knows.
    """
    days = archive.days("requests")
    if len(days) >= MIN_DAYS:
        train, _ = draw_agents(archive, days[0::2], max_rows=max_rows, rows_an_agent=rows_an_agent)
        single, _ = draw_agents(archive, days[0::2], seed=2, max_rows=max_rows)
        held, report = draw_agents(archive, days[1::2], seed=1, max_rows=max_rows)
    else:
        every, report = draw_agents(archive, days, max_rows=2 * max_rows)
        train = single = every.take(np.arange(0, every.num_rows, 2))
        held = every.take(np.arange(1, every.num_rows, 2))
    known = np.isin(held.conditions.scenario, train.conditions.scenario)
    if known.sum() < 2:
        raise ConfigError(
            f"{int(known.sum())} held-out agents of scenarios that the training days know",
            where=f"{archive.path}, {len(days)} days", allowed="two or more",
        )  # fmt: skip
    train, single, held = _alike(train, single, held.take(np.flatnonzero(known)))
    random = np.random.default_rng(0)
    size = min(single.num_rows, held.num_rows)
    real, other = (table.take(random.permutation(table.num_rows)[:size]) for table in (held, single))
    return Drawn(train, other, real, report.unit, int((~known).sum()))


def _alike(*tables: AgentTable) -> list[AgentTable]:
    """The columns that all of them have."""
    labels = set.intersection(*(set(table.categorical) for table in tables))
    amounts = set.intersection(*(set(table.continuous) for table in tables))
    return [
        AgentTable(
            table.conditions,
            {name: column for name, column in table.categorical.items() if name in labels},
            {name: column for name, column in table.continuous.items() if name in amounts},
        )
        for table in tables
    ]


def ways_of(names: Sequence[str], num_rounds: int | None = None) -> dict[str, Generate]:
    """The floor first, then the methods of these names, trained ones for at most so many rounds.

    Raises:
        ConfigError: No such method.
    """
    ways: dict[str, Generate] = {FLOOR: lambda seed, agents, on_look: Made(agents.other)}
    for name in names:
        is_trained = name in MAKERS and isinstance(MAKERS[name]().config, AdversarialConfig)
        population = PopulationConfig(name, num_rounds=num_rounds if is_trained else None).population()
        if population is None:
            raise ConfigError(f"{name!r} generates nobody", allowed=", ".join(MAKERS))
        ways[name] = _by(population)
    return ways


def _by(population: Population) -> Generate:
    def generate(seed: int, agents: Drawn, on_look: OnLook | None) -> Made:
        model = fit_population(jax.random.key(seed), population, agents.train, on_look=on_look)
        made = sample_agents(jax.random.key(1000 + seed), model, agents.real.conditions)
        return Made(made, tuple(model.record.get("warnings", ())))

    return generate


def measure(generate: Generate, seed: int, agents: Drawn, on_look: OnLook | None = None) -> dict[str, Any]:
    """Fits and samples a method once and holds its agents against the held-out ones.

    Returns:
        Plain values: `columns` (name -> KL of the column, nats), `pairs` (mean KL of pairs of columns, nats), `auc`
        (held-out AUC of a classifier that tells the two samples apart), `fit_cpu_s` (processor time of fit and
        draws), `warnings`.

    Raises:
        PopulationError: The method cannot learn from these rows, or went astray.
    """
    begun = time.process_time()
    made = generate(seed, agents, on_look)
    spent_s = time.process_time() - begun
    one, other = (Sample(table.continuous, table.labels) for table in (agents.real, made.table))
    coding = Coding(one)
    random = np.random.default_rng(seed)
    rows = [random.permutation(sample.num_rows)[:AUC_ROWS] for sample in (one, other)]
    return {
        "columns": column_kl(coding, one, other),
        "pairs": float(np.mean(list(pairwise_kl(coding, one, other).values()))),
        "auc": two_sample_auc(coding, one.take(rows[0]), other.take(rows[1]), seed=seed),
        "fit_cpu_s": round(spent_s, 2),
        "warnings": list(made.warnings),
    }
