"""Proximal policy optimisation with a shared masked actor and a centralised critic (MAPPO).

Every seat decides from its own observation by one shared actor; the critic values the whole stream from the
global observation and is used in training only. The rewards of a step's seats sum to the team's reward
(Dec-POMDP), and all seats share the stream's advantage. Source: KMPS, section III-A; Yu et al. 2022 for
the normalised value.

Time between decisions varies, so each step is discounted by its own elapsed time. An episode that terminates is worth
nothing afterwards, one that is cut short what the critic expects of what was seen last. Decisions whose outcome is
not known when the rollout ends have no weight in the policy's loss, and their step is taken to have gone as
the critic expected.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from offline_rl.algorithm import (
    Algorithm,
    choices_of,
    cut_short,
    discount_of,
    happened,
    minibatch_width,
    num_streams_of,
    time_as_stream,
)
from offline_rl.distributions import joint_entropy, joint_kl, joint_log_prob
from offline_rl.errors import TrainingError
from offline_rl.losses import clipped_surrogate, huber, shares, standardised, weighted_mean, weighted_sum
from offline_rl.networks import (
    ACTOR_HIDDEN,
    CRITIC_HIDDEN,
    Actor,
    Critic,
    Example,
    actor,
    actor_algorithm,
    critic,
)
from offline_rl.pieces import map_over_pieces, sum_over_pieces
from offline_rl.returns import generalised_advantage, temporal_difference
from twin.contracts import Array, PyTree, Trajectory
from twin.descent import clipped_adam, descend
from twin.devices import spread

LARGEST_LOG_RATIO = 20.0
"""Ratios of densities may be huge where a deviation is small; beyond this they count no more, and stay finite."""


@dataclass(frozen=True)
class PPOConfig:
    """How to optimise; the defaults follow KMPS, section IV, where it names a value.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        gae_lambda: 0 trusts the critic, 1 the rewards.
        clip: How far a probability ratio may move from 1 in one update.
        huber_delta: Where the value loss turns from square to linear, in standard deviations of the return.
        entropy: Weight of the entropy bonus.
        kl_to_clone: Weight of `KL(policy || clone)`, where a clone is given.
        num_epochs: Passes over each trajectory.
        num_minibatches: Parts that the streams are cut into, at random, once for all passes: gathering streams anew
            costs more than it brings.
        learning_rate: Of Adam, for actor and critic.
        decay: Factor by which the learning rate falls in 1,000 gradient steps.
        max_gradient_norm: Gradients are scaled down to this global norm.
        value_memory: Weight of the past in the running mean and deviation of the return.
        actor_hidden, critic_hidden: Widths of the hidden layers.
    """

    horizon_s: float = 600.0
    gae_lambda: float = 0.95
    clip: float = 0.2
    huber_delta: float = 1.0
    entropy: float = 0.01
    kl_to_clone: float = 0.03
    num_epochs: int = 2
    num_minibatches: int = 4
    learning_rate: float = 5e-4
    decay: float = 0.9
    max_gradient_norm: float = 0.5
    value_memory: float = 0.9
    actor_hidden: tuple[int, ...] = ACTOR_HIDDEN
    critic_hidden: tuple[int, ...] = CRITIC_HIDDEN


class Params(NamedTuple):
    """The trained parameters."""

    actor: PyTree
    critic: PyTree


class ReturnScale(NamedTuple):
    """Running moments of the return, so that the critic's target has unit size whatever the reward's."""

    weight: Array
    mean: Array
    square: Array


class PPOState(NamedTuple):
    """The learner's state between updates."""

    params: Params
    optimizer: PyTree
    scale: ReturnScale


class PPOInfo(NamedTuple):
    """Metrics of an update: means over the decisions that count."""

    reward: Array  # of a settled decision
    policy_loss: Array
    value_loss: Array
    entropy: Array  # nats
    kl: Array  # nats, from the policy at collection
    kl_to_clone: Array  # nats, 0 without a clone
    clipped: Array  # fraction of decisions whose ratio left the clip range
    explained_variance: Array  # of the returns, by the critic before the update
    settled: Array  # fraction of active decisions whose outcome is known
    illegal: Array  # fraction of active decisions that the environment replaced


class Batch(NamedTuple):
    """A trajectory as the losses need it; leaves [..., T, B]."""

    observation: PyTree  # [..., seats, T, B]
    global_observation: PyTree  # [..., T, B]
    legal: PyTree  # [choices, seats, T, B]
    action: PyTree  # [seats, T, B]
    log_prob: Array  # [seats, T, B], at collection
    advantage: Array  # [seats, T, B], standardised
    weight: Array  # [seats, T, B], 1 where the decision counts
    target: Array  # [T, B], normalised return
    value_weight: Array  # [T, B]
    clone_logits: PyTree  # [choices, seats, T, B]; None without a clone


