"""The mean of the ensemble's run times, settled last.

A likelihood hardly notices a mean that is a tenth off, where tails are heavy or runs are short beside the unit of
durations; all that queues behind them does. So the run times of all members are multiplied by one factor, after which
their mean over the rows of the log is that of its runs (M. Wüthrich, Bias regularization in neural network models for
general insurance pricing, European Actuarial Journal, 2020), but for what chance may explain. Runs that were cut short
count as long as the members expect of runs that take at least so long.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jax.scipy.stats import norm

from twin.contracts import Array
from twin.placement.outcome_model import FROM_USUAL, Mixture, log_run

MOST = 0.2
"""Logarithm of the factor at most: a few of the longest runs may make up the mean of a heavy-tailed log."""
NUM_STEPS = 4
"""Of the search for it: what limits run times keeps them from growing by the factor itself."""


def mean_run(mixture: Mixture, least: Array, most: Array) -> Array:
    """[*batch] mean of `expm1` of a value of the mixture, cut off at `most`, given that it exceeds `least` [*batch]
    (both on the mixture's own scale, 0 <= least <= most)."""
    scale = jnp.exp(mixture.log_scale)
    low, high = ((bound[None] - mixture.location) / scale for bound in (least, most))
    upper, lower = log_ndtr(high - scale), log_ndtr(low - scale)
    within = mixture.location + scale**2 / 2.0 + upper + jnp.log1p(-jnp.exp(jnp.minimum(lower - upper, 0.0)))
    mean = jnp.exp(within) - (norm.cdf(high) - norm.cdf(low)) + jnp.expm1(most)[None] * norm.cdf(-high)
    each = mixture.log_weight + jnp.log(jnp.maximum(mean, jnp.finfo(mean.dtype).tiny))
    return jnp.exp(
        jax.nn.logsumexp(each, axis=0) - jax.nn.logsumexp(mixture.log_weight + log_ndtr(-low), axis=0)
    )


def level_shift(
    mixture: Mixture, run_s: Array, is_whole: Array, weight: Array, longest_s: Array, unit_s: float
) -> Array:
    """What is added to the locations of the components that count from what is usual.

    Args:
        mixture: Of the members' run times (`log_run`), leaves [components, members, rows].
        run_s: [rows] of the log.
        is_whole: [rows] bool: it was not cut short.
        weight: [rows], 0 where nothing ran.
        longest_s: [] longest run that is drawn.
        unit_s: Of `log_run`.

    Returns:
        [] at most `MOST` up or down; less the nearer it is to its standard error, 0 below that (W. James and C. Stein,
        1961, positive part) and where nothing ran.
    """
    of_usual = jnp.array(FROM_USUAL)[:, None, None]
    zero = jnp.zeros(mixture.location.shape[1:])
    most = zero + log_run(longest_s, unit_s)
    seen = jnp.minimum(log_run(run_s, unit_s)[None] + zero, most)

    def step(shift: Array, _: None) -> tuple[Array, Array]:
        moved = mixture._replace(location=mixture.location + shift * of_usual)
        logged = jnp.where(is_whole[None], jnp.expm1(seen), mean_run(moved, seen, most)).mean(axis=0)
        expected = mean_run(moved, zero, most).mean(axis=0)
        ratio = jnp.sum(weight * logged) / jnp.sum(weight * expected)
        variance = jnp.sum(weight * (logged - expected) ** 2) / jnp.sum(weight * expected) ** 2
        found = shift + jnp.where(jnp.isfinite(ratio) & (ratio > 0.0), jnp.log(ratio), 0.0)
        return jnp.clip(found, -MOST, MOST), variance

    shift, variance = jax.lax.scan(step, jnp.float32(0.0), None, length=NUM_STEPS)
    certain = jnp.maximum(shift**2 - variance[-1], 0.0) / jnp.maximum(shift**2, jnp.finfo(shift.dtype).tiny)
    return jnp.where(jnp.isfinite(certain), certain * shift, 0.0)
