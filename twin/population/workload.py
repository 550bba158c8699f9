"""The workload model, as part of a twin: learned from the training days, kept in a folder of its own.

What a log cannot support is not learned, and recorded as such: with fewer than `MIN_TRAINED` agents the rows themselves
are drawn again instead of a network (`fallback`); with fewer rows or arrivals than the methods need there is no
population (`refusal`). Both stand in the folder, the twin's manifest and its certificate.
"""

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError
from twin.arrays import load_structure, save_arrays
from twin.contracts import Array
from twin.population.adversarial import AdversarialConfig
from twin.population.agents import DrawReport, draw_agents
from twin.population.arrival_times import ArrivalModel
from twin.population.arrivals import read_arrivals
from twin.population.errors import PopulationError
from twin.population.methods import MAKERS, METHODS
from twin.population.population import (
    Population,
    PopulationModel,
    fit_population,
    load_population,
    save_population,
)
from twin.population.training import OnEvaluation

NONE, FALLBACK = "none", "bootstrap"
MIN_TRAINED = 1000
"""Agents and days (requests, where agents are hidden) from which on a network is trained; fewer are drawn again as they
are. With some 500 of two real logs, and 600 simulated ones, the chain was further from unseen agents than the rows
themselves by far; with 1,200 as near as is wanted."""
FACTS, TIMES = "facts.json", "arrivals.npz"


@dataclass(frozen=True)
class PopulationConfig:
    """How a twin learns its workload model.

    Attributes:
        kind: A method of `twin.population`; "none" for a twin that replays logged arrivals only.
        alpha, beta: Weights of the entropy and of the KL of columns in the loss of a trained method (Xiong et al.,
            equation 4); the method's own where absent. `kind = "gan_smmsg_paper"` has both at 1.
        num_rounds: Rounds of a trained method at most; the method's own where absent.
        rows_an_agent: Requests taken of every agent and day, at most.
        max_rows: Rows learned from at most, evenly over the days.
    """

    kind: str = "chain"
    alpha: float | None = None
    beta: float | None = None
    num_rounds: int | None = None
    rows_an_agent: int = 8
    max_rows: int = 20_000

    def __post_init__(self) -> None:
        if self.kind != NONE and self.kind not in MAKERS:
            raise ConfigError(
                f"kind = {self.kind!r}", where="[population]", allowed=", ".join((NONE, *MAKERS))
            )
        sizes = (self.rows_an_agent, self.max_rows, 1 if self.num_rounds is None else self.num_rounds)
        if min(sizes) < 1:
            raise ConfigError(
                f"num_rounds, rows_an_agent, max_rows = {self.num_rounds}, {self.rows_an_agent}, {self.max_rows}",
                where="[population]",
                allowed="1 or more",
            )
        self.population()

    def population(self) -> Population | None:
        """The method; None for no population.

        Raises:
            ConfigError: Weights or rounds for a method that has none, or weights below 0.
        """
        if self.kind == NONE:
            return None
        made = MAKERS[self.kind]()
        weights = {"entropy": self.alpha, "columns": self.beta}
        changed: dict[str, Any] = {name: value for name, value in weights.items() if value is not None}
        if not isinstance(made.config, AdversarialConfig):
            if changed or self.num_rounds is not None:
                raise ConfigError(
                    f"{self.kind} has neither alpha, beta nor rounds",
                    where="[population]",
                    allowed="alpha, beta and num_rounds beside a trained method",
                    advice="leave them out",
                )
            return made
        if self.num_rounds is not None:
            changed["search"] = replace(made.config.search, num_rounds=self.num_rounds)
        return MAKERS[self.kind](replace(made.config, **changed))


class WorkloadModel(NamedTuple):
    """A population of a twin."""

    model: PopulationModel
    times: ArrivalModel
    facts: dict[str, Any]


