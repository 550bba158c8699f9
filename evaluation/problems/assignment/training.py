"""A scheduler of many requests at once from a log: edges are fitted, rounds drawn, a network trained and exported."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from offline_rl.assignment.assigner import Assigner, AssignerSetting, load_assigner
from offline_rl.assignment.export import export_assigner
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.learning import OURS_LEARNING, LearningConfig, train_priced
from offline_rl.assignment.local_search import LocalSearchConfig, improve
from twin.assignment.from_logs import EdgesFromLog, fit_edges
from twin.assignment.log_rounds import LogRounds, LogRoundsConfig
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs, row_of

HELD_OUT_SEED = 0xA551


@dataclass(frozen=True)
class AssignerTrainingConfig:
    """How a scheduler is trained and looked at.

    Attributes:
        rounds: Laws of the rounds.
        learning: Of the network.
        num_held_out: Rounds on which it is compared with local search.
        search_s: Time of an answer there, for either.
        seed: Of everything drawn.
    """

    rounds: LogRoundsConfig = field(default_factory=LogRoundsConfig)
    learning: LearningConfig = OURS_LEARNING
    num_held_out: int = 100
    search_s: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_held_out < 1 or not self.search_s > 0.0:
            raise ConfigError(
                f"{self.num_held_out} rounds of {self.search_s} s to compare on", where="training of a scheduler",
                allowed="1 or more, each of more than 0 s",
            )  # fmt: skip


def quick(config: AssignerTrainingConfig) -> AssignerTrainingConfig:
    """A first look: hardly trained, on small rounds."""
    rounds = dataclasses.replace(config.rounds, num_requests=min(config.rounds.num_requests, 30))
    learning = LearningConfig(
        num_updates=10, batch=8, num_samples=8, learning_rate=1e-3, imitation_updates=60, imitation_instances=20,
        solver_restarts=2,
    )  # fmt: skip
    return dataclasses.replace(config, rounds=rounds, learning=learning, num_held_out=8, search_s=0.02)


def train_assigner(
    archive: Path, out: Path, config: AssignerTrainingConfig, progress: Progress, *, replace: bool = False
) -> dict[str, Any]:
    """Trains a scheduler on rounds of a log and writes its bundle.

    Args:
        archive: Of the log.
        out: Folder of the bundle.
        config: How.
        progress: Where to show how far it is.
        replace: Whether an older bundle may be replaced.

    Returns:
        Plain JSON: `bundle`, `content_hash`, `edges` (fitted computing times), `notes` (what the log lacks), and
        `held_out`: mean and worst makespan over that of insertion and local search with restarts in equal time.

    Raises:
        ConfigError: The log lacks what is needed.
        ProductError: `out` is taken.
    """
    made_from = {"archive": read_manifest(archive, "archive").content_hash}
    with progress.stage("edges"):
        edges = fit_edges(Archive(archive))
    rounds = LogRounds(edges, config.rounds)
    with progress.stage("scheduler", unit="updates") as stage:
        params = train_priced(config.seed, rounds.draw, config.learning, stage)
    setting = AssignerSetting(
        config.rounds.num_requests, rounds.num_edges,
        trained_on={
            "size": edges.size, "num_rows": edges.num_rows, "notes": list(edges.notes),
            "backlogs": list(config.rounds.backlogs), "ways": list(config.rounds.ways),
        },
    )  # fmt: skip
    with progress.stage("bundle"):
        export_assigner(
            params, out, setting, rounds.draw, seed=config.seed, made_from=made_from,
            extra={"learning": asdict(config.learning)}, replace=replace,
        )  # fmt: skip
    assigner = load_assigner(out)
    with progress.stage("comparison"):
        held_out = compared(assigner, rounds.draw, config)
    return {
        "bundle": str(out), "content_hash": assigner.content_hash, "num_requests": setting.num_requests,
        "num_edges": setting.num_edges, "size": edges.size, "num_rows": edges.num_rows, "edges": _fits(edges),
        "notes": list(edges.notes), "held_out": held_out,
    }  # fmt: skip


def compared(
    assigner: Assigner,
    draw: Callable[[np.random.Generator, int], Costs],
    config: AssignerTrainingConfig,
) -> dict[str, Any]:
    """The scheduler and local search with restarts on rounds that neither has met, in equal time."""
    batch = draw(np.random.default_rng([config.seed, HELD_OUT_SEED]), config.num_held_out)
    ratios = []
    for row in range(config.num_held_out):
        costs = row_of(batch, row)
        found_s = float(makespan_s(costs, assigner.assign(costs, _search(config.search_s))))
        begun_s = time.monotonic()
        inserted = insertion(costs)
        left_s = max(0.0, config.search_s - (time.monotonic() - begun_s))
        rival = improve(costs, inserted, _search(left_s), np.random.default_rng(0))
        ratios.append(found_s / float(makespan_s(costs, rival)))
    return {
        "num_rounds": config.num_held_out, "search_s": config.search_s,
        "over_local_search": float(np.mean(ratios)), "worst_over_local_search": float(np.max(ratios)),
    }  # fmt: skip


def _search(time_s: float) -> LocalSearchConfig:
    return LocalSearchConfig(time_s=time_s, restarts=True)


def _fits(edges: EdgesFromLog) -> Mapping[str, Any]:
    return {
        name: {
            "kind": one.kind, "coefficients": list(one.coefficients), "spread": one.spread, "num_rows": one.num_rows,
            "source": one.source, "replicas": edges.replicas[name],
        }
        for name, one in edges.compute.items()
    }  # fmt: skip
