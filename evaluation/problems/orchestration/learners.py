"""What is trained in a twin of slot mode: a dispatcher or an orchestrator at a time.

The other side stands still meanwhile: dispatchers learn in slots under the planned deployment, orchestrators in frames
over the expected on-time rule, from the planned deployment, which they correct. Streams begin at times spread over the
day; those of dispatchers at different loads, since somebody else has dispatched before, more or less well.
Orchestrators learn from blocks of streams that meet the same requests.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.problems.orchestration.rivals import RULE_MARGIN, dispatch_rule, latencies
from logs_schema.progress import Progress
from offline_rl.advice import advised, advised_actor
from offline_rl.algorithm import Algorithm
from offline_rl.algorithms.cmmac import CMMACConfig, cmmac
from offline_rl.algorithms.gpg import GPGConfig, gpg
from offline_rl.algorithms.gpo import GPOConfig, gpo
from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.graph_encoder import GraphConfig
from offline_rl.networks import Actor, Example, actor, example_of, near_best_policy
from offline_rl.orchestration_config import COPIES, TrainingBudget
from offline_rl.rewards import KaisDispatchReward, KmpsDispatchReward, rewarded
from offline_rl.rules.on_time_by_replicas import replica_residual, replica_rule_params
from offline_rl.rules.orchestration.planned import ADVICE, planned
from offline_rl.scorer import ScorerConfig
from offline_rl.stepwise_actor import StepwiseActor, StepwiseConfig
from offline_rl.training_loop import in_twin, train
from twin.contracts import Array, Policy, Problem, PyTree
from twin.environment import environment
from twin.orchestration.chance import Chance
from twin.orchestration.deployment import Orchestration
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, frame_response, observing
from twin.orchestration.frame_state import FrameState, Scaling, as_orchestration
from twin.orchestration.frames import frame_problem
from twin.orchestration.learned import learned_chance, learned_forecast
from twin.orchestration.mechanics import Orchestrator, slot_response
from twin.orchestration.orchestrating import Orchestrate
from twin.orchestration.paired import paired
from twin.orchestration.slots import SlotState, slot_problem
from twin.warm_up import warmed

SMALL = StepwiseConfig(GraphConfig(16, (32,)), hidden=(64, 32))
RESIDUAL = "residual"
"""A network that corrects the expected on-time rule."""
USUAL_MARGIN = 0.3
"""Of the papers' dispatchers, whose logits are positive and small."""


class DispatchLearner(NamedTuple):
    """How a dispatcher is trained, and whose parameters it is made of."""

    algorithm: Algorithm
    network: Actor
    margin: float = USUAL_MARGIN  # nats below the best logit within which it draws


MakeDispatch = Callable[[Example, PyTree], DispatchLearner]
"""(shapes, numbers of the expected on-time rule) -> how to train."""
MakeOrchestration = Callable[[StepwiseActor], Algorithm]
"""What learns, of the actor that corrects the plan."""


class TrainedDispatch(NamedTuple):
    """A dispatcher and how its training went."""

    network: Actor
    params: PyTree
    info: PyTree
    margin: float

    def policy(self) -> Policy:
        """It draws among the nodes near the best."""
        return near_best_policy(self.network, self.params, self.margin)


class TrainedOrchestration(NamedTuple):
    """An orchestrator and how its training went."""

    network: StepwiseActor
    state: PyTree
    policy: Policy
    info: PyTree


def residual(example: Example, rule: PyTree) -> DispatchLearner:
    """PPO from the expected on-time rule: a small scorer, shared by all nodes, corrects it."""
    network = replica_residual(example, rule, ScorerConfig((32, 16), identity=False, pooled=False))
    config = PPOConfig(
        horizon_s=10.0,
        num_epochs=2,
        num_minibatches=8,
        learning_rate=1e-3,
        entropy=0.003,
        critic_hidden=(64, 32),
    )
    return DispatchLearner(ppo(example, config, network=network), network, RULE_MARGIN)


def mappo(example: Example, _rule: PyTree) -> DispatchLearner:
    """MAPPO with the network, the filtering and the reward of KMPS (Huang et al., section III-A)."""
    network = actor(example, positive=True)
    algorithm = ppo(example, PPOConfig(horizon_s=25.0, num_minibatches=8), network=network)
    return DispatchLearner(rewarded(algorithm, KmpsDispatchReward()), network)


def coordinated(example: Example, _rule: PyTree) -> DispatchLearner:
    """cMMAC with the network, the filtering and the reward of KaiS (Han et al. 2021, section III-A)."""
    network = actor(example, positive=True)
    algorithm = cmmac(example, CMMACConfig(num_minibatches=8), network)
    return DispatchLearner(rewarded(algorithm, KaisDispatchReward()), network)


def dispatchers() -> dict[str, MakeDispatch]:
    """Who learns to dispatch, by name."""
    return {RESIDUAL: residual, "mappo": mappo, "cmmac": coordinated}


def orchestrators() -> dict[str, MakeOrchestration]:
    """Who learns to orchestrate, by name."""
    gpg_config = GPGConfig(horizon_s=150.0, copies=COPIES, learning_rate=2e-3)
    gpo_config = GPOConfig(horizon_s=150.0, copies=COPIES, gae_lambda=0.9)
    return {"gpg": lambda one: gpg(one, gpg_config), "gpo": lambda one: gpo(one, gpo_config)}