def learn_workload_model(
    key: Array,
    archive: Archive,
    days: Sequence[dt.date],
    config: PopulationConfig,
    folder: Path,
    on_evaluation: OnEvaluation | None = None,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Learns the workload model, and writes it into `folder`; nothing where the configuration is "none".

    Args:
        key: PRNG key; the same key gives the same bits.
        archive: The log archive.
        days: Training days.
        config: How.
        folder: Where it is kept; made here.
        on_evaluation: Called with (rounds done, rounds in all, figures) now and then.
        checkpoint: As of `fit_population`.

    Returns:
        Facts: `kind`, and `fallback` or `refusal` with the reason where the log did not support the configured kind.
    """
    wanted = config.population()
    if wanted is None:
        return {"kind": NONE}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        model, times, facts = _learn(key, archive, days, config, wanted, on_evaluation, checkpoint)
    except PopulationError as error:
        facts = {"kind": NONE, "refusal": error.brief}
    else:
        save_population(model, folder)
        save_arrays(folder / TIMES, times)
    (folder / FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True), encoding="utf-8")
    return facts


def load_workload_model(folder: Path) -> WorkloadModel:
    """Reads what `learn_workload_model` wrote.

    Raises:
        ProductError: There is no population there, for the reason that was kept, or a file is damaged.
    """
    facts = workload_facts(folder)
    if facts["kind"] == NONE:
        why = facts.get("refusal", "none was configured")
        raise ProductError(
            f"this twin has no population: {why}",
            where=str(folder),
            allowed="a twin that generates its requests",
            advice="fit it on more days, with another [population] kind than none",
        )
    times = load_structure(folder / TIMES, ArrivalModel(*(0 for _ in ArrivalModel._fields)))
    return WorkloadModel(load_population(folder, METHODS), times, facts)


def workload_facts(folder: Path) -> dict[str, Any]:
    """The facts of a population's folder; kind "none" where there is no such folder.

    Raises:
        ProductError: The file is damaged.
    """
    try:
        return dict(json.loads((folder / FACTS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {"kind": NONE}
    except (OSError, ValueError) as error:
        raise ProductError(f"cannot read the population's facts: {error}", where=str(folder)) from error


def _learn(
    key: Array,
    archive: Archive,
    days: Sequence[dt.date],
    config: PopulationConfig,
    wanted: Population,
    on_evaluation: OnEvaluation | None,
    checkpoint: Path | None,
) -> tuple[PopulationModel, ArrivalModel, dict[str, Any]]:
    times = read_arrivals(archive, sorted(days))
    table, report = draw_agents(
        archive, days, seed=_seed(key), max_rows=config.max_rows, rows_an_agent=config.rows_an_agent
    )
    population, why = _fitting(wanted, report)
    model = fit_population(key, population, table, on_evaluation=on_evaluation, checkpoint=checkpoint)
    return model, times, _facts(model, report, why)


def _fitting(wanted: Population, report: DrawReport) -> tuple[Population, str]:
    """What is fitted to so many agents, and why it is not the configured kind."""
    if report.num_units >= MIN_TRAINED or not isinstance(wanted.config, AdversarialConfig):
        return wanted, ""
    found = f"{report.num_units} units (one for every {report.unit})"
    why = (
        f"{found} are too few to train {wanted.name} on ({MIN_TRAINED} or more): logged rows are drawn again"
    )
    return MAKERS[FALLBACK](), why


def _facts(model: PopulationModel, report: DrawReport, why: str) -> dict[str, Any]:
    found = {
        "kind": model.population.name,
        "unit": report.unit,
        "rows_a_unit": report.rows_a_unit,
        "num_rows": report.num_rows,
        "num_units": report.num_units,
        "num_hidden": report.num_hidden,
        "left_out": list(report.left_out),
        "warnings": list(model.record.get("warnings", [])),
    }
    return {**found, "fallback": why} if why else found


def _seed(key: Array) -> int:
    return int(jax.random.bits(key) & 0x7FFFFFFF)
