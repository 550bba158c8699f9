"""GPG: policy gradient for an orchestrator that chooses nodes and changes in turn.

    theta <- theta + alpha * sum over frames of grad log pi(a | s) * (return from the frame on - baseline of the frame)

The baseline of a frame is the mean return from it on, over all episodes of the update, or over those that met the same
requests (`copies`). One return credits all choices of a frame. Source: Han et al. 2021, section III-B, equation 10.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm, choices_of, discount_of, time_as_stream
from offline_rl.gradient_learners import actor_learner
from offline_rl.losses import shares, weighted_mean, weighted_sum
from offline_rl.orchestration.stepwise_actor import StepwiseActor, stepwise_algorithm
from offline_rl.returns import above_block, generalised_advantage
from twin.contracts import Array, PyTree, Trajectory
from twin.descent import clipped_adam


@dataclass(frozen=True)
class GPGConfig:
    """How to optimise; the defaults follow KaiS, section IV-C, where it names a value.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e; infinite in the paper.
        entropy: Weight of the entropy bonus (none in the paper).
        copies: Neighbouring streams that meet the same chance (`twin.orchestration.paired`); 1: none do.
        learning_rate: Of Adam.
        max_gradient_norm: Gradients are scaled down to this global norm.
    """

    horizon_s: float = float("inf")
    entropy: float = 0.01
    copies: int = 1
    learning_rate: float = 1e-3
    max_gradient_norm: float = 1.0


class GPGInfo(NamedTuple):
    """Metrics of an update: means over the choices that count."""

    reward: Array  # of a frame's seat
    policy_loss: Array
    node_entropy: Array  # nats
    change_entropy: Array
    impossible: Array  # fraction of changes that could not be made at their node


def gpg(network: StepwiseActor, config: GPGConfig | None = None) -> Algorithm:
    """Learns from its own decisions in an environment.

    Returns:
        The algorithm; its trajectories must come from its own policy, and be whole episodes.
    """
    config = config or GPGConfig()
    optimizer = clipped_adam(config.learning_rate, config.max_gradient_norm)

    def loss_of(params: PyTree, trajectory: Trajectory) -> tuple[Array, GPGInfo]:
        observation, legal, action = choices_of(trajectory)
        decided = time_as_stream(trajectory.active & trajectory.settled)
        weight = shares(decided.astype(jnp.float32))
        scored = network.judge(params, observation, legal, action)
        advantage = jnp.broadcast_to(_advantage(trajectory, config)[None], weight.shape)
        loss = -weighted_sum((scored.node_log_prob + scored.change_log_prob) * advantage, weight)
        entropies = weighted_sum(scored.node_entropy, weight), weighted_sum(scored.change_entropy, weight)
        impossible = weighted_sum(scored.impossible.astype(jnp.float32), weight)
        reward = weighted_sum(time_as_stream(trajectory.reward), weight)
        return loss - config.entropy * sum(entropies), GPGInfo(reward, loss, *entropies, impossible)

    return stepwise_algorithm(*actor_learner(network.init, loss_of, optimizer), network)


def _advantage(trajectory: Trajectory, config: GPGConfig) -> Array:
    """[T, B] returns from each frame on, less their baseline, in deviations."""
    discount = discount_of(trajectory, config.horizon_s)
    team = jnp.sum(trajectory.reward, axis=1)
    returns = jax.vmap(generalised_advantage, in_axes=1, out_axes=1)(team, discount, jnp.ones_like(discount))
    decided = jnp.any(trajectory.active & trajectory.settled, axis=1).astype(jnp.float32)
    advantage = above_block(returns, decided, config.copies)
    return advantage / (jnp.sqrt(weighted_mean(advantage**2, decided)) + 1e-6)
