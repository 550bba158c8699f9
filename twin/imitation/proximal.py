"""The imitation improved by PPO on the discriminator's score, as Xiong et al. do.

The reward of a decision with its answer is `-log D` (section 3.4; D high for generated). Engine and answers are one
joint policy, whose probability ratio is clipped (Schulman et al. 2017); a value network beside them is the baseline.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree
from twin.imitation.config import ImitationConfig
from twin.imitation.decisions import drawn_as_observed
from twin.imitation.game import Again, ImitatedRollout, inputs_of
from twin.imitation.generator import ResponseGenerator, answers_given, engine_logits
from twin.networks import MLP, apply
from twin.placement.encoding import Encoding
from twin.placement.outcome_model import log_likelihood


class ImitationBatch(NamedTuple):
    """A rollout with its advantages; leaves [T, W]."""

    log_probability: Array
    advantage: Array
    returns: Array


def critic_network(config: ImitationConfig) -> MLP:
    """The value of a state before the answer: [inputs, T, W] -> [1, T, W]."""
    return MLP(config.hidden, 1, output_scale=0.1)


def returns_to_go(reward: Array, valid: Array, last_value: Array, discount: float) -> Array:
    """Discounted sums of rewards from every step on.

    Args:
        reward: [T, W].
        valid: [T, W] bool; the sum passes over steps that are not.
        last_value: [W] what is expected after the last step.
        discount: For each valid step.

    Returns:
        [T, W].
    """

    def one(after: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, valid = step
        now = jnp.where(valid, reward + discount * after, after)
        return now, now

    return jax.lax.scan(one, last_value, (reward, valid), reverse=True)[1]


def joint_log_probability(
    encoding: Encoding,
    config: ImitationConfig,
    generator: ResponseGenerator,
    seen: ImitatedRollout,
    drawn: Again,
) -> Array:
    """[T, W] log probability of the rollout's decisions and answers under the parameters given."""
    chosen, answer = jax.lax.stop_gradient(drawn)
    logits = engine_logits(encoding.cluster, config, generator.engine, seen.local, seen.legal)
    parameters = answers_given(
        encoding, config, generator.answers, inputs_of(encoding, seen.full, chosen, seen.pending)
    )
    of_answer = log_likelihood(
        parameters,
        drawn_as_observed(answer),
        encoding.problem.time_unit_s,
        cut_short=bool(encoding.cluster.hazard),
    )
    return jnp.sum(chosen * jnp.maximum(logits, -1e9), axis=0) + of_answer


def prepare(
    encoding: Encoding,
    config: ImitationConfig,
    generator: ResponseGenerator,
    critic: PyTree,
    seen: ImitatedRollout,
    drawn: Again,
    reward: Array,
) -> ImitationBatch:
    """Log probabilities and normalised advantages [T, W] under the parameters that played."""
    log_probability = joint_log_probability(encoding, config, generator, seen, drawn)
    inputs = inputs_of(encoding, seen.full, drawn.chosen, seen.pending)
    value = apply(critic_network(config), critic, inputs)[0]
    returns = returns_to_go(reward, seen.valid, value[-1], config.discount)
    advantage = jnp.where(seen.valid, returns - value, 0.0)
    count = jnp.maximum(jnp.sum(seen.valid), 1)
    mean = jnp.sum(advantage) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(seen.valid, (advantage - mean) ** 2, 0.0)) / count)
    return jax.lax.stop_gradient(
        ImitationBatch(log_probability, (advantage - mean) / (spread + 1e-6), returns)
    )


def proximal_loss(
    encoding: Encoding,
    config: ImitationConfig,
    generator: ResponseGenerator,
    critic: PyTree,
    seen: ImitatedRollout,
    drawn: Again,
    batch: ImitationBatch,
) -> Array:
    """The clipped surrogate, negative, plus half the squared error of the value."""
    chosen = jax.lax.stop_gradient(drawn.chosen)
    now = joint_log_probability(encoding, config, generator, seen, drawn)
    ratio = jnp.exp(jnp.clip(now - batch.log_probability, -10.0, 10.0))
    bounded = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    gain = jnp.minimum(ratio * batch.advantage, bounded * batch.advantage)
    inputs = inputs_of(encoding, seen.full, chosen, seen.pending)
    value = apply(critic_network(config), critic, inputs)[0]
    each = -gain + 0.5 * (value - batch.returns) ** 2
    return jnp.sum(jnp.where(seen.valid, each, 0.0)) / jnp.maximum(jnp.sum(seen.valid), 1)
