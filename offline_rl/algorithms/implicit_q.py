"""Implicit Q-learning: values of the best logged actions, without a value of any action that the log did not take.

    V(s) <- expectile_tau of Q(s, a) over logged a;   Q(s, a) <- r + discount * V(s');
    policy <- clone of the log, weighted by exp(beta * (Q(s, a) - V(s)))

Source: Kostrikov et al. 2022, equations 5 to 7.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm
from offline_rl.distributions import joint_log_prob
from offline_rl.gradient_learners import target_learner
from offline_rl.losses import preference, weighted_mean
from offline_rl.networks import (
    ACTOR_HIDDEN,
    Actor,
    Example,
    actor,
    actor_algorithm,
    refuse_other_than_choices,
    seat_critic,
)
from offline_rl.transitions import Transitions
from offline_rl.values import action_value, init_pair, lower, pair_loss, pair_values
from twin.contracts import Array, PyTree
from twin.descent import clipped_adam


@dataclass(frozen=True)
class ImplicitQConfig:
    """How values and policy are learned.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        expectile: tau in (0.5, 1): how near the best logged action the values of states lie.
        temperature: beta, in deviations of the advantage: how much better actions are preferred.
        largest_weight: Weights of the clone are cut off here.
        target_rate: How far the target network follows in one step.
        learning_rate: Of Adam, for all networks.
        max_gradient_norm: Gradients are scaled down to this global norm.
        hidden: Widths of the hidden layers.
    """

    horizon_s: float = 60.0
    expectile: float = 0.8
    temperature: float = 3.0
    largest_weight: float = 20.0
    target_rate: float = 0.005
    learning_rate: float = 3e-4
    max_gradient_norm: float = 1.0
    hidden: tuple[int, ...] = ACTOR_HIDDEN


class ImplicitQParams(NamedTuple):
    """The trained parameters."""

    actor: PyTree
    pair: PyTree  # leaves [2, ...]: action values
    state_value: PyTree


class ImplicitQInfo(NamedTuple):
    """Metrics of an update: means over the transitions that count."""

    loss: Array  # of the weighted clone
    value_loss: Array
    action_value_loss: Array
    value: Array
    advantage: Array  # root mean square


def implicit_q(
    example: Example, config: ImplicitQConfig | None = None, network: Actor | None = None
) -> Algorithm:
    """Learns from logs by implicit Q-learning.

    Args:
        example: Shapes of the policy's observation.
        config: How to learn.
        network: The network of policy and action values; an MLP of the configured widths if not given.

    Returns:
        The algorithm, to be fed trajectories of logs.
    """
    config = config or ImplicitQConfig()
    refuse_other_than_choices(example, "implicit_q")
    network = network or actor(example, config.hidden)
    valuer = seat_critic(example, config.hidden)
    optimizer = clipped_adam(config.learning_rate, config.max_gradient_norm)

    def init(key: Array) -> ImplicitQParams:
        key_actor, key_pair, key_value = jax.random.split(key, 3)
        pair = init_pair(network, key_pair)
        return ImplicitQParams(network.init(key_actor), pair, valuer.init(key_value))

    def loss_of(params: ImplicitQParams, target: PyTree, batch: Transitions) -> tuple[Array, ImplicitQInfo]:
        logged_value = action_value(
            lower(pair_values(network, target, batch.observation, batch.legal)), batch.action
        )
        value = valuer.value(params.state_value, batch.observation, 3)
        advantage = jax.lax.stop_gradient(logged_value) - value
        expectile_weight = jnp.where(advantage > 0, config.expectile, 1.0 - config.expectile)
        value_loss = weighted_mean(expectile_weight * advantage**2, batch.weight)

        next_value = valuer.value(params.state_value, batch.next_observation, 3)
        td_target = jax.lax.stop_gradient(batch.reward + batch.discount * next_value)
        values = pair_values(network, params.pair, batch.observation, batch.legal)
        action_loss = pair_loss(values, batch.action, td_target, batch.weight)

        scale = jnp.sqrt(weighted_mean(advantage**2, batch.weight))
        clone_weight = preference(advantage, scale, config.temperature, config.largest_weight)
        log_prob = joint_log_prob(network.logits(params.actor, batch.observation, batch.legal), batch.action)
        clone_loss = -weighted_mean(jax.lax.stop_gradient(clone_weight) * log_prob, batch.weight)
        info = ImplicitQInfo(clone_loss, value_loss, action_loss, weighted_mean(value, batch.weight), scale)
        return clone_loss + value_loss + action_loss, info

    learner = target_learner(
        init, loss_of, optimizer, config.horizon_s, config.target_rate, lambda params: params.pair
    )
    return actor_algorithm(*learner, network, lambda state: state.params.actor)
