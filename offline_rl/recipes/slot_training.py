"""What is trained in a twin of slot mode: a dispatcher or an orchestrator at a time, or both in one trajectory.

Apart, the other side is a rule: dispatchers learn in slots under the planned deployment, orchestrators in frames over
the expected on-time rule, from the planned deployment, which they correct; its numbers may have been tuned before.
Streams begin at times spread over the day; those of dispatchers at different loads, after a warm-up under other
dispatchers, better and worse ones. Orchestrators learn from blocks of streams that meet the same requests, and so do
both sides in one trajectory, which begins empty.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Progress
from offline_rl.networks import Actor, Example, example_of, near_best_policy, sampling_policy
from offline_rl.orchestration.advice import advised, advised_actor
from offline_rl.orchestration.config import ALTERNATING, COPIES, SEPARATE, TrainingBudget
from offline_rl.orchestration.stepwise_actor import StepwiseActor, StepwiseConfig
from offline_rl.recipes.slot_learners import SMALL, DispatchLearner, dispatchers, orchestrators
from offline_rl.rules.orchestration.expected_on_time import dispatch_rule, rule_params
from offline_rl.rules.orchestration.planned import ADVICE, PlannedConfig, planned
from offline_rl.rules.orchestration.tuned_plan import PlanTuning, numbers_of, tune_plan, with_numbers
from offline_rl.selecting import train_kept
from offline_rl.together import group_example, together
from offline_rl.training_loop import in_twin
from twin.arrays import kept_arrays
from twin.contracts import Array, Policy, Problem, PyTree
from twin.environment import environment
from twin.orchestration.centralised import in_full, late
from twin.orchestration.chance import Chance
from twin.orchestration.deployment import Orchestration
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, frame_response, observing
from twin.orchestration.frame_state import FrameOutcome, FrameState, Scaling, as_orchestration
from twin.orchestration.frames import frame_problem, on_time_share
from twin.orchestration.joint import DISPATCH, ORCHESTRATE, joint_environment
from twin.orchestration.learned import learned_chance, learned_forecast
from twin.orchestration.mechanics import Orchestrator, slot_response
from twin.orchestration.orchestrator import Orchestrate
from twin.orchestration.paired import paired
from twin.orchestration.slots import SlotState, slot_problem
from twin.warm_up import warmed

DECISION_DELAY_S = 0.5
"""Of centralised dispatch where none is given, from what an access point sees to the decision; KMPS's figure 12 has .35
to 1 s."""
UPDATES_PER_TURN = 4
"""Of a side, in alternating training."""
_GOLDEN = (5.0**0.5 - 1.0) / 2.0


class TrainedDispatch(NamedTuple):
    """A dispatcher and how its training went."""

    network: Actor
    params: PyTree
    info: PyTree
    margin: float | None
    delay_s: float | None  # of its decisions, in one place that sees every node; None: access points decide

    def policy(self) -> Policy:
        """It draws among the nodes near the best, or as it learned to (KaiS, equation 5; KMPS, equation 2)."""
        if self.margin is None:
            return sampling_policy(self.network, self.params)
        return near_best_policy(self.network, self.params, self.margin)


class TrainedOrchestration(NamedTuple):
    """An orchestrator and how its training went."""

    network: StepwiseActor
    state: PyTree
    policy: Policy
    info: PyTree


def train_dispatch(
    name: str,
    fitted: FittedCluster,
    budget: TrainingBudget,
    seed: int,
    progress: Progress,
    keep: Path | None = None,
    plan: PlannedConfig = ADVICE,
) -> TrainedDispatch:
    """One of `dispatchers`, trained in slots under the planned deployment; `keep`: folder for what is not finished."""
    edge, begin_s = fitted.edge, _begins(fitted, budget.num_streams)
    learner, delay_s = _dispatch_learner(name, dispatch_example(fitted), fitted, budget)
    problem, chance = _as_late(delay_s, slot_problem(edge), learned_chance(edge, fitted.tables, begin_s))
    system = environment(problem, slot_response(edge, chance, _planned_by_slots(fitted, plan, begin_s)))
    system = warmed(system, _unevenly(fitted, budget.num_streams), budget.num_warm_up_slots)
    with progress.stage(f"train {name}, seed {seed}"):
        experience = in_twin(system, budget.num_slots, (budget.num_streams,))
        state, info = train_kept(
            jax.random.key(seed), learner.algorithm, experience, budget.num_updates, _file(keep, name, seed)
        )
    return TrainedDispatch(learner.network, state.params.actor, info, learner.margin, delay_s)


def _dispatch_learner(
    name: str, example: Example, fitted: FittedCluster, budget: TrainingBudget
) -> tuple[DispatchLearner, float | None]:
    """How one of `dispatchers` is trained, and how late its decisions come, where one place decides."""
    make = dispatchers()[name]
    learner = make(example, rule_params(fitted))
    if not learner.central:
        return learner, None
    delay_s = DECISION_DELAY_S if budget.delay_s is None else budget.delay_s
    return make(example, rule_params(fitted, delay_s)), delay_s


def _as_late(delay_s: float | None, problem: Problem, chance: Chance) -> tuple[Problem, Chance]:
    """Dispatch and its chance where one place decides so late, or as they are for access points."""
    return (problem, chance) if delay_s is None else (in_full(problem), late(chance, delay_s))


def dispatch_example(fitted: FittedCluster) -> Example:
    """Shapes of what a dispatcher of a twin's cluster sees."""
    edge = fitted.edge
    return example_of(
        environment(slot_problem(edge), slot_response(edge, learned_chance(edge, fitted.tables)))
    )


