"""Returns of one stream: plain functions of time series, batched only where someone writes `vmap`.

Time between decisions varies, so every step carries its own discount. Names follow the convention of rlax:
`r_t` and `discount_t` belong to the transition from step t-1 to step t, `v_tm1` is the value before it and
`v_t` the one after.
"""

import jax
import jax.numpy as jnp

from twin.contracts import Array


def elapsed_discount(elapsed_s: Array, horizon_s: float) -> Array:
    """The discount of a step that took a while: `exp(-elapsed_s / horizon_s)`.

    Args:
        elapsed_s: [...] seconds, >= 0; 0 (a step that passes no time) gives 1.
        horizon_s: Seconds after which a reward counts 1/e, > 0.

    Returns:
        [...] in (0, 1].
    """
    return jnp.exp(-elapsed_s / horizon_s)


def temporal_difference(r_t: Array, discount_t: Array, v_tm1: Array, v_t: Array) -> Array:
    """The one-step error `r_t + discount_t * v_t - v_tm1`; all arguments of one shape."""
    return r_t + discount_t * v_t - v_tm1


def generalised_advantage(td_t: Array, discount_t: Array, lambda_t: Array) -> Array:
    """Generalised advantage estimation: `A_tm1 = td_t + discount_t * lambda_t * A_t`, with nothing after the
    end.

    A truncated episode is bootstrapped by the last value inside `td_t`. A discount of zero, which a step that
    terminates an episode carries, cuts the series in two.

    Args:
        td_t: [T] one-step errors.
        discount_t: [T] in [0, 1].
        lambda_t: [T] in [0, 1]: 0 trusts the critic, 1 the rewards.

    Returns:
        [T] the advantage of each step. Source: Schulman et al. 2016, equation 16.
    """

    def backward(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        error, decay = step
        advantage = error + decay * later
        return advantage, advantage

    _, advantage = jax.lax.scan(
        backward, jnp.zeros_like(td_t[0]), (td_t, discount_t * lambda_t), reverse=True
    )
    return advantage


def above_block(value: Array, weight: Array, copies: int) -> Array:
    """What values have above the mean of their block of `copies` neighbouring streams; of all streams if it is 1.

    Args:
        value: [..., B].
        weight: [..., B] >= 0, or bool: what counts; 0 where it does not.
        copies: Divides B.
    """
    num_streams = value.shape[-1]
    shape = (*value.shape[:-1], -1, copies if copies > 1 else num_streams)
    blocks, counts = value.reshape(shape), weight.astype(jnp.float32).reshape(shape)
    mean = jnp.sum(blocks * counts, axis=-1, keepdims=True) / jnp.maximum(
        jnp.sum(counts, axis=-1, keepdims=True), 1.0
    )
    return ((blocks - mean) * counts).reshape(value.shape)
