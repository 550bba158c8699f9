"""cMMAC: decentralised actors that share a policy, one central critic, a target network renewed after every episode.

    L(v) = (V_v(s_b,t) - (u_t + discount * V_v'(s_b,t+1)))^2        V has a value for every seat b
    grad J = grad log pi(a_b,t | s_b,t) * (u_t + discount * V_v(s_b,t+1) - V_v(s_b,t))

Actors see their own observation, the critic the global one. A seat's value goes on between its decisions: the critic
learns from every step whose reward is known, the actor from those at which the seat decided. The target v' is the
critic as the episode found it: an update is one episode, so the state needs no second network. Advantages are
standardised: while the critic's values still grow, all of them would praise whatever was done. Without `central` every
seat is valued from its own observation. With `single`, and an actor of what all seats see
(`networks.actor(joint=True)`), one agent decides for all: V has one value, u is the sum of all seats' rewards, and all
of them share the advantage. That is the actor-critic (AC) that KMPS compares with. Source: Han et al. 2021, equations 2
to 7; Huang et al., figures 8 to 11.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import (
    Algorithm,
    choices_of,
    happened,
    minibatch_width,
    num_streams_of,
    time_as_stream,
)
from offline_rl.distributions import joint_entropy, joint_log_prob
from offline_rl.errors import TrainingError
from offline_rl.losses import shares, standardised, weighted_mean, weighted_sum
from offline_rl.networks import ACTOR_HIDDEN, CRITIC_HIDDEN, Actor, Example, actor, actor_algorithm
from offline_rl.returns import elapsed_discount, temporal_difference
from twin.contracts import Array, PyTree, Trajectory
from twin.descent import clipped_adam, descend
from twin.networks import MLP, apply, flatten_features


@dataclass(frozen=True)
class CMMACConfig:
    """How to optimise; the defaults follow KaiS, section IV-C, where it names a value.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        central: The critic gets the global observation.
        single: One agent decides for all seats; needs `central`.
        entropy: Weight of the entropy bonus (none in the paper, .01 in the code that its authors published).
        num_minibatches: Parts that the streams are cut into, a gradient step each.
        learning_rate: Of Adam, for actor and critic.
        max_gradient_norm: Gradients are scaled down to this global norm.
        actor_hidden, critic_hidden: Widths of the hidden layers.
    """

    horizon_s: float = 25.0
    central: bool = True
    single: bool = False
    entropy: float = 0.01
    num_minibatches: int = 4
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    actor_hidden: tuple[int, ...] = ACTOR_HIDDEN
    critic_hidden: tuple[int, ...] = CRITIC_HIDDEN

    def __post_init__(self) -> None:
        if self.single and not self.central:
            raise TrainingError("one agent for all seats, valued seat by seat", allowed="single with central")


class CMMACParams(NamedTuple):
    """The trained parameters."""

    actor: PyTree
    critic: PyTree


class CMMACState(NamedTuple):
    """The learner's state between updates."""

    params: CMMACParams
    optimizer: PyTree


class CMMACInfo(NamedTuple):
    """Metrics of an update: means over the decisions that count."""

    reward: Array
    policy_loss: Array
    value_loss: Array
    entropy: Array  # nats
    settled: Array  # fraction of active decisions whose outcome is known


class _DispatchBatch(NamedTuple):
    """A trajectory as the losses need it; leaves [..., T, B]."""

    observation: PyTree
    legal: PyTree
    action: PyTree
    critic_input: Array  # [inputs, T, B], or [inputs, seats, T, B] without `central`
    target: Array  # [seats, T, B]
    advantage: Array  # [seats, T, B]
    weight: Array  # [seats, T, B], of decisions
    value_weight: Array  # [seats, T, B], of steps whose reward is known