def _unevenly(fitted: FittedCluster, num_streams: int) -> Dispatch:
    """The expected on-time rule, mixed with any legal node: in shares of 0 to 1, spread evenly over every part of the
    streams, as those are ordered by time of day."""
    usual = observing(fitted.edge, dispatch_rule(fitted))
    share = jnp.asarray(np.arange(num_streams) * _GOLDEN % 1.0, jnp.float32)

    def dispatch(key: Array, state: SlotState, legal: Array) -> Array:
        key_usual, key_any, key_which = jax.random.split(key, 3)
        score = jnp.where(legal, jax.random.uniform(key_any, legal.shape), -1.0)
        anywhere = jnp.argmax(score, axis=0).astype(jnp.int32)
        explores = jax.random.uniform(key_which, anywhere.shape) < share[None]
        return jnp.where(explores, anywhere, usual(key_usual, state, legal))

    return dispatch


def _planned_by_slots(fitted: FittedCluster, plan: PlannedConfig, begin_s: Array) -> Orchestrator:
    """The planned deployment as slots ask for it: it reads the clock, the nodes and the deployment alone."""
    forecast = learned_forecast(fitted.edge, fitted.tables)
    by_forecast = replace(plan, follows=False, draws=True)
    rule = planned(fitted.edge, forecast, fitted.frames, by_forecast, begin_s)

    def orchestrate(key: Array, state: SlotState) -> Orchestration:
        inner, view = state.placement, state.view
        unread: Any = None
        known = FrameState(inner.clock_s, inner.available, view.deployment, unread, unread, view.counts)
        return as_orchestration(rule(key, known), fitted.edge.num_services)

    return orchestrate


