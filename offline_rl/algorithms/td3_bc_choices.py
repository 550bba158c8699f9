"""TD3+BC for choices: a policy that maximises values and is held near the logged choices.

    policy <- maximise q_weight * E_pi Q(s, .) / mean |Q| - |pi(s) - a|^2
    Q_i    <- r + discount * E_pi' min_i Q'_i(s', .)

with pi(s) the probabilities of the choices and a the logged choice as a unit vector. The expectation over the target
policy takes the place of the noise that smooths its number. Source: Fujimoto and Gu 2021, equation 3, read for discrete
actions; Fujimoto et al. 2018 for the critic.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm
from offline_rl.gradient_learners import target_learner
from offline_rl.losses import choice_error, weighted_mean
from offline_rl.networks import (
    ACTOR_HIDDEN,
    Actor,
    Example,
    actor,
    actor_algorithm,
    refuse_other_than_choices,
)
from offline_rl.transitions import Transitions
from offline_rl.values import init_pair, lower, one_of_pair, pair_loss, pair_values
from twin.contracts import Array, PyTree
from twin.descent import clipped_adam

_TINY = 1e-6


@dataclass(frozen=True)
class ChoicesTD3BCConfig:
    """How values and policy are learned.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        q_weight: Weight of the values beside the pull to the log, > 0.
        target_rate: How far the target networks follow in one step.
        learning_rate: Of Adam, for all networks.
        max_gradient_norm: Gradients are scaled down to this global norm.
        hidden: Widths of the hidden layers.
    """

    horizon_s: float = 60.0
    q_weight: float = 2.5
    target_rate: float = 0.005
    learning_rate: float = 3e-4
    max_gradient_norm: float = 1.0
    hidden: tuple[int, ...] = ACTOR_HIDDEN


class ChoicesTD3BCParams(NamedTuple):
    """The trained parameters."""

    actor: PyTree
    pair: PyTree  # leaves [2, ...]: action values


class ChoicesTD3BCInfo(NamedTuple):
    """Metrics of an update: means over the transitions that count."""

    policy_loss: Array
    distance: Array  # squared, of the probabilities to the logged choice
    action_value_loss: Array
    value: Array  # under the policy


def td3_bc_choices(
    example: Example, config: ChoicesTD3BCConfig | None = None, network: Actor | None = None
) -> Algorithm:
    """Learns choices from logs by TD3+BC.

    Args:
        example: Shapes of the policy's observation.
        config: How to learn.
        network: The network of policy and action values; an MLP of the configured widths if not given.

    Returns:
        The algorithm, to be fed trajectories of logs.
    """
    config = config or ChoicesTD3BCConfig()
    refuse_other_than_choices(example, "td3_bc_choices")
    network = network or actor(example, config.hidden)
    optimizer = clipped_adam(config.learning_rate, config.max_gradient_norm)

    def init(key: Array) -> ChoicesTD3BCParams:
        key_actor, key_pair = jax.random.split(key)
        return ChoicesTD3BCParams(network.init(key_actor), init_pair(network, key_pair))

    def probabilities(params: PyTree, observation: PyTree, legal: PyTree) -> PyTree:
        logits = network.logits(params, observation, legal)
        return jax.tree.map(lambda leaf: jax.nn.softmax(leaf, axis=0), logits)

    def loss_of(
        params: ChoicesTD3BCParams, target: ChoicesTD3BCParams, batch: Transitions
    ) -> tuple[Array, ChoicesTD3BCInfo]:
        next_probability = probabilities(target.actor, batch.next_observation, batch.next_legal)
        next_values = lower(pair_values(network, target.pair, batch.next_observation, batch.next_legal))
        next_value = _expected(next_probability, next_values)
        td_target = jax.lax.stop_gradient(batch.reward + batch.discount * next_value)
        values = pair_values(network, params.pair, batch.observation, batch.legal)
        action_loss = pair_loss(values, batch.action, td_target, batch.weight)

        probability = probabilities(params.actor, batch.observation, batch.legal)
        value = _expected(probability, jax.lax.stop_gradient(one_of_pair(values, 0)))
        scale = jax.lax.stop_gradient(weighted_mean(jnp.abs(value), batch.weight))
        distance = weighted_mean(choice_error(probability, batch.action), batch.weight)
        policy_loss = distance - config.q_weight * weighted_mean(value, batch.weight) / jnp.maximum(
            scale, _TINY
        )
        info = ChoicesTD3BCInfo(policy_loss, distance, action_loss, weighted_mean(value, batch.weight))
        return policy_loss + action_loss, info

    learner = target_learner(init, loss_of, optimizer, config.horizon_s, config.target_rate)
    return actor_algorithm(*learner, network, lambda state: state.params.actor)


def _expected(probabilities: PyTree, values: PyTree) -> Array:
    """Mean worth [seats, *streams] of choices with these probabilities; what is not legal has none."""
    parts = jax.tree.map(
        lambda share, value: jnp.sum(share * jnp.where(share > 0.0, value, 0.0), axis=0),
        probabilities,
        values,
    )
    return jnp.mean(jnp.stack(jax.tree.leaves(parts)), axis=0)