def train_dispatch(
    name: str, fitted: FittedCluster, budget: TrainingBudget, seed: int, progress: Progress
) -> TrainedDispatch:
    """A dispatcher, in slots under the planned deployment.

    Args:
        name: Of `dispatchers`.
        fitted: The twin.
        budget: How long is trained.
        seed: Of the training.
        progress: Where to show how far it is.
    """
    edge = fitted.edge
    begin_s = _begins(fitted, budget.num_streams)
    spread = max(float(np.std(fitted.tables.scatter)), 0.05)
    problem, example = slot_problem(edge), dispatch_example(fitted)
    algorithm, network, margin = dispatchers()[name](
        example, replica_rule_params(latencies(fitted), spread=spread)
    )
    chance = learned_chance(edge, fitted.tables, begin_s)
    system = environment(problem, slot_response(edge, chance, _planned_by_slots(fitted, begin_s)))
    system = warmed(system, _unevenly(fitted, budget.num_streams), budget.num_warm_up_slots)
    with progress.stage(f"train {name}, seed {seed}"):
        experience = in_twin(system, budget.num_slots, (budget.num_streams,))
        state, info = train(jax.random.key(seed), algorithm, experience, budget.num_updates)
    return TrainedDispatch(network, state.params.actor, info, margin)


def dispatch_example(fitted: FittedCluster) -> Example:
    """Shapes of what a dispatcher of a twin's cluster sees."""
    edge = fitted.edge
    return example_of(
        environment(slot_problem(edge), slot_response(edge, learned_chance(edge, fitted.tables)))
    )


def _unevenly(fitted: FittedCluster, num_streams: int) -> Dispatch:
    """The expected on-time rule, mixed with any legal node: not at all in the first stream, always in the last."""
    usual = observing(fitted.edge, dispatch_rule(fitted))
    share = jnp.linspace(0.0, 1.0, num_streams)

    def dispatch(key: Array, state: SlotState, legal: Array) -> Array:
        key_usual, key_any, key_which = jax.random.split(key, 3)
        score = jnp.where(legal, jax.random.uniform(key_any, legal.shape), -1.0)
        anywhere = jnp.argmax(score, axis=0).astype(jnp.int32)
        explores = jax.random.uniform(key_which, anywhere.shape) < share
        return jnp.where(explores, anywhere, usual(key_usual, state, legal))

    return dispatch


def _planned_by_slots(fitted: FittedCluster, begin_s: Array) -> Orchestrator:
    """The planned deployment as slots ask for it: it reads the clock, the nodes and the deployment alone."""
    rule = planned(fitted.edge, learned_forecast(fitted.edge, fitted.tables), fitted.frames, begin_s=begin_s)

    def orchestrate(key: Array, state: SlotState) -> Orchestration:
        inner, view = state.placement, state.view
        unread: Any = None
        known = FrameState(inner.clock_s, inner.available, view.deployment, unread, unread, view.counts)
        return as_orchestration(rule(key, known), fitted.edge.num_services)

    return orchestrate


def train_orchestration(
    name: str, fitted: FittedCluster, budget: TrainingBudget, seed: int, progress: Progress
) -> TrainedOrchestration:
    """An orchestrator from the planned deployment, which it corrects, in frames over the expected on-time rule.

    Args:
        name: Of `orchestrators`.
        fitted: The twin.
        budget: How long is trained.
        seed: Of the training.
        progress: Where to show how far it is.
    """
    edge, frames = fitted.edge, fitted.frames
    dispatch = observing(edge, dispatch_rule(fitted))
    begin_s = jnp.repeat(_begins(fitted, budget.num_streams // COPIES), COPIES)
    network = corrected_plan(fitted)
    algorithm = orchestrators()[name](network)
    system = environment(
        shown_plan(fitted, edge, frames, begin_s),
        frame_response(edge, _in_blocks(fitted, budget.num_streams), dispatch, frames),
    )
    with progress.stage(f"train {name}, seed {seed}"):
        experience = in_twin(system, budget.num_frames, (budget.num_streams,))
        state, info = train(jax.random.key(seed), algorithm, experience, budget.num_updates)
    return TrainedOrchestration(network, state, algorithm.greedy(state), info)


def corrected_plan(fitted: FittedCluster) -> StepwiseActor:
    """The actor that corrects the planned deployment of a twin."""
    edge, frames = fitted.edge, fitted.frames
    dispatch, chance = observing(edge, dispatch_rule(fitted)), learned_chance(edge, fitted.tables)
    system = environment(shown_plan(fitted, edge, frames), frame_response(edge, chance, dispatch, frames))
    return advised_actor(example_of(system), edge, SMALL)


def shown_plan(
    fitted: FittedCluster, case: EdgeCloud, frames: FrameConfig, begin_s: float | Array = 0.0
) -> Problem:
    """The orchestration problem of a cluster, in which seats see what the twin's forecast plans.

    Args:
        fitted: The twin.
        case: The cluster.
        frames: Of the problem.
        begin_s: Time of day at which the clock is zero.
    """
    plan = planned(case, learned_forecast(fitted.edge, fitted.tables), frames, ADVICE, begin_s=begin_s)
    return advised(frame_problem(case, frames), plan)


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
