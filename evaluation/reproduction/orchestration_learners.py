"""Who is trained for `reproduce kais` and `reproduce kmps`, each as one side of a pair; the other side is a rule."""

from collections.abc import Sequence
from functools import partial

from evaluation.problems.orchestration.bench import Entrants, Pair
from evaluation.problems.orchestration.learners import (
    dispatchers,
    orchestrating,
    orchestrators,
    shown_plan,
    train_dispatch,
    train_orchestration,
)
from evaluation.problems.orchestration.references import PLANNED
from evaluation.reproduction.orchestration import LearnedPair
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.contract import EXPECTED_ON_TIME
from offline_rl.orchestration_config import TrainingBudget
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.orchestrating import Orchestrate

NOTHING = "none"


def learned_pairs(budget: TrainingBudget) -> tuple[LearnedPair, ...]:
    """Every pair of which one side is trained."""
    return (
        *(LearnedPair(Pair(name, PLANNED), partial(learn_dispatch, name, budget)) for name in dispatchers()),
        *(
            LearnedPair(Pair(EXPECTED_ON_TIME, name), partial(learn_orchestration, name, budget))
            for name in orchestrators()
        ),
    )


def chosen_pairs(budget: TrainingBudget, names: Sequence[str] | None = None) -> tuple[LearnedPair, ...]:
    """The pairs whose trained side is named; all of them if None, "none" for nothing.

    Raises:
        ConfigError: there is no such learner.
    """
    everybody = {
        one.pair.orchestration if one.pair.dispatch == EXPECTED_ON_TIME else one.pair.dispatch: one
        for one in learned_pairs(budget)
    }
    names = tuple(everybody) if names is None else tuple(name for name in names if name != NOTHING)
    for name in names:
        if name not in everybody:
            raise ConfigError(
                f"there is no learner {name!r}", where="reproduce --learned",
                allowed=", ".join((*everybody, NOTHING)), advice="choose some of these",
            )  # fmt: skip
    return tuple(everybody[name] for name in names)


def learn_dispatch(
    name: str, budget: TrainingBudget, fitted: FittedCluster, seed: int, progress: Progress
) -> Entrants:
    """A dispatcher under its name."""
    policy = train_dispatch(name, fitted, budget, seed, progress).policy()
    return Entrants({name: lambda case: observing(case, policy)})


def learn_orchestration(
    name: str, budget: TrainingBudget, fitted: FittedCluster, seed: int, progress: Progress
) -> Entrants:
    """An orchestrator under its name."""
    policy = train_orchestration(name, fitted, budget, seed, progress).policy

    def orchestrate(case: EdgeCloud, frames: FrameConfig, _dispatch: Dispatch) -> Orchestrate:
        return orchestrating(shown_plan(fitted, case, frames), policy)

    return Entrants(orchestration={name: orchestrate})