def ppo(
    example: Example,
    config: PPOConfig | None = None,
    clone: PyTree | None = None,
    network: Actor | None = None,
    value_network: Critic | None = None,
) -> Algorithm:
    """Learns from its own decisions in an environment.

    Args:
        example: Shapes of what actor and critic see, from `example_of` or `example_in`.
        config: How to optimise.
        clone: Actor parameters to start from and to stay near (see `PPOConfig.kl_to_clone`), of the same
            network.
        network: The actor to train; an MLP of the configured widths if not given.
        value_network: The critic, of global observations; an MLP of the configured widths if not given.

    Returns:
        The algorithm; its trajectories must come from its own policy.

    Raises:
        TrainingError: The clone's shapes are not those of the actor, or (at the first update) the number of
            streams is no multiple of `num_minibatches`.
    """
    config = config or PPOConfig()
    network = network or actor(example, config.actor_hidden)
    valuer = value_network or critic(example, config.critic_hidden)
    if clone is not None:
        _check_clone(network, clone)
    schedule = optax.exponential_decay(config.learning_rate, 1000, config.decay)
    optimizer = clipped_adam(schedule, config.max_gradient_norm)

    def init(key: Array) -> PPOState:
        key_actor, key_critic = jax.random.split(key)
        params = Params(network.init(key_actor) if clone is None else clone, valuer.init(key_critic))
        zero = jnp.zeros(())
        return PPOState(params, optimizer.init(params), ReturnScale(zero, zero, zero))

    loss = partial(_loss, network, valuer, config, clone is not None)

    def step(key: Array, state: PPOState, trajectory: Trajectory) -> tuple[PPOState, PPOInfo]:
        num_streams = num_streams_of(trajectory)
        width = minibatch_width(num_streams, config.num_minibatches)
        order = jax.random.permutation(key, num_streams)
        shuffled = spread(jax.tree.map(lambda leaf: jnp.take(leaf, order, axis=-1), trajectory), num_streams)
        batch, scale, explained = _prepare(shuffled, state, clone, network, valuer, config)
        starts = jnp.tile(width * jnp.arange(config.num_minibatches), config.num_epochs)

        def update(
            carry: tuple[Params, PyTree], start: Array
        ) -> tuple[tuple[Params, PyTree], tuple[Array, ...]]:
            params, optimizer_state = carry
            part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, width, -1), batch)
            part = spread(part, width)
            part = part._replace(weight=shares(part.weight), value_weight=shares(part.value_weight))
            gradient, metrics = sum_over_pieces(partial(jax.grad(loss, has_aux=True), params), part)
            return descend(optimizer, gradient, optimizer_state, params), metrics

        (params, optimizer_state), metrics = jax.lax.scan(update, (state.params, state.optimizer), starts)
        info = _info(trajectory, [jnp.mean(one) for one in metrics], explained)
        return PPOState(params, optimizer_state, scale), info

    return actor_algorithm(init, step, network, lambda state: state.params.actor)


def _loss(
    network: Actor, valuer: Critic, config: PPOConfig, stays_near: bool, params: Params, batch: Batch
) -> tuple[Array, tuple[Array, ...]]:
    """The loss of a minibatch, and its metrics: losses of policy and value, entropy, KL to the policy that decided and
    to the clone (where the policy `stays_near` it), share of clipped ratios."""
    logits = network.logits(params.actor, batch.observation, batch.legal)
    log_ratio = joint_log_prob(logits, batch.action) - batch.log_prob
    log_ratio = jnp.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    policy_loss = weighted_sum(clipped_surrogate(log_ratio, batch.advantage, config.clip), batch.weight)
    entropy = weighted_sum(joint_entropy(logits), batch.weight)
    kl_to_clone = jnp.zeros(())
    if stays_near:
        kl_to_clone = weighted_sum(joint_kl(logits, batch.clone_logits), batch.weight)
    error = valuer.value(params.critic, batch.global_observation, 2) - batch.target
    value_loss = weighted_sum(huber(error, config.huber_delta), batch.value_weight)
    kl = weighted_sum(jnp.expm1(log_ratio) - log_ratio, batch.weight)
    is_clipped = jnp.abs(jnp.expm1(log_ratio)) > config.clip
    clipped = weighted_sum(is_clipped.astype(jnp.float32), batch.weight)
    total = policy_loss + value_loss - config.entropy * entropy + config.kl_to_clone * kl_to_clone
    return total, (policy_loss, value_loss, entropy, kl, kl_to_clone, clipped)


