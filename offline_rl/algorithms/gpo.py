"""GPO: proximal policy optimisation of an orchestrator with two actors and two critics.

The actor of nodes and the actor of changes share the encoder; each has a reward, a critic and an advantage of its own.
Critics see the encoder's embeddings and the actors' probabilities, and no gradient of theirs reaches the encoder.

    L = L_node + L_change - entropy * H,  each the clipped surrogate;   critics by their squared error

With `dual = False` both choices share the first critic, its reward and its advantage: the single actor-critic that
KMPS compares with. Source: Huang et al., section III-B, equations 6 and 7.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import (
    Algorithm,
    choices_of,
    discount_of,
    minibatch_width,
    num_streams_of,
    time_as_stream,
)
from offline_rl.losses import clipped_surrogate, shares, standardised, weighted_mean, weighted_sum
from offline_rl.orchestration.stepwise_actor import ScoredSteps, StepwiseActor, stepwise_algorithm
from offline_rl.returns import above_block, elapsed_discount, generalised_advantage, temporal_difference
from offline_rl.rewards import Reward
from twin.contracts import Array, PyTree, Trajectory
from twin.descent import clipped_adam, descend
from twin.networks import MLP, apply


@dataclass(frozen=True)
class GPOConfig:
    """How to optimise; the defaults follow KMPS, section IV-A.4, where it names a value.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e (40 frames: a discount of .975).
        gae_lambda: 0 trusts the critics, 1 the rewards.
        clip: How far a probability ratio may move from 1 in one update.
        entropy: Weight of the entropy bonus (beta).
        dual: A reward, a critic and an advantage for each of the two actors.
        copies: Neighbouring streams that meet the same chance (`twin.orchestration.paired`): rewards are then what a
            stream has above their mean. 1: none do.
        num_epochs: Passes over each trajectory.
        num_minibatches: Parts that the streams are cut into.
        learning_rate: Of Adam, for the actors; critics learn at half of it.
        max_gradient_norm: Gradients are scaled down to this global norm.
        critic_hidden: Widths of the critics' hidden layers.
    """

    horizon_s: float = 1000.0
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    dual: bool = True
    copies: int = 1
    num_epochs: int = 4
    num_minibatches: int = 2
    learning_rate: float = 1e-3
    max_gradient_norm: float = 0.5
    critic_hidden: tuple[int, ...] = (128, 64, 32)


class GPOState(NamedTuple):
    """The learner's state between updates."""

    actor: PyTree
    critics: PyTree  # of nodes, of changes
    actor_optimizer: PyTree
    critic_optimizer: PyTree


class GPOInfo(NamedTuple):
    """Metrics of an update: means over the choices that count."""

    reward: Array  # of a frame's seat, of the actor of nodes
    policy_loss: Array
    value_loss: Array
    node_entropy: Array  # nats
    change_entropy: Array
    impossible: Array  # fraction of changes that could not be made at their node


class _Batch(NamedTuple):
    """A trajectory as the losses need it; leaves [..., T, B]."""

    observation: PyTree
    legal: PyTree
    action: PyTree
    log_prob: Array  # [2, H, T, B] of node and change, at collection
    advantage: Array  # [2, H, T, B]
    target: Array  # [2, H, T, B]
    weight: Array  # [H, T, B]


