"""The direct method: what a decision was worth, learned from the log by supervision; its greedy policy takes the best.

    minimise  mean of loss(q(s, a), r)   over logged decisions (s, a) whose outcome r is settled

with `q` the actor's score of the choice that was taken, and the logistic loss where `r` is a share (1: on time), so
that the score is the log-odds of success; the squared error elsewhere. It looks one decision ahead: what a choice does
to later requests is not in it (M. Dudik, J. Langford and L. Li, Doubly robust policy evaluation and learning, 2011).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from offline_rl.algorithm import Algorithm, choices_of, time_as_stream
from offline_rl.gradient_learners import actor_learner
from offline_rl.losses import weighted_mean
from offline_rl.networks import ACTOR_HIDDEN, Actor, Example, actor, actor_algorithm
from offline_rl.values import summed_action_value
from twin.contracts import Array, PyTree, Trajectory


@dataclass(frozen=True)
class DirectMethodConfig:
    """How to learn worths.

    Attributes:
        is_share: Whether rewards are shares in [0, 1]: the loss is logistic then, else the squared error.
        learning_rate: Of Adam.
        weight_decay: Decoupled.
        max_gradient_norm: Gradients are scaled down to this global norm.
        hidden: Widths of the actor's hidden layers, where no network is given.
    """

    is_share: bool = True
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    max_gradient_norm: float = 1.0
    hidden: tuple[int, ...] = ACTOR_HIDDEN


class DirectMethodInfo(NamedTuple):
    """Metrics of an update: means over the settled decisions of the batch before the update."""

    loss: Array  # nats, or squared units of the reward
    reward: Array
    gradient_norm: Array


def direct_method(
    example: Example, config: DirectMethodConfig | None = None, network: Actor | None = None
) -> Algorithm:
    """Learns what decisions are worth, from settled ones that were the behaviour's own.

    Args:
        example: Shapes of the policy's observation, from `example_of` or `example_in`.
        config: How to learn.
        network: The actor whose scores are the worths; an MLP of the configured widths if not given.

    Returns:
        The algorithm; of an action with several leaves the scores are added up.
    """
    config = config or DirectMethodConfig()
    network = network or actor(example, config.hidden)
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adamw(config.learning_rate, weight_decay=config.weight_decay),
    )

    def loss_of(params: PyTree, trajectory: Trajectory) -> tuple[Array, tuple[Array, Array]]:
        observation, legal, action = choices_of(trajectory)
        reward = time_as_stream(trajectory.reward)
        usable = trajectory.active & trajectory.settled & ~trajectory.illegal
        weight = time_as_stream(usable).astype(jnp.float32)
        worth = summed_action_value(network.logits(params, observation, legal), action)
        each = _logistic(worth, reward) if config.is_share else 0.5 * (worth - reward) ** 2
        loss = weighted_mean(jnp.where(weight > 0.0, each, 0.0), weight)
        return loss, (loss, weighted_mean(reward, weight))

    def info_of(found: tuple[Array, Array], gradient: PyTree) -> DirectMethodInfo:
        return DirectMethodInfo(*found, optax.tree.norm(gradient))

    learner = actor_learner(network.init, loss_of, optimizer, info_of)
    return actor_algorithm(*learner, network, lambda state: state.actor)


def _logistic(log_odds: Array, share: Array) -> Array:
    """Cross-entropy of shares under success with these log-odds, nats."""
    return jax.nn.softplus(log_odds) - share * log_odds
