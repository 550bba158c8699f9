"""Losses as plain functions. Categorical ones reduce axis 0 (the choices); any axes may follow.

Logits of illegal choices are a large negative finite number, so that their probability is exactly zero and no
infinity meets a zero. Where nothing is legal the distribution is uniform: meaningless, but not NaN.
"""

import jax
import jax.numpy as jnp

from offline_rl.numpy_networks import MASKED_LOGIT
from twin.contracts import Array, PyTree


def mask_logits(logits: Array, legal: Array) -> Array:
    """Logits [choices, ...] with `MASKED_LOGIT` where `legal` [choices, ...] is false (KMPS, equation
    2)."""
    return jnp.where(legal, logits, MASKED_LOGIT)


def is_choice(action: Array, num_choices: int) -> Array:
    """One-hot over a new axis 0: `action` [...] int32 -> [num_choices, ...] bool."""
    return jnp.arange(num_choices, dtype=action.dtype).reshape((-1,) + (1,) * action.ndim) == action[None]


def choice_error(probabilities: PyTree, action: PyTree) -> Array:
    """Squared distance of probabilities from the choices made, summed over leaves.

    Args:
        probabilities: Leaves [choices, ...].
        action: Leaves [...] int32.

    Returns:
        [...] in [0, 2] for every leaf.
    """

    def of_leaf(share: Array, chosen: Array) -> Array:
        return jnp.sum((share - is_choice(chosen, share.shape[0])) ** 2, axis=0)

    return jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(of_leaf, probabilities, action))), axis=0)


def log_prob(logits: Array, action: Array) -> Array:
    """Log-probability of the action taken.

    Args:
        logits: [choices, ...] masked logits.
        action: [...] int32.

    Returns:
        [...] in nats, <= 0; about `MASKED_LOGIT` for an illegal action.
    """
    return jnp.sum(
        jnp.where(is_choice(action, logits.shape[0]), jax.nn.log_softmax(logits, axis=0), 0.0), axis=0
    )


def entropy(logits: Array) -> Array:
    """Entropy in nats of masked logits [choices, ...]; 0 where one choice is legal."""
    log_p = jax.nn.log_softmax(logits, axis=0)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=0)


def kl_divergence(logits_p: Array, logits_q: Array) -> Array:
    """`KL(p || q)` in nats of two distributions under one mask, logits [choices, ...]."""
    log_p, log_q = jax.nn.log_softmax(logits_p, axis=0), jax.nn.log_softmax(logits_q, axis=0)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=0)


def clipped_surrogate(log_ratio: Array, advantage: Array, clip: float) -> Array:
    """PPO's loss `-min(ratio A, clip(ratio, 1 - clip, 1 + clip) A)`.

    Args:
        log_ratio: [...] log-probability now minus that at collection.
        advantage: [...] held constant.
        clip: How far the ratio may move from 1 and still be rewarded for it.

    Returns:
        [...] loss. Source: Schulman et al. 2017, equation 7.
    """
    ratio = jnp.exp(log_ratio)
    advantage = jax.lax.stop_gradient(advantage)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def preference(advantage: Array, scale: Array, temperature: float, largest: float) -> Array:
    """Weight `exp(temperature * advantage / scale)` of a decision to be cloned, cut off at `largest`.

    Args:
        advantage: [...] of the decision.
        scale: [] deviation of the advantages, >= 0.
        temperature: How much better decisions are preferred; >= 0.
        largest: Largest weight.

    Returns:
        [...] in [0, largest].
    """
    log_weight = temperature * advantage / (scale + 1e-6)
    return jnp.minimum(jnp.exp(jnp.minimum(log_weight, 50.0)), largest)


def huber(error: Array, delta: float) -> Array:
    """Huber loss: `error^2 / 2` up to `delta`, then `delta (|error| - delta / 2)`."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


def weighted_sum(value: Array, weight: Array) -> Array:
    """Sum of `value` times `weight` >= 0 of the same shape; nothing where a weight is 0, whatever `value` is there."""
    return jnp.sum(jnp.where(weight > 0, value * weight, 0.0))


def weighted_mean(value: Array, weight: Array) -> Array:
    """Mean of `value` under `weight` >= 0 of the same shape; 0 where all weights are 0, whatever `value` is
    there."""
    return weighted_sum(value, weight) / jnp.maximum(jnp.sum(weight), 1e-9)


def standardised(value: Array, weight: Array) -> Array:
    """`value` less its weighted mean, in weighted standard deviations: so advantages have one scale in every update."""
    centred = value - weighted_mean(value, weight)
    return centred / (jnp.sqrt(weighted_mean(centred**2, weight)) + 1e-6)


def shares(weight: Array) -> Array:
    """`weight` >= 0 scaled to a sum of 1, or all 0: with them a sum is a weighted mean."""
    return weight / jnp.maximum(jnp.sum(weight), 1e-9)
