"""Learners of dispatch and of orchestration, by name: each paper's setting is a configuration of them.

The papers' dispatchers have the papers' rewards, but on time or late counts where the request was dispatched, not in
the slot in which that is known: some thirty slots later, which an advantage of one step, or of GAE's sixteen, does not
reach in the updates that we can afford.
"""

from collections.abc import Callable
from typing import NamedTuple

from offline_rl.algorithm import Algorithm
from offline_rl.algorithms.cmmac import CMMACConfig, cmmac
from offline_rl.algorithms.ddpg import DDPGConfig, ddpg
from offline_rl.algorithms.gpg import GPGConfig, gpg
from offline_rl.algorithms.gpo import GPOConfig, gpo
from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.networks import Actor, Example, actor
from offline_rl.orchestration.config import COPIES, SEPARATE, TRAININGS
from offline_rl.orchestration.graph_encoder import GraphConfig
from offline_rl.orchestration.stepwise_actor import StepwiseActor, StepwiseConfig
from offline_rl.rewards import (
    KaisDispatchReward,
    KmpsChangeReward,
    KmpsDispatchReward,
    KmpsNodeReward,
    rewarded,
)
from offline_rl.rules.on_time_by_replicas import replica_residual
from offline_rl.rules.orchestration.expected_on_time import RULE_MARGIN
from offline_rl.scorer import ScorerConfig, scorer
from twin.contracts import Array, PyTree
from twin.orchestration.frame_state import FrameOutcome
from twin.orchestration.frames import few_waiting, on_time_share

SMALL = StepwiseConfig(GraphConfig(16, (32,)), hidden=(64, 32))
RESIDUAL = "residual"
"""A network that corrects the expected on-time rule."""
RESIDUAL_CENTRAL = "residual_central"
"""The same in one place, see `in_one_place`."""
ANY_SIZE = "residual_any_size"
"""As `residual`, for clusters of any size."""


TOGETHER = {RESIDUAL: (RESIDUAL, "gpg"), "kais": ("cmmac", "gpg"), "kmps": ("mappo", "gpo")}
"""Pairs of which both sides may learn from the same trajectories."""


class DispatchLearner(NamedTuple):
    """How a dispatcher is trained, and whose parameters it is made of.

    Attributes:
        algorithm: Trains it.
        network: Its actor.
        margin: Nats below the best logit within which it draws evenly; None draws from its distribution.
        central: It sees every node in full, and decides late.
    """

    algorithm: Algorithm
    network: Actor
    margin: float | None = None
    central: bool = False


class OrchestrationLearner(NamedTuple):
    """How an orchestrator is trained, of the actor that corrects the plan.

    Attributes:
        algorithm: Makes it of the actor.
        network: Of the actor.
        worth: Of a frame, where the algorithm has no rewards of its own.
    """

    algorithm: Callable[[StepwiseActor], Algorithm]
    network: StepwiseConfig = SMALL
    worth: Callable[[FrameOutcome], Array] = on_time_share


MakeDispatch = Callable[[Example, PyTree], DispatchLearner]
"""(shapes, numbers of the expected on-time rule) -> how to train."""


def residual(example: Example, rule: PyTree, *, any_size: bool = False) -> DispatchLearner:
    """PPO from the expected on-time rule: a small scorer, shared by all nodes, corrects it."""
    scorer = ScorerConfig((32, 16), identity=False, pooled=False)
    network = replica_residual(example, rule, scorer, any_size=any_size)
    config = PPOConfig(
        horizon_s=10.0,
        num_epochs=2,
        num_minibatches=8,
        learning_rate=1e-3,
        entropy=0.003,
        critic_hidden=(64, 32),
    )
    return DispatchLearner(ppo(example, config, network=network), network, RULE_MARGIN)


def residual_any_size(example: Example, rule: PyTree) -> DispatchLearner:
    """The same without the names of sites and services: its parameters serve other clusters."""
    return residual(example, rule, any_size=True)


def mappo(example: Example, _rule: PyTree, network: Actor | None = None) -> DispatchLearner:
    """MAPPO with the network, the filtering and the reward of KMPS (Huang et al., section III-A)."""
    network = network or actor(example)
    algorithm = ppo(example, PPOConfig(horizon_s=25.0, num_minibatches=8), network=network)
    return DispatchLearner(rewarded(algorithm, KmpsDispatchReward(by_decision=True)), network)


