"""Distances of generated agents from those of held-out days: the measures of Xiong et al.'s table 1.

Every other day is for training and the days between are held out; a log of fewer than four days is cut into halves of
its requests. Both samples hold one row an agent and day. KL of single columns is passed by a product of marginals, so
that of pairs and a classifier stand beside it; and real agents of the training days, held against those of the held-out
days at the same sizes, are the floor of all three.
"""

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
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
    DrawReport,
    Population,
    PopulationConfig,
    draw_agents,
    fit_population,
    sample_agents,
)
from twin.population.adversarial import AdversarialConfig
from twin.population.training import OnEvaluation

FLOOR = "floor"
AUC_ROWS = 3000
ENOUGH_ROWS, MOST_DRAWS = 5000, 10
"""Fewer held-out agents are compared with several draws, this many rows in all, to reduce the variance of the means."""
NUM_SAMPLES = 2 + MOST_DRAWS
MIN_DAYS = 4
"""Fewer are cut into halves of their requests."""


class GeneratedAgents(NamedTuple):
    """The agents of an archive."""

    train: AgentTable  # what methods learn from: several rows an agent where there are few
    others: tuple[AgentTable, ...]  # the floor: of training days, one row an agent, as many rows as `real`
    real: AgentTable  # held out
    unit: str
    num_unseen: int  # held-out rows left out, because their scenario is not in the training data


class Made(NamedTuple):
    """Agents that a method generated, once or several times, with the warnings of its training."""

    tables: tuple[AgentTable, ...]
    warnings: tuple[str, ...] = ()


Generate = Callable[[int, GeneratedAgents, OnEvaluation | None], Made]
"""(seed, agents, shows progress) -> draws of as many agents as are held out, under their scenarios and times of day."""


def draw(archive: Archive, *, max_rows: int, rows_an_agent: int, seed: int = 0) -> GeneratedAgents:
    """Draws the training agents, and the held-out ones.

    Args:
        archive: Of the log.
        max_rows: Rows of each part at most.
        rows_an_agent: Training rows of every agent and day at most.
        seed: Of all draws.

    Raises:
        ConfigError: No held-out agent is of a scenario in the training data.
    """
    days = archive.days("requests")

    def some(days: Sequence[dt.date], number: int, rows_an_agent: int = 1) -> tuple[AgentTable, DrawReport]:
        own = seed * NUM_SAMPLES + number
        return draw_agents(archive, days, seed=own, max_rows=max_rows, rows_an_agent=rows_an_agent)

    if len(days) >= MIN_DAYS:
        train, _ = some(days[0::2], 0, rows_an_agent)
        held, report = some(days[1::2], 1)
        floor = [some(days[0::2], 2 + number)[0] for number in range(_num_draws(held.num_rows))]
    else:
        every, report = draw_agents(archive, days, max_rows=2 * max_rows, seed=seed)
        train, held = (every.take(np.arange(part, every.num_rows, 2)) for part in range(2))
        floor = [train]
    known = np.isin(held.conditions.scenario, train.conditions.scenario)
    if known.sum() < 2:
        raise ConfigError(
            f"{int(known.sum())} held-out agents of scenarios that the training days know",
            where=f"{archive.path}, {len(days)} days",
            allowed="two or more",
        )
    train, held, *floor = _alike(train, held.take(np.flatnonzero(known)), *floor)
    random = np.random.default_rng(seed)
    size = min(held.num_rows, *(table.num_rows for table in floor))
    real, *others = (table.take(random.permutation(table.num_rows)[:size]) for table in (held, *floor))
    return GeneratedAgents(train, tuple(others), real, report.unit, int((~known).sum()))


def _num_draws(num_rows: int) -> int:
    return int(np.clip(-(-ENOUGH_ROWS // max(num_rows, 1)), 1, MOST_DRAWS))


def _alike(*tables: AgentTable) -> list[AgentTable]:
    """The columns that all of them have."""
    labels = set.intersection(*(set(table.categorical) for table in tables))
    amounts = set.intersection(*(set(table.continuous) for table in tables))
    return [
        replace(
            table,
            categorical={name: column for name, column in table.categorical.items() if name in labels},
            continuous={name: column for name, column in table.continuous.items() if name in amounts},
        )
        for table in tables
    ]


def ways_of(names: Sequence[str], num_rounds: int | None = None) -> dict[str, Generate]:
    """The floor first, then the methods of these names, trained ones for at most so many rounds.

    Raises:
        ConfigError: No such method.
    """
    ways: dict[str, Generate] = {FLOOR: lambda seed, agents, on_evaluation: Made(agents.others)}
    for name in names:
        is_trained = name in MAKERS and isinstance(MAKERS[name]().config, AdversarialConfig)
        population = PopulationConfig(name, num_rounds=num_rounds if is_trained else None).population()
        if population is None:
            raise ConfigError(f"method {name!r} generates no agents", allowed=", ".join(MAKERS))
        ways[name] = _by(population)
    return ways


def _by(population: Population) -> Generate:
    def generate(seed: int, agents: GeneratedAgents, on_evaluation: OnEvaluation | None) -> Made:
        model = fit_population(jax.random.key(seed), population, agents.train, on_evaluation=on_evaluation)
        keys = jax.random.split(jax.random.key(1000 + seed), len(agents.others))
        made = tuple(sample_agents(key, model, agents.real.conditions) for key in keys)
        return Made(made, tuple(model.record.get("warnings", ())))

    return generate


def measure(
    generate: Generate, seed: int, agents: GeneratedAgents, on_evaluation: OnEvaluation | None = None
) -> dict[str, Any]:
    """Fits and samples a method once and compares its agents with the held-out ones.

    Returns:
        Plain values: `columns` (name -> KL of the column, nats), `pairs` (mean KL of pairs of columns, nats), `auc`
        (held-out AUC of a classifier between the two samples), `fit_cpu_s` (processor time of fit and
        draws), `warnings`.

    Raises:
        PopulationError: The method cannot learn from these rows, or went astray.
    """
    begun = time.process_time()
    made = generate(seed, agents, on_evaluation)
    spent_s = time.process_time() - begun
    one, *others = (Sample(table.continuous, table.labels) for table in (agents.real, *made.tables))
    coding = Coding(one)
    random = np.random.default_rng(seed)
    columns, pairs, auc = [], [], []
    for other in others:
        rows = [random.permutation(sample.num_rows)[:AUC_ROWS] for sample in (one, other)]
        columns.append(column_kl(coding, one, other))
        pairs.append(np.mean(list(pairwise_kl(coding, one, other).values())))
        auc.append(two_sample_auc(coding, one.take(rows[0]), other.take(rows[1]), seed=seed))
    return {
        "columns": {name: float(np.mean([kl[name] for kl in columns])) for name in coding.names},
        "pairs": float(np.mean(pairs)),
        "auc": float(np.mean(auc)),
        "fit_cpu_s": round(spent_s, 2),
        "warnings": list(made.warnings),
    }