def train_orchestration(
    name: str,
    fitted: FittedCluster,
    budget: TrainingBudget,
    seed: int,
    progress: Progress,
    keep: Path | None = None,
    plan: PlannedConfig = ADVICE,
) -> TrainedOrchestration:
    """One of `orchestrators`: it corrects the planned deployment, in frames over the expected on-time rule; `keep`:
    folder for what is not finished."""
    edge, frames = fitted.edge, fitted.frames
    dispatch = observing(edge, dispatch_rule(fitted))
    begin_s = jnp.repeat(_begins(fitted, budget.num_streams // COPIES), COPIES)
    learner = orchestrators()[name]
    network = corrected_plan(fitted, learner.network)
    algorithm = learner.algorithm(network)
    system = environment(
        shown_plan(fitted, edge, frames, begin_s, learner.worth, plan),
        frame_response(edge, _in_blocks(fitted, budget.num_streams), dispatch, frames),
    )
    with progress.stage(f"train {name}, seed {seed}"):
        experience = in_twin(system, budget.num_frames, (budget.num_streams,))
        state, info = train_kept(
            jax.random.key(seed), algorithm, experience, budget.num_updates, _file(keep, name, seed)
        )
    return TrainedOrchestration(network, state, algorithm.greedy(state), info)


def train_both(
    dispatcher: str,
    orchestrator: str,
    fitted: FittedCluster,
    budget: TrainingBudget,
    seed: int,
    progress: Progress,
    keep: Path | None = None,
    plan: PlannedConfig = ADVICE,
) -> tuple[TrainedDispatch, TrainedOrchestration]:
    """One of `dispatchers` and one of `orchestrators`, which corrects `plan`, as `budget.training` says, on the same
    number of slots; `keep`: folder for what is not finished."""
    if budget.training == SEPARATE:
        return (
            train_dispatch(dispatcher, fitted, budget, seed, progress, keep, plan),
            train_orchestration(orchestrator, fitted, budget, seed, progress, keep, plan),
        )
    edge, frames, changes = fitted.edge, fitted.frames, orchestrators()[orchestrator]
    begin_s = jnp.repeat(_begins(fitted, budget.num_streams // COPIES), COPIES)
    usual = learned_chance(edge, fitted.tables)
    example = example_of(joint_environment(edge, usual, frames, None, shown_plan(fitted, edge, frames)))
    dispatch, delay_s = _dispatch_learner(dispatcher, group_example(example, DISPATCH), fitted, budget)
    slots, chance = _as_late(delay_s, slot_problem(edge), _in_blocks(fitted, budget.num_streams))
    shown = shown_plan(fitted, edge, frames, begin_s, changes.worth, plan)
    network = corrected_plan(fitted, changes.network)
    both = {DISPATCH: dispatch.algorithm, ORCHESTRATE: changes.algorithm(network)}
    turn = UPDATES_PER_TURN if budget.training == ALTERNATING else None
    algorithm = together(both, {ORCHESTRATE: budget.num_frames}, turn)
    num_slots = budget.num_frames * edge.config.slots_per_frame
    with progress.stage(f"train {dispatcher} and {orchestrator}, {budget.training}, seed {seed}"):
        experience = in_twin(
            joint_environment(edge, chance, frames, slots, shown), num_slots, (budget.num_streams,)
        )
        state, info = train_kept(
            jax.random.key(seed),
            algorithm,
            experience,
            budget.num_joint_updates(edge.config.slots_per_frame),
            _file(keep, f"{dispatcher}-{orchestrator}-{budget.training}", seed),
        )
    one, other = state.groups[DISPATCH], state.groups[ORCHESTRATE]
    return (
        TrainedDispatch(dispatch.network, one.params.actor, info[DISPATCH], dispatch.margin, delay_s),
        TrainedOrchestration(network, other, both[ORCHESTRATE].greedy(other), info[ORCHESTRATE]),
    )


def tuned_plan(
    fitted: FittedCluster, budget: TrainingBudget, seed: int, progress: Progress, keep: Path | None = None
) -> PlannedConfig:
    """The plan tuned in the twin, or as it stands where none are tried; `keep`: folder for what
    is not finished."""
    if budget.num_plans < 2:
        return ADVICE

    def tune() -> dict[str, np.ndarray]:
        with progress.stage("tune the plan", unit="rounds") as stage:
            found = tune_plan(jax.random.key(seed), fitted, PlanTuning(budget.num_plans), stage).config
        return jax.tree.map(np.float64, numbers_of(found))

    found = kept_arrays(None if keep is None else keep / "plan.npz", tune)
    return with_numbers(jax.tree.map(float, found))


def _file(keep: Path | None, name: str, seed: int) -> Path | None:
    """Where what is not finished of a training is kept."""
    return None if keep is None else keep / f"{name}-{seed}.npz"


def corrected_plan(fitted: FittedCluster, config: StepwiseConfig = SMALL) -> StepwiseActor:
    """The actor that corrects the planned deployment of a twin."""
    edge, frames = fitted.edge, fitted.frames
    dispatch, chance = observing(edge, dispatch_rule(fitted)), learned_chance(edge, fitted.tables)
    system = environment(shown_plan(fitted, edge, frames), frame_response(edge, chance, dispatch, frames))
    return advised_actor(example_of(system), edge, config)


def shown_plan(
    fitted: FittedCluster,
    case: EdgeCloud,
    frames: FrameConfig,
    begin_s: float | Array = 0.0,
    worth: Callable[[FrameOutcome], Array] = on_time_share,
    plan: PlannedConfig = ADVICE,
) -> Problem:
    """The orchestration problem of a cluster, in which seats see what the twin's forecast plans.

    Args:
        fitted: The twin.
        case: The cluster.
        frames: Of the problem.
        begin_s: Time of day at which the clock is zero.
        worth: Of a frame.
        plan: Its numbers; without draws.
    """
    rule = planned(case, learned_forecast(fitted.edge, fitted.tables), frames, plan, begin_s=begin_s)
    return advised(frame_problem(case, frames, worth), rule)


def orchestrating(problem: Problem, policy: Policy) -> Orchestrate:
    """A policy that sees what an orchestrator observes, as one that is given the state."""

    def orchestrate(key: Array, state: FrameState) -> Scaling:
        changes: Scaling = policy(key, problem.observe(state), problem.legal(state))
        return changes

    return orchestrate


def _begins(fitted: FittedCluster, number: int) -> Array:
    """[number] times of day, spread over nine tenths of it."""
    return jnp.linspace(0.0, 0.9 * float(fitted.tables.day_s), number)


def _in_blocks(fitted: FittedCluster, num_streams: int) -> Chance:
    """The twin's chance from times spread over the day, in blocks that meet the same."""
    begin_s = _begins(fitted, num_streams // COPIES)
    of_block = paired(learned_chance(fitted.edge, fitted.tables, begin_s), COPIES)
    wide = learned_chance(fitted.edge, fitted.tables, jnp.repeat(begin_s, COPIES))
    return wide._replace(numbers=of_block.numbers, first_s=of_block.first_s)
