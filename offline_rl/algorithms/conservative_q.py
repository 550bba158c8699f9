"""Conservative Q-learning: values learned from logs alone, held down where the log did not go.

    loss = (Q(s, a) - r - discount * Q'(s', argmax Q(s', .)))^2 + alpha * (log sum_b exp Q(s, b) - Q(s, a))

The second term pushes all choices' values down and the logged one's up, so that a choice the log never took cannot look
good by error alone. Source: Kumar et al. 2020, CQL(H) for discrete actions, equation 4; double Q-learning's choice of
the next action (van Hasselt et al. 2016).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax

from offline_rl.algorithm import Algorithm
from offline_rl.distributions import greedy
from offline_rl.gradient_learners import TargetState, target_learner
from offline_rl.losses import huber, weighted_mean
from offline_rl.networks import ACTOR_HIDDEN, Actor, Example, actor, greedy_policy, refuse_other_than_choices
from offline_rl.transitions import Transitions
from offline_rl.values import action_value, soft_value
from twin.contracts import Array, Policy, PyTree
from twin.descent import clipped_adam


@dataclass(frozen=True)
class ConservativeQConfig:
    """How values are learned.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        alpha: Weight of the conservative term.
        target_rate: How far the target network follows in one step.
        learning_rate: Of Adam.
        huber_delta: Where the loss of an error turns from square to linear.
        max_gradient_norm: Gradients are scaled down to this global norm.
        hidden: Widths of the hidden layers.
    """

    horizon_s: float = 60.0
    alpha: float = 0.1
    target_rate: float = 0.005
    learning_rate: float = 3e-4
    huber_delta: float = 1.0
    max_gradient_norm: float = 1.0
    hidden: tuple[int, ...] = ACTOR_HIDDEN


class ConservativeQInfo(NamedTuple):
    """Metrics of an update: means over the transitions that count."""

    loss: Array  # of the temporal difference
    conservative_loss: Array
    value: Array  # of the logged action


def conservative_q(
    example: Example, config: ConservativeQConfig | None = None, network: Actor | None = None
) -> Algorithm:
    """Learns action values from logs; its policy takes the choice of the highest value.

    Args:
        example: Shapes of the policy's observation.
        config: How to learn.
        network: The network of the values; an MLP of the configured widths if not given.

    Returns:
        The algorithm, to be fed trajectories of logs.
    """
    config = config or ConservativeQConfig()
    refuse_other_than_choices(example, "conservative_q")
    network = network or actor(example, config.hidden)
    optimizer = clipped_adam(config.learning_rate, config.max_gradient_norm)

    def loss_of(params: PyTree, target: PyTree, batch: Transitions) -> tuple[Array, ConservativeQInfo]:
        values = network.logits(params, batch.observation, batch.legal)
        next_action = greedy(network.logits(params, batch.next_observation, batch.next_legal))
        next_value = action_value(
            network.logits(target, batch.next_observation, batch.next_legal), next_action
        )
        td_target = jax.lax.stop_gradient(batch.reward + batch.discount * next_value)
        value = action_value(values, batch.action)
        td_loss = weighted_mean(huber(value - td_target, config.huber_delta), batch.weight)
        conservative = weighted_mean(soft_value(values) - value, batch.weight)
        info = ConservativeQInfo(td_loss, conservative, weighted_mean(value, batch.weight))
        return td_loss + config.alpha * conservative, info

    def policy(state: TargetState) -> Policy:
        return greedy_policy(network, state.params)

    learner = target_learner(network.init, loss_of, optimizer, config.horizon_s, config.target_rate)
    return Algorithm(*learner, policy, policy)
