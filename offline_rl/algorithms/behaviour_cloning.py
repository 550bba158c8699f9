"""Behaviour cloning: maximum likelihood of the logged decisions under the masked actor.

The greedy policy of a clone of a noisy behaviour is better than the behaviour, so both are worth reporting:
`policy` samples as the log did, `greedy` takes the likeliest choice.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import optax

from offline_rl.algorithm import Algorithm, choices_of, time_as_stream
from offline_rl.distributions import agreement, joint_entropy, joint_log_prob
from offline_rl.gradient_learners import actor_learner
from offline_rl.losses import weighted_mean
from offline_rl.networks import ACTOR_HIDDEN, Actor, Example, actor, actor_algorithm
from twin.contracts import Array, PyTree, Trajectory


@dataclass(frozen=True)
class BehaviourCloningConfig:
    """How to clone.

    Attributes:
        learning_rate: Of Adam.
        weight_decay: Decoupled; the guard against learning a small log by heart.
        max_gradient_norm: Gradients are scaled down to this global norm.
        hidden: Widths of the actor's hidden layers.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    max_gradient_norm: float = 1.0
    hidden: tuple[int, ...] = ACTOR_HIDDEN


class BehaviourCloningInfo(NamedTuple):
    """Metrics of an update: means over the decisions of the batch before the update."""

    loss: Array  # cross-entropy, nats
    entropy: Array  # nats
    agreement: Array  # fraction of decisions that the likeliest choice agrees with
    gradient_norm: Array


def behaviour_cloning(
    example: Example, config: BehaviourCloningConfig | None = None, network: Actor | None = None
) -> Algorithm:
    """Learns to decide as the trajectory did, by minimising the cross-entropy of its active decisions.

    Decisions that the environment had to replace are not the behaviour's own and have no weight.

    Args:
        example: Shapes of the policy's observation, from `example_of` or `example_in`.
        config: How to clone.
        network: The actor to train; an MLP of the configured widths if not given.

    Returns:
        The algorithm; its trajectories may come from logs or from an environment.
    """
    config = config or BehaviourCloningConfig()
    network = network or actor(example, config.hidden)
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adamw(config.learning_rate, weight_decay=config.weight_decay),
    )

    def loss_of(params: PyTree, trajectory: Trajectory) -> tuple[Array, tuple[Array, Array, Array]]:
        observation, legal, action = choices_of(trajectory)
        logits = network.logits(params, observation, legal)
        weight = time_as_stream(trajectory.active & ~trajectory.illegal).astype(jnp.float32)
        loss = weighted_mean(-joint_log_prob(logits, action), weight)
        agrees = agreement(logits, action).astype(jnp.float32)
        entropy = joint_entropy(logits)
        return loss, (loss, weighted_mean(entropy, weight), weighted_mean(agrees, weight))

    def info_of(found: tuple[Array, Array, Array], gradient: PyTree) -> BehaviourCloningInfo:
        return BehaviourCloningInfo(*found, optax.tree.norm(gradient))

    learner = actor_learner(network.init, loss_of, optimizer, info_of)
    return actor_algorithm(*learner, network, lambda state: state.actor)
