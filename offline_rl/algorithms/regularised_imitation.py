"""The imitation of Xiong et al. as it is written: squared error to the logged action, and a pull towards indifference.

    mean over logged (s, a) of |pi(s) - a|^2 + lambda * mean over all s of |pi(s)|^2

with pi(s) the probabilities of the choices and a the logged choice as a unit vector. The second mean runs over the
virtual environment's states as well: streams of a trajectory that come from there are regularised and not imitated.
With lambda = 0 it is the paper's behaviour cloning. Source: Xiong et al., equations 7 and 8 (lambda 0.4).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from logs_schema.errors import ConfigError
from offline_rl.algorithm import Algorithm, choices_of, time_as_stream
from offline_rl.distributions import agreement
from offline_rl.gradient_learners import actor_learner
from offline_rl.losses import choice_error, weighted_mean
from offline_rl.networks import (
    ACTOR_HIDDEN,
    Actor,
    Example,
    actor,
    actor_algorithm,
    refuse_other_than_choices,
)
from twin.contracts import Array, PyTree, Trajectory
from twin.descent import clipped_adam


@dataclass(frozen=True)
class RegularisedImitationConfig:
    """How to imitate.

    Attributes:
        weight: lambda, >= 0.
        virtual_share: Share of a trajectory's streams, the last ones, that come from a virtual environment.
        learning_rate: Of Adam.
        max_gradient_norm: Gradients are scaled down to this global norm.
        hidden: Widths of the actor's hidden layers.
    """

    weight: float = 0.4
    virtual_share: float = 0.0
    learning_rate: float = 1e-3
    max_gradient_norm: float = 1.0
    hidden: tuple[int, ...] = ACTOR_HIDDEN

    def __post_init__(self) -> None:
        if self.weight < 0 or not 0 <= self.virtual_share < 1:
            raise ConfigError(
                f"weight = {self.weight:g}, virtual_share = {self.virtual_share:g}",
                where="RegularisedImitationConfig",
                allowed="weight of at least 0, virtual_share in [0, 1)",
            )


class RegularisedImitationInfo(NamedTuple):
    """Metrics of an update: means over the decisions that count."""

    loss: Array  # squared error to the logged actions
    indifference_loss: Array  # squared norm of the probabilities
    agreement: Array


def regularised_imitation(
    example: Example, config: RegularisedImitationConfig | None = None, network: Actor | None = None
) -> Algorithm:
    """Imitates the log by equation 8 of Xiong et al..

    Args:
        example: Shapes of the policy's observation.
        config: How to imitate.
        network: The policy's network; an MLP of the configured widths if not given.

    Returns:
        The algorithm; feed it logs, or `mixed` logs and rollouts with `virtual_share` set accordingly.
    """
    config = config or RegularisedImitationConfig()
    refuse_other_than_choices(example, "regularised_imitation")
    network = network or actor(example, config.hidden)
    optimizer = clipped_adam(config.learning_rate, config.max_gradient_norm)

    def loss_of(params: PyTree, trajectory: Trajectory) -> tuple[Array, RegularisedImitationInfo]:
        observation, legal, action = choices_of(trajectory)
        logits = network.logits(params, observation, legal)
        probability = jax.tree.map(lambda leaf: jax.nn.softmax(leaf, axis=0), logits)
        active = time_as_stream(trajectory.active & ~trajectory.illegal)
        num_logged = round((1.0 - config.virtual_share) * active.shape[-1])
        is_logged = active & (jnp.arange(active.shape[-1]) < num_logged).reshape((1, 1, -1))
        logged, everywhere = is_logged.astype(jnp.float32), active.astype(jnp.float32)
        error = weighted_mean(choice_error(probability, action), logged)
        norms = [jnp.sum(leaf**2, axis=0) for leaf in jax.tree.leaves(probability)]
        norm = weighted_mean(jnp.sum(jnp.stack(norms), axis=0), everywhere)
        same = weighted_mean(agreement(logits, action).astype(jnp.float32), logged)
        return error + config.weight * norm, RegularisedImitationInfo(error, norm, same)

    learner = actor_learner(network.init, loss_of, optimizer)
    return actor_algorithm(*learner, network, lambda state: state.actor)