def coordinated(example: Example, _rule: PyTree, network: Actor | None = None) -> DispatchLearner:
    """cMMAC with the network, the filtering and the reward of KaiS (Han et al. 2021, section III-A)."""
    network = network or actor(example)
    algorithm = cmmac(example, CMMACConfig(num_minibatches=8), network)
    return DispatchLearner(rewarded(algorithm, KaisDispatchReward(by_decision=True)), network)


def by_node(make: Callable[[Example, PyTree, Actor], DispatchLearner]) -> MakeDispatch:
    """The same learner with a scorer that all nodes share, for clusters of any number of nodes; drawn as learned."""
    config = ScorerConfig(identity=False)
    return lambda example, rule: make(example, rule, scorer(example, config))


def in_one_place(make: MakeDispatch) -> MakeDispatch:
    """The same learner in the cloud: it sees every node in full, and its decisions come late (KaiS, figure 8c)."""
    return lambda example, rule: make(example, rule)._replace(central=True)


def actor_critic(example: Example, _rule: PyTree) -> DispatchLearner:
    """One agent for all access points, by actor and critic (KMPS, figures 8 to 11); with filtering, unlike there."""
    network = actor(example, joint=True)
    algorithm = cmmac(example, CMMACConfig(single=True, num_minibatches=8), network)
    return DispatchLearner(rewarded(algorithm, KmpsDispatchReward(by_decision=True)), network)


def deterministic(example: Example, _rule: PyTree) -> DispatchLearner:
    """One agent for all access points, by DDPG (KMPS, figures 8 to 11); with filtering, unlike there."""
    network = actor(example, joint=True)
    algorithm = ddpg(example, DDPGConfig(), network)
    return DispatchLearner(rewarded(algorithm, KmpsDispatchReward(by_decision=True)), network, margin=0.0)


def dispatchers() -> dict[str, MakeDispatch]:
    """Who learns to dispatch, by name."""
    return {
        RESIDUAL: residual,
        RESIDUAL_CENTRAL: in_one_place(residual),
        ANY_SIZE: residual_any_size,
        "mappo": mappo,
        "mappo_by_node": by_node(mappo),
        "cmmac": coordinated,
        "cmmac_by_node": by_node(coordinated),
        "cmmac_central": in_one_place(coordinated),
        "ac": actor_critic,
        "ddpg": deterministic,
    }


def trained_together() -> dict[str, tuple[tuple[str, str], str]]:
    """Name -> a dispatcher and an orchestrator that learn from the same trajectories, and how (`TRAININGS`)."""
    ways = [way for way in TRAININGS if way != SEPARATE]
    return {f"{name}_{way}": (sides, way) for name, sides in TOGETHER.items() for way in ways}


def orchestrators() -> dict[str, OrchestrationLearner]:
    """Who learns to orchestrate, by name; from the share on time, or from the reward of the paper that it names."""
    gpg_config = GPGConfig(horizon_s=150.0, copies=COPIES, learning_rate=2e-3)
    gpo_config = GPOConfig(horizon_s=150.0, copies=COPIES, gae_lambda=0.9)
    single = GPOConfig(horizon_s=150.0, copies=COPIES, gae_lambda=0.9, dual=False)
    stacked = StepwiseConfig(SMALL.graph, stacked=True, hidden=SMALL.hidden)
    of_kmps = KmpsNodeReward(), KmpsChangeReward()
    return {
        "gpg": OrchestrationLearner(lambda one: gpg(one, gpg_config)),
        "gpg_kais_reward": OrchestrationLearner(lambda one: gpg(one, gpg_config), worth=few_waiting),
        "gpo": OrchestrationLearner(lambda one: gpo(one, gpo_config)),
        "gpo_kmps_reward": OrchestrationLearner(lambda one: gpo(one, gpo_config, *of_kmps)),
        "gpo_without_gnn": OrchestrationLearner(lambda one: gpo(one, gpo_config), stacked),
        "gpo_single_critic": OrchestrationLearner(lambda one: gpo(one, single)),
    }