def cmmac(example: Example, config: CMMACConfig | None = None, network: Actor | None = None) -> Algorithm:
    """Learns from its own decisions in an environment.

    Args:
        example: Shapes of what actor and critic see.
        config: How to optimise.
        network: The actor to train; an MLP of the configured widths if not given.

    Returns:
        The algorithm; its trajectories must come from its own policy. Every seat is credited with its own rewards; for
        the reward that the seats of a paper share, see `offline_rl.rewards`.
    """
    config = config or CMMACConfig()
    network = network or actor(example, config.actor_hidden, joint=config.single)
    num_seats = jax.tree.leaves(example.legal)[0].shape[-1]
    critic = MLP(config.critic_hidden, num_seats if config.central and not config.single else 1)
    optimizer = clipped_adam(config.learning_rate, config.max_gradient_norm)

    def init(key: Array) -> CMMACState:
        key_actor, key_critic = jax.random.split(key)
        observed = example.global_observation if config.central else example.observation
        size = sum(leaf.size for leaf in jax.tree.leaves(observed)) // (1 if config.central else num_seats)
        params = CMMACParams(network.init(key_actor), critic.init(key_critic, jnp.zeros((size, 1))))
        return CMMACState(params, optimizer.init(params))

    def values(params: PyTree, inputs: Array) -> Array:
        """[seats, T, B]."""
        found = apply(critic, params, inputs)  # [values, T, B], or [1, seats, T, B] without `central`
        return jnp.broadcast_to(found, (num_seats, *found.shape[1:])) if config.central else found[0]

    def prepared(params: CMMACParams, trajectory: Trajectory) -> _DispatchBatch:
        observation, legal, action = choices_of(trajectory)
        reward, active, settled = time_as_stream((trajectory.reward, trajectory.active, trajectory.settled))
        reward = jnp.broadcast_to(jnp.sum(reward, axis=0), reward.shape) if config.single else reward
        inputs = _critic_inputs(trajectory, observation, config.central)
        value = values(params.critic, inputs)  # [seats, T + 1, B]
        discount = elapsed_discount(trajectory.elapsed_s, config.horizon_s)
        counts = happened(trajectory).astype(jnp.float32)
        unit = weighted_mean(1.0 - discount, counts)
        discount = jnp.where(trajectory.terminated, 0.0, discount)[None]
        error = temporal_difference(reward * unit, discount, value[:, :-1], value[:, 1:])
        known = _steps_known(active, settled, config.single) * counts[None]
        weight = (active & settled) * known
        return _DispatchBatch(
            observation,
            legal,
            action,
            inputs[..., :-1, :],
            value[:, :-1] + error,
            standardised(error, weight),
            weight,
            known,
        )

    def loss_of(params: CMMACParams, batch: _DispatchBatch) -> tuple[Array, tuple[Array, ...]]:
        logits = network.logits(params.actor, batch.observation, batch.legal)
        weight = shares(batch.weight)
        policy_loss = -weighted_sum(joint_log_prob(logits, batch.action) * batch.advantage, weight)
        entropy = weighted_sum(joint_entropy(logits), weight)
        error = values(params.critic, batch.critic_input) - batch.target
        value_loss = weighted_mean(error**2, batch.value_weight)
        return policy_loss + value_loss - config.entropy * entropy, (policy_loss, value_loss, entropy)

    def step(key: Array, state: CMMACState, trajectory: Trajectory) -> tuple[CMMACState, CMMACInfo]:
        num_streams = num_streams_of(trajectory)
        width = minibatch_width(num_streams, config.num_minibatches)
        order = jax.random.permutation(key, num_streams)
        batch = jax.tree.map(lambda leaf: jnp.take(leaf, order, axis=-1), prepared(state.params, trajectory))

        def update(state: CMMACState, start: Array) -> tuple[CMMACState, tuple[Array, ...]]:
            part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, width, -1), batch)
            gradient, metrics = jax.grad(loss_of, has_aux=True)(state.params, part)
            return CMMACState(*descend(optimizer, gradient, state.optimizer, state.params)), metrics

        state, metrics = jax.lax.scan(update, state, width * jnp.arange(config.num_minibatches))
        return state, _info(trajectory, metrics)

    return actor_algorithm(init, step, network, lambda state: state.params.actor)


def _critic_inputs(trajectory: Trajectory, observation: PyTree, central: bool) -> Array:
    """[features, T + 1, B] of all seats for a central critic, else [features, seats, T + 1, B]; the last step twice."""
    if central:
        return flatten_features(time_as_stream(trajectory.global_observation), 2).astype(jnp.float32)
    own = flatten_features(observation, 3).astype(jnp.float32)
    return jnp.concatenate([own, own[..., -1:, :]], axis=-2)


def _steps_known(active: Array, settled: Array, single: bool) -> Array:
    """[seats, T, B] 1 where the reward of a step is known to a seat, to a single agent only if it is to all seats."""
    known = settled | ~active
    known = jnp.all(known, axis=0, keepdims=True) if single else known
    return jnp.broadcast_to(known, active.shape).astype(jnp.float32)


def _info(trajectory: Trajectory, metrics: tuple[Array, ...]) -> CMMACInfo:
    """Metrics of an update; `metrics` holds losses of policy and value and the entropy, of every minibatch."""
    active = trajectory.active.astype(jnp.float32)
    reward = weighted_mean(trajectory.reward, active * trajectory.settled)
    settled = weighted_mean(trajectory.settled.astype(jnp.float32), active)
    policy_loss, value_loss, entropy = (jnp.mean(one) for one in metrics)
    return CMMACInfo(reward, policy_loss, value_loss, entropy, settled)
