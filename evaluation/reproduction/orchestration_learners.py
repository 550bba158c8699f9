"""What is trained in the twin for `reproduce kais` and `reproduce kmps`: a dispatcher or an orchestrator at a time.

The other side stands still meanwhile: dispatchers learn in slots under the planned deployment, orchestrators in frames
over the expected on-time rule, from the planned deployment, which they correct. Streams begin at times spread over the
day; orchestrators learn from blocks of streams that meet the same requests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.problems.orchestration.bench import Entrants, Pair
from evaluation.problems.orchestration.references import PLANNED
from evaluation.problems.orchestration.rivals import dispatch_rule, latencies, rivals
from evaluation.reproduction.orchestration import LearnedPair
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.advice import advised, advised_actor
from offline_rl.algorithm import Algorithm
from offline_rl.algorithms.cmmac import CMMACConfig, cmmac
from offline_rl.algorithms.gpg import GPGConfig, gpg
from offline_rl.algorithms.gpo import GPOConfig, gpo
from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.contract import EXPECTED_ON_TIME
from offline_rl.graph_encoder import GraphConfig
from offline_rl.networks import Actor, Example, actor, example_of, near_best_policy
from offline_rl.rewards import KaisDispatchReward, KmpsDispatchReward, rewarded
from offline_rl.rules.on_time_by_replicas import replica_residual, replica_rule_params
from offline_rl.rules.orchestration.planned import planned
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

SMALL = StepwiseConfig(GraphConfig(16, (32,)), hidden=(64, 32))
RESIDUAL = "residual"
"""A network that corrects the expected on-time rule."""
NOTHING = "none"
COPIES = 8
"""Streams of a block that meets the same requests."""


@dataclass(frozen=True)
class TrainingBudget:
    """How long is trained.

    Attributes:
        num_updates: Of every policy.
        num_streams: A multiple of `COPIES`.
        num_frames: Length of an orchestrator's trajectories.
        num_slots: Length of a dispatcher's.
    """

    num_updates: int = 40
    num_streams: int = 32
    num_frames: int = 16
    num_slots: int = 300


class DispatchLearner(NamedTuple):
    """How a dispatcher is trained, and whose parameters it is made of."""

    algorithm: Algorithm
    network: Actor


MakeDispatch = Callable[[Example, PyTree], DispatchLearner]
"""(shapes, numbers of the expected on-time rule) -> how to train."""


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
    return DispatchLearner(ppo(example, config, network=network), network)


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


def learned_pairs(budget: TrainingBudget) -> tuple[LearnedPair, ...]:
    """Every pair of which one side is trained."""
    gpg_config = GPGConfig(horizon_s=150.0, copies=COPIES, learning_rate=2e-3)
    gpo_config = GPOConfig(horizon_s=150.0, copies=COPIES, gae_lambda=0.9)
    dispatchers = {RESIDUAL: residual, "mappo": mappo, "cmmac": coordinated}
    orchestrators: dict[str, Callable[[StepwiseActor], Algorithm]] = {
        "gpg": lambda one: gpg(one, gpg_config),
        "gpo": lambda one: gpo(one, gpo_config),
    }
    return (
        *(
            LearnedPair(Pair(name, PLANNED), partial(learn_dispatch, name, make, budget))
            for name, make in dispatchers.items()
        ),
        *(
            LearnedPair(Pair(EXPECTED_ON_TIME, name), partial(learn_orchestration, name, make, budget))
            for name, make in orchestrators.items()
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
    name: str,
    make: MakeDispatch,
    budget: TrainingBudget,
    fitted: FittedCluster,
    seed: int,
    progress: Progress,
) -> Entrants:
    """A dispatcher, in slots under the planned deployment; it draws among the nodes near the best."""
    edge = fitted.edge
    begin_s = _begins(fitted, budget.num_streams)
    spread = max(float(np.std(fitted.tables.scatter)), 0.05)
    problem = slot_problem(edge)
    example = example_of(environment(problem, slot_response(edge, learned_chance(edge, fitted.tables))))
    algorithm, network = make(example, replica_rule_params(latencies(fitted), spread=spread))
    chance = learned_chance(edge, fitted.tables, begin_s)
    system = environment(problem, slot_response(edge, chance, _planned_by_slots(fitted, begin_s)))
    with progress.stage(f"train {name}, seed {seed}"):
        experience = in_twin(system, budget.num_slots, (budget.num_streams,))
        state, _ = train(jax.random.key(seed), algorithm, experience, budget.num_updates)
    policy = near_best_policy(network, state.params.actor)
    return Entrants({name: lambda case: observing(case, policy)})


def _planned_by_slots(fitted: FittedCluster, begin_s: Array) -> Orchestrator:
    """The planned deployment as slots ask for it: it reads the clock, the nodes and the deployment alone."""
    rule = planned(fitted.edge, learned_forecast(fitted.edge, fitted.tables), fitted.frames, begin_s=begin_s)

    def orchestrate(key: Array, state: SlotState) -> Orchestration:
        inner, view = state.placement, state.view
        unread: Any = None
        known = FrameState(inner.clock_s, inner.available, view.deployment, unread, unread, view.counts)
        return as_orchestration(rule(key, known), fitted.edge.num_services)

    return orchestrate


def learn_orchestration(
    name: str,
    make: Callable[[StepwiseActor], Algorithm],
    budget: TrainingBudget,
    fitted: FittedCluster,
    seed: int,
    progress: Progress,
) -> Entrants:
    """An algorithm from the planned deployment, which it corrects, in frames over the expected on-time rule."""
    edge, frames = fitted.edge, fitted.frames
    dispatch, problem = observing(edge, dispatch_rule(fitted)), frame_problem(edge, frames)
    forecast = learned_forecast(edge, fitted.tables)
    begin_s = jnp.repeat(_begins(fitted, budget.num_streams // COPIES), COPIES)
    shown = advised(problem, planned(edge, forecast, frames))
    chance = learned_chance(edge, fitted.tables)
    example = example_of(environment(shown, frame_response(edge, chance, dispatch, frames)))
    algorithm = make(advised_actor(example, edge, SMALL))
    system = environment(
        advised(problem, planned(edge, forecast, frames, begin_s=begin_s)),
        frame_response(edge, _in_blocks(fitted, budget.num_streams), dispatch, frames),
    )
    with progress.stage(f"train {name}, seed {seed}"):
        experience = in_twin(system, budget.num_frames, (budget.num_streams,))
        state, _ = train(jax.random.key(seed), algorithm, experience, budget.num_updates)
    policy = algorithm.greedy(state)

    def orchestrate(case: EdgeCloud, frames: FrameConfig, dispatch: Dispatch) -> Orchestrate:
        plan = rivals(fitted).orchestration[PLANNED](case, frames, dispatch)
        return orchestrating(advised(frame_problem(case, frames), plan), policy)

    return Entrants(orchestration={name: orchestrate})


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