def _prepare(
    trajectory: Trajectory, state: PPOState, clone: PyTree, network: Actor, valuer: Critic, config: PPOConfig
) -> tuple[Batch, ReturnScale, Array]:
    observation, legal, action = choices_of(trajectory)
    active, settled, illegal = time_as_stream((trajectory.active, trajectory.settled, trajectory.illegal))
    global_observation = time_as_stream(trajectory.global_observation)

    def logits_of(params: PyTree) -> PyTree:
        return map_over_pieces(lambda piece: network.logits(params, *piece), (observation, legal))

    log_prob = joint_log_prob(logits_of(state.params.actor), action)

    mean, deviation = _moments(state.scale)
    value = valuer.value(state.params.critic, global_observation, 2) * deviation + mean  # [T + 1, B]
    advantage, known = _advantage(trajectory, value, config)
    target = advantage + value[:-1]
    scale = _remember(state.scale, target, known, config.value_memory)
    mean, deviation = _moments(scale)

    weight = (active & settled & ~illegal & ~cut_short(trajectory)[None]).astype(jnp.float32)
    shared = jnp.broadcast_to(advantage[None], weight.shape)
    batch = Batch(
        observation, jax.tree.map(lambda leaf: leaf[..., :-1, :], global_observation), legal, action, log_prob,
        standardised(shared, weight), weight,
        (target - mean) / deviation, known, None if clone is None else logits_of(clone),
    )  # fmt: skip
    return batch, scale, _explained_variance(advantage, target, known)


def _advantage(trajectory: Trajectory, value: Array, config: PPOConfig) -> tuple[Array, Array]:
    """The team's advantage [T, B], and 1 where the step's reward is known in full, else 0 [T, B]."""
    discount = discount_of(trajectory, config.horizon_s)
    is_known = jnp.all(trajectory.settled | ~trajectory.active, axis=1) & ~cut_short(trajectory)
    team = jnp.sum(trajectory.reward, axis=1)
    error = jnp.where(is_known, temporal_difference(team, discount, value[:-1], value[1:]), 0.0)
    decay = jnp.full_like(discount, config.gae_lambda)
    advantage = jax.vmap(generalised_advantage, in_axes=1, out_axes=1)(error, discount, decay)
    return advantage, (is_known & happened(trajectory)).astype(jnp.float32)


def _moments(scale: ReturnScale) -> tuple[Array, Array]:
    weight = jnp.maximum(scale.weight, 1e-9)
    mean = scale.mean / weight
    variance = jnp.maximum(scale.square / weight - mean**2, 1e-4)
    return mean, jnp.where(scale.weight > 0, jnp.sqrt(variance), 1.0)


def _remember(scale: ReturnScale, target: Array, known: Array, memory: float) -> ReturnScale:
    new = (jnp.ones(()), weighted_mean(target, known), weighted_mean(target**2, known))
    fresh = jnp.where(jnp.any(known > 0), 1.0 - memory, 0.0)
    return ReturnScale(*((1.0 - fresh) * old + fresh * now for old, now in zip(scale, new, strict=True)))


def _explained_variance(advantage: Array, target: Array, known: Array) -> Array:
    centred = target - weighted_mean(target, known)
    unexplained = weighted_mean(advantage**2, known) / jnp.maximum(weighted_mean(centred**2, known), 1e-6)
    return 1.0 - unexplained


def _info(trajectory: Trajectory, metrics: list[Array], explained: Array) -> PPOInfo:
    policy_loss, value_loss, entropy, kl, kl_to_clone, clipped = metrics
    active = trajectory.active.astype(jnp.float32)
    settled = active * trajectory.settled
    return PPOInfo(
        weighted_mean(trajectory.reward, settled),
        policy_loss,
        value_loss,
        entropy,
        kl,
        kl_to_clone,
        clipped,
        explained,
        weighted_mean(trajectory.settled.astype(jnp.float32), active),
        weighted_mean(trajectory.illegal.astype(jnp.float32), active),
    )


def _check_clone(network: Actor, clone: PyTree) -> None:
    wanted = jax.eval_shape(network.init, jax.random.key(0))
    shapes = [jax.tree.map(lambda leaf: tuple(leaf.shape), tree) for tree in (clone, wanted)]
    if shapes[0] != shapes[1]:
        raise TrainingError(
            "the clone is not an actor of this configuration",
            where=f"shapes {shapes[0]}",
            allowed=f"shapes {shapes[1]}",
            advice="clone with the same hidden widths on the same problem",
        )
