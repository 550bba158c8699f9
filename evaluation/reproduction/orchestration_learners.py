"""The trainings of `reproduce kais` and `reproduce kmps`: a side of a pair at a time, beside a rule, or both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from evaluation.problems.orchestration.bench import Entrants
from evaluation.problems.orchestration.references import PLANNED_TUNED
from evaluation.problems.orchestration.rivals import planner_with
from evaluation.reproduction.orchestration_pairs import GPG_TUNED
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.orchestration.config import TrainingBudget
from offline_rl.recipes.slot_learners import dispatchers, orchestrators, trained_together
from offline_rl.recipes.slot_training import (
    TrainedDispatch,
    TrainedOrchestration,
    orchestrating,
    shown_plan,
    train_both,
    train_dispatch,
    train_orchestration,
    tuned_plan,
)
from offline_rl.rules.orchestration.planned import ADVICE, PlannedConfig
from twin.orchestration.centralised import centrally
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.orchestrator import Orchestrate

NOTHING = "none"

Learn = Callable[[FittedCluster, int, Progress], Entrants]
"""(twin, seed, progress) -> a learned dispatcher or orchestrator, or both, under its name."""
Tune = Callable[[FittedCluster, int, Progress], PlannedConfig]
"""(twin, seed, progress) -> the plan tuned in the twin."""


def learners(budget: TrainingBudget, names: Sequence[str] | None = None) -> dict[str, Learn]:
    """How those of some names are trained; all of them if None, "none" for nothing.

    Raises:
        ConfigError: there is no such learner.
    """
    tuned = _tuned_once(budget)
    known: Mapping[str, Learn] = {
        **{name: partial(_learn_dispatch, name, budget) for name in dispatchers()},
        **{name: partial(_learn_orchestration, name, budget) for name in orchestrators()},
        **{name: partial(_learn_both, name, budget) for name in trained_together()},
        PLANNED_TUNED: partial(_tune, tuned),
        GPG_TUNED: partial(_correct_tuned, tuned, budget),
    }
    names = tuple(known) if names is None else tuple(name for name in names if name != NOTHING)
    for name in names:
        if name not in known:
            raise ConfigError(
                f"there is no learner {name!r}",
                where="reproduce --learned",
                allowed=", ".join((*known, NOTHING)),
                advice="choose some of these",
            )
    return {name: known[name] for name in names}


def _learn_dispatch(
    name: str, budget: TrainingBudget, fitted: FittedCluster, seed: int, progress: Progress
) -> Entrants:
    return _dispatching(name, train_dispatch(name, fitted, budget, seed, progress))


def _dispatching(name: str, trained: TrainedDispatch) -> Entrants:
    policy, delay_s = trained.policy(), trained.delay_s
    seeing = observing if delay_s is None else centrally
    late = {} if delay_s is None else {name: delay_s}
    return Entrants({name: lambda case: seeing(case, policy)}, delay_s=late)


def _learn_orchestration(
    name: str, budget: TrainingBudget, fitted: FittedCluster, seed: int, progress: Progress
) -> Entrants:
    return _changing(name, fitted, train_orchestration(name, fitted, budget, seed, progress))


def _changing(
    name: str, fitted: FittedCluster, trained: TrainedOrchestration, plan: PlannedConfig = ADVICE
) -> Entrants:
    def orchestrate(case: EdgeCloud, frames: FrameConfig, _dispatch: Dispatch) -> Orchestrate:
        return orchestrating(shown_plan(fitted, case, frames, plan=plan), trained.policy)

    return Entrants(orchestration={name: orchestrate}, indifferent=frozenset({name}))


def _tuned_once(budget: TrainingBudget) -> Tune:
    """A tuning that keeps its last plan, as two learners of a twin and seed begin with it."""
    last: list[tuple[FittedCluster, int, PlannedConfig]] = []

    def tuned(fitted: FittedCluster, seed: int, progress: Progress) -> PlannedConfig:
        if not last or last[0][0] is not fitted or last[0][1] != seed:
            last[:] = [(fitted, seed, tuned_plan(fitted, budget, seed, progress))]
        return last[0][2]

    return tuned


def _tune(tuned: Tune, fitted: FittedCluster, seed: int, progress: Progress) -> Entrants:
    rule = planner_with(fitted, tuned(fitted, seed, progress))
    return Entrants(orchestration={PLANNED_TUNED: rule}, indifferent=frozenset({PLANNED_TUNED}))


def _correct_tuned(
    tuned: Tune, budget: TrainingBudget, fitted: FittedCluster, seed: int, progress: Progress
) -> Entrants:
    plan = tuned(fitted, seed, progress)
    trained = train_orchestration("gpg", fitted, budget, seed, progress, plan=plan)
    return _changing(GPG_TUNED, fitted, trained, plan)


def _learn_both(
    name: str, budget: TrainingBudget, fitted: FittedCluster, seed: int, progress: Progress
) -> Entrants:
    sides, training = trained_together()[name]
    own = replace(budget, training=training)
    dispatch, orchestration = train_both(*sides, fitted, own, seed, progress)
    return _dispatching(name, dispatch).joined(_changing(name, fitted, orchestration))
