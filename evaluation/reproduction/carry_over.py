"""What was trained in the twin of a small cluster, used on a large one without training there.

A dispatcher that scores nodes by what is seen of them, and an orchestrator with the graph encoder, have parameters that
do not depend on how many nodes, access points and services there are. Here both come from a small cluster's twin. On
the large one they stand beside least loaded dispatch and the rules, which have the tables of the large cluster's log.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.problems.orchestration.bench import (
    Entrants,
    Pair,
    PairScore,
    bench_orchestration,
    with_changes,
)
from evaluation.problems.orchestration.references import PLANNED
from evaluation.problems.orchestration.rivals import rivals
from evaluation.problems.orchestration.trained import GPG
from evaluation.reproduction.orchestration import OrchestrationConfig, as_row, source_of, twin_of
from evaluation.reproduction.orchestration_pairs import trained_sides
from evaluation.simulator.world import World
from logs_schema.progress import Progress
from offline_rl.contract import EXPECTED_ON_TIME
from offline_rl.orchestration.config import TrainingBudget
from offline_rl.orchestration.stepwise_actor import stepwise_policy
from offline_rl.recipes.slot_learners import ANY_SIZE
from offline_rl.recipes.slot_training import (
    corrected_plan,
    orchestrating,
    shown_plan,
    train_dispatch,
    train_orchestration,
)
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.orchestrator import Orchestrate

CARRIED = (
    Pair("least_loaded", "static"),
    Pair(EXPECTED_ON_TIME, "static"),
    Pair(ANY_SIZE, "static"),
    Pair("least_loaded", PLANNED),
    Pair(EXPECTED_ON_TIME, PLANNED),
    Pair(ANY_SIZE, PLANNED),
    Pair(EXPECTED_ON_TIME, GPG),
)

Carry = Callable[[FittedCluster], Entrants]
"""(twin of another cluster) -> what was trained, for that cluster."""


def trained_to_carry(fitted: FittedCluster, budget: TrainingBudget, seed: int, progress: Progress) -> Carry:
    """Trains a dispatcher and an orchestrator in a twin.

    Args:
        fitted: The small cluster's.
        budget: How long is trained.
        seed: Of the training.
        progress: Where to show how far it is.
    """
    dispatch = train_dispatch(ANY_SIZE, fitted, budget, seed, progress).policy()
    params = train_orchestration(GPG, fitted, budget, seed, progress).state.actor

    def carry(other: FittedCluster) -> Entrants:
        changes = stepwise_policy(corrected_plan(other), params, draws=False)

        def orchestrate(case: EdgeCloud, frames: FrameConfig, _dispatch: Dispatch) -> Orchestrate:
            return orchestrating(shown_plan(other, case, frames), changes)

        return Entrants(
            {ANY_SIZE: lambda case: observing(case, dispatch)},
            {GPG: orchestrate},
            indifferent=frozenset({GPG}),
        )

    return carry


def carry_over(
    worlds: tuple[World, World],
    config: OrchestrationConfig,
    budget: TrainingBudget,
    out: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Trains on a small cluster, and judges on a large one.

    Args:
        worlds: The small one and the large one, at their own pace.
        config: How much is simulated and judged.
        budget: How long is trained.
        out: Folder for both logs.
        progress: Where to show how far it is.

    Returns:
        Plain data, as of `reproduce`.
    """
    bench = with_changes(config.bench, config.num_changes)
    small, large = (twin_of(one, config, bench, out / one.name, progress) for one in worlds)
    carry = trained_to_carry(small, budget, config.seed, progress)
    entrants = rivals(large).joined(carry(large))
    with progress.stage(f"judge on {worlds[1].name}", unit="scores") as stage:
        found = bench_orchestration(worlds[1], config.days, CARRIED, bench, stage, entrants)
    return {
        "world": worlds[1].name,
        "frames": bench.num_frames,
        "changes_per_frame": config.num_changes,
        "interval": "95 % over runs of a day",
        "trained_on": {"world": worlds[0].name, **_size(small)},
        "judged_on": _size(large),
        "rows": [_row(one) for one in found],
        "absent": [],
    }


def _size(fitted: FittedCluster) -> dict[str, int]:
    edge = fitted.edge
    return {"access_points": edge.num_seats, "nodes": edge.num_nodes, "services": edge.num_services - 1}


def _row(score: PairScore) -> dict[str, Any]:
    return as_row(score, source_of(score.pair)) | {"num_trainings": len(trained_sides(score.pair))}
