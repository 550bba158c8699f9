"""Advantage-weighted regression: a clone of the log that prefers what turned out better than expected.

    V <- returns of the log (generalised advantage estimation);   policy <- clone weighted by exp(A / beta)

No action value is used, so nothing can be overestimated; it improves on the log by one step at most.
Source: Peng et al. 2019, algorithm 1, with generalised advantages in place of Monte Carlo returns.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm, choices_of, cut_short, discount_of, num_streams_of
from offline_rl.distributions import joint_log_prob
from offline_rl.losses import huber, preference, weighted_mean
from offline_rl.networks import ACTOR_HIDDEN, Actor, Example, actor, actor_algorithm, seat_critic
from offline_rl.returns import elapsed_discount, generalised_advantage, temporal_difference
from twin.contracts import Array, PyTree, Trajectory
from twin.descent import clipped_adam, descend


@dataclass(frozen=True)
class AdvantageWeightedConfig:
    """How to regress.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        gae_lambda: 0 trusts the values, 1 the logged rewards.
        temperature: 1 / beta, in deviations of the advantage.
        largest_weight: Weights are cut off here.
        learning_rate: Of Adam.
        max_gradient_norm: Gradients are scaled down to this global norm.
        hidden: Widths of the hidden layers.
    """

    horizon_s: float = 60.0
    gae_lambda: float = 0.9
    temperature: float = 1.0
    largest_weight: float = 20.0
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    hidden: tuple[int, ...] = ACTOR_HIDDEN


class AdvantageWeightedParams(NamedTuple):
    """The trained parameters."""

    actor: PyTree
    state_value: PyTree


class AdvantageWeightedState(NamedTuple):
    """The learner's state between updates."""

    params: AdvantageWeightedParams
    optimizer: PyTree


class AdvantageWeightedInfo(NamedTuple):
    """Metrics of an update: means over the decisions that count."""

    loss: Array  # of the weighted clone
    value_loss: Array
    value: Array
    advantage: Array  # root mean square


def advantage_weighted(
    example: Example, config: AdvantageWeightedConfig | None = None, network: Actor | None = None
) -> Algorithm:
    """Learns from logs by advantage-weighted regression; every seat is credited with its own rewards.

    Args:
        example: Shapes of the policy's observation.
        config: How to regress.
        network: The policy's network; an MLP of the configured widths if not given.

    Returns:
        The algorithm, to be fed trajectories of logs; long ones carry more of what comes later.
    """
    config = config or AdvantageWeightedConfig()
    network = network or actor(example, config.hidden)
    valuer = seat_critic(example, config.hidden)
    optimizer = clipped_adam(config.learning_rate, config.max_gradient_norm)

    def init(key: Array) -> AdvantageWeightedState:
        key_actor, key_value = jax.random.split(key)
        params = AdvantageWeightedParams(network.init(key_actor), valuer.init(key_value))
        return AdvantageWeightedState(params, optimizer.init(params))

    def advantages(trajectory: Trajectory, known: Array, value: Array, unit: Array) -> Array:
        """[T, seats, B]; what is not `known`, such as a decision without outcome, adds nothing.

        Where a seat has nothing to decide next its value is not learned: the one before is taken to go on.
        """
        discount = discount_of(trajectory, config.horizon_s)
        discount = jnp.broadcast_to(discount[:, None], value.shape)
        next_value = jnp.where(trajectory.active[1:], value[1:], value[:-1])
        next_value = jnp.concatenate([next_value, value[-1:]])
        error = temporal_difference(trajectory.reward * unit, discount, value, next_value)
        error = jnp.where(known, error, 0.0)
        decay = jnp.full_like(discount, config.gae_lambda)
        over_seats = jax.vmap(generalised_advantage, in_axes=1, out_axes=1)
        return jax.vmap(over_seats, in_axes=2, out_axes=2)(error, discount, decay)

    def loss_of(
        params: AdvantageWeightedParams, trajectory: Trajectory
    ) -> tuple[Array, AdvantageWeightedInfo]:
        observation, legal, action = choices_of(trajectory)
        known = trajectory.active & trajectory.settled & ~cut_short(trajectory)[:, None]
        weight = (known & ~trajectory.illegal).astype(jnp.float32)
        passing = 1.0 - elapsed_discount(trajectory.elapsed_s, config.horizon_s)
        unit = weighted_mean(jnp.broadcast_to(passing[:, None], weight.shape), weight)
        value = jnp.moveaxis(valuer.value(params.state_value, observation, 3), -2, 0)  # [T, seats, B]
        advantage = advantages(trajectory, known, jax.lax.stop_gradient(value), unit)
        target = jax.lax.stop_gradient(value + advantage)
        value_loss = weighted_mean(huber(value - target, 1.0), weight)

        centre = weighted_mean(advantage, weight)
        scale = jnp.sqrt(weighted_mean((advantage - centre) ** 2, weight))
        clone_weight = preference(advantage - centre, scale, config.temperature, config.largest_weight)
        log_prob = joint_log_prob(network.logits(params.actor, observation, legal), action)
        clone_loss = -weighted_mean(clone_weight * jnp.moveaxis(log_prob, -2, 0), weight)
        info = AdvantageWeightedInfo(clone_loss, value_loss, weighted_mean(value, weight), scale)
        return clone_loss + value_loss, info

    def step(
        _key: Array, state: AdvantageWeightedState, trajectory: Trajectory
    ) -> tuple[AdvantageWeightedState, AdvantageWeightedInfo]:
        num_streams_of(trajectory)
        gradient, info = jax.grad(loss_of, has_aux=True)(state.params, trajectory)
        return AdvantageWeightedState(*descend(optimizer, gradient, state.optimizer, state.params)), info

    return actor_algorithm(init, step, network, lambda state: state.params.actor)