def gpo(
    network: StepwiseActor,
    config: GPOConfig | None = None,
    node_reward: Reward | None = None,
    change_reward: Reward | None = None,
) -> Algorithm:
    """Learns from its own decisions in an environment.

    Args:
        network: The actor.
        config: How to optimise.
        node_reward, change_reward: What the two actors are rewarded for; the problem's reward if not given.

    Returns:
        The algorithm; its trajectories must come from its own policy.
    """
    config = config or GPOConfig()
    rewards = [reward or (lambda trajectory: trajectory.reward) for reward in (node_reward, change_reward)]
    critic = MLP(config.critic_hidden, 1)
    actor_adam = clipped_adam(config.learning_rate, config.max_gradient_norm)
    critic_adam = clipped_adam(config.learning_rate / 2.0, config.max_gradient_norm)

    def init(key: Array) -> GPOState:
        key_actor, *keys = jax.random.split(key, 3)
        params = network.init(key_actor)
        critics = tuple(
            critic.init(one, jnp.zeros((width, 1))) for one, width in zip(keys, network.widths, strict=True)
        )
        return GPOState(params, critics, actor_adam.init(params), critic_adam.init(critics))

    def values(critics: PyTree, scored: ScoredSteps) -> Array:
        """[2, H, T, B]; contexts are data here, so that no gradient of the critics reaches the encoder."""
        contexts = jax.lax.stop_gradient((scored.node_context, scored.change_context))
        return jnp.stack([apply(critic, one, two)[0] for one, two in zip(critics, contexts, strict=True)])

    def loss_of(both: tuple[PyTree, PyTree], batch: _Batch) -> tuple[Array, tuple[Array, ...]]:
        params, critics = both
        scored = network.judge(params, batch.observation, batch.legal, batch.action)
        ratio = jnp.stack([scored.node_log_prob, scored.change_log_prob]) - batch.log_prob
        weight = shares(batch.weight)
        twice = jnp.broadcast_to(weight[None], ratio.shape)
        policy_loss = weighted_sum(clipped_surrogate(ratio, batch.advantage, config.clip), twice)
        value_loss = 0.5 * weighted_sum((values(critics, scored) - batch.target) ** 2, twice)
        entropies = weighted_sum(scored.node_entropy, weight), weighted_sum(scored.change_entropy, weight)
        impossible = weighted_sum(scored.impossible.astype(jnp.float32), weight)
        total = policy_loss + value_loss - config.entropy * sum(entropies)
        return total, (policy_loss, value_loss, *entropies, impossible)

    def step(key: Array, state: GPOState, trajectory: Trajectory) -> tuple[GPOState, GPOInfo]:
        num_streams = num_streams_of(trajectory)
        order = jax.random.permutation(key, num_streams)
        batch = _prepared(network, state, trajectory, values, rewards, config)
        batch = jax.tree.map(lambda leaf: jnp.take(leaf, order, axis=-1), batch)
        width = minibatch_width(num_streams, config.num_minibatches)
        starts = jnp.tile(width * jnp.arange(config.num_minibatches), config.num_epochs)

        def update(state: GPOState, start: Array) -> tuple[GPOState, tuple[Array, ...]]:
            part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, width, -1), batch)
            gradient, metrics = jax.grad(loss_of, has_aux=True)((state.actor, state.critics), part)
            params, actor_optimizer = descend(actor_adam, gradient[0], state.actor_optimizer, state.actor)
            critics, critic_optimizer = descend(
                critic_adam, gradient[1], state.critic_optimizer, state.critics
            )
            return GPOState(params, critics, actor_optimizer, critic_optimizer), metrics

        state, metrics = jax.lax.scan(update, state, starts)
        reward = weighted_mean(time_as_stream(rewards[0](trajectory)), batch.weight)
        return state, GPOInfo(reward, *(jnp.mean(one) for one in metrics))

    return stepwise_algorithm(init, step, network)


def _prepared(
    network: StepwiseActor,
    state: GPOState,
    trajectory: Trajectory,
    values: Callable[[PyTree, ScoredSteps], Array],
    rewards: Sequence[Reward],
    config: GPOConfig,
) -> _Batch:
    """What both actors and their critics learn from a trajectory, time as streams."""
    observation, legal, action = choices_of(trajectory)
    decided = time_as_stream(trajectory.active & trajectory.settled)
    scored = network.judge(state.actor, observation, legal, action)
    value = values(state.critics, scored)
    reward = jnp.stack([time_as_stream(one(trajectory)) for one in rewards])
    if config.copies > 1:
        reward = above_block(reward, jnp.broadcast_to(decided[None], reward.shape), config.copies)
    advantage = _advantages(trajectory, value, reward, config)
    weight = decided.astype(jnp.float32)
    target = value + advantage
    if not config.dual:
        advantage = jnp.broadcast_to(advantage[:1], advantage.shape)
    scaled = jnp.stack([standardised(one, weight) for one in advantage])
    log_prob = jnp.stack([scored.node_log_prob, scored.change_log_prob])
    return _Batch(observation, legal, action, log_prob, scaled, target, weight)


def _advantages(trajectory: Trajectory, value: Array, reward: Array, config: GPOConfig) -> Array:
    """Generalised advantages [2, H, T, B] in units in which a reward of 1 for ever is worth 1.

    What follows the last frame is taken to be worth what the critics predict.
    """
    discount = discount_of(trajectory, config.horizon_s)
    known = time_as_stream(trajectory.active & trajectory.settled)
    passing = 1.0 - elapsed_discount(trajectory.elapsed_s, config.horizon_s)
    unit = weighted_mean(jnp.broadcast_to(passing[None], known.shape), known.astype(jnp.float32))
    following = jnp.concatenate([value[:, :, 1:], value[:, :, -1:]], axis=2)
    error = temporal_difference(reward * unit, discount[None, None], value, following)
    error = jnp.where(known[None], error, 0.0)

    def onward(error: Array) -> Array:  # [T, B]
        decay = jnp.full_like(discount, config.gae_lambda)
        return jax.vmap(generalised_advantage, in_axes=1, out_axes=1)(error, discount, decay)

    return jax.vmap(jax.vmap(onward))(error)
