"""How a deployment answers to load and grants: a law with parameters learned from its log.

    rho   = rate work / (ready min(cores, most))           most: the most that the log has granted, one core at least
    own   = floor / min(cores, 1)^gamma (1 + beta rho^m / (1 - rho))          response time while nothing queues
    queue : what arrives beyond the capacity waits, is worked off later, and is refused beyond `connections` a replica

floor, gamma, beta and m are fitted for every deployment; beyond the largest rho of the log the law grows without bound,
which is the pessimism wanted there. A call runs on one core at a time: where the log never granted a whole one, more
saves processor time, `work (1 / cores - 1)` at most, and no other time. From end to end the mean is a weighted sum of
the own times, its 95 % quantile a multiple of the mean that depends on how crowded and how concentrated the time is,
and on another weighted sum of the own times, fitted to the quantile: what is seldom called and slow, or waited for
beside something else, counts there as it does not in the mean. The distribution is a gamma.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.autoscaling.types import LATENCY_S
from twin.contracts import Array

MOST_RHO = 0.97
"""Where a queue begins: above, the law stands still and the queue grows."""
_SHAPES = np.geomspace(0.15, 40.0, 60)
"""Shapes of gamma distributions that are looked up."""


class Laws(NamedTuple):
    """Parameters; leaves [members, deployments] unless said otherwise."""

    calls_per_request: Array
    work_s: Array  # processor seconds of a call
    log_floor: Array
    gamma: Array
    log_beta: Array
    log_power: Array  # of m - 1
    most_cores: Array
    start_up_s: Array
    cold_work: Array  # share of work that a call takes more in a replica that has just started
    cold_s: Array  # in which that falls by a factor of e
    connections: Array  # calls in a replica before some are refused
    memory_gib: Array  # of a replica without calls
    memory_per_call_gib: Array
    memory_margin_gib: Array  # beyond both, that a replica needs: below, it restarts
    weight: Array  # of an own time in the time from end to end
    tail_weight: Array  # of an own time in the 95 % quantile from end to end
    tail: Array  # [members, tail features] log of 95 % quantile over mean
    tail_spread: Array  # [members, 1] deviation of that logarithm around it
    spread: Array  # deviation of the logarithm of own times around the law
    rate_scatter: Array  # variance of the calls of an interval around those expected, over their number
    work_scatter: Array  # relative variance of the work of an interval, times the number of its calls


MIX_SPREAD, MIX_COPIES = 0.3, 12
"""To learn in: logarithms of the calls that a request makes lie within this of those of the log; worlds a member."""


def drifting(laws: Laws, copies: int = MIX_COPIES) -> Laws:
    """An ensemble of `copies` times the members, each a world whose users ask for something else than in the log.

    Calls per request, and with them the weights of an own time, are `exp(u)` times those of the log, `u` uniform within
    `MIX_SPREAD` of zero for every deployment of every member: what is learned in many such worlds holds where the mix
    of requests has moved (domain randomisation; Tobin et al. 2017).
    """
    random = np.random.default_rng([2, 0xD21F])
    many: Laws = jax.tree.map(lambda leaf: np.tile(leaf, (copies,) + (1,) * (np.ndim(leaf) - 1)), laws)
    factor = np.exp(random.uniform(-MIX_SPREAD, MIX_SPREAD, many.weight.shape)).astype(np.float32)
    moved = ("calls_per_request", "weight", "tail_weight")
    return many._replace(**{name: getattr(many, name) * factor for name in moved})


def law_s(
    log_floor: Array, gamma: Array, log_beta: Array, log_power: Array, rho: Array, cores: Array
) -> Array:
    """Own response time at a load `rho` < 1 and `cores` a replica."""
    rho = jnp.clip(rho, 0.0, MOST_RHO)
    slowed = jnp.exp(log_floor) / jnp.clip(cores, 0.05, 1.0) ** gamma
    return slowed * (1.0 + jnp.exp(log_beta) * rho ** (1.0 + jnp.exp(log_power)) / (1.0 - rho))


def tail_features(time_s: Array, tail_s: Array, rho: Array) -> Array:
    """[features, *streams] from own times, weighted for mean and for quantile, and loads [deployments, *streams]."""
    mean_s = jnp.maximum(jnp.sum(time_s, axis=0), 1e-9)
    share = time_s / mean_s[None]
    crowded = jnp.sum(share * jnp.clip(rho, 0.0, 1.0), axis=0)
    concentration = jnp.log(jnp.maximum(jnp.sum(share**2, axis=0), 1e-3))
    longer = jnp.log(jnp.maximum(jnp.sum(tail_s, axis=0), 1e-9) / mean_s)
    return jnp.stack([jnp.ones_like(crowded), crowded, crowded**2, concentration, longer])


def gamma_share_below(edges_s: Array, mean_s: Array, shape: Array) -> Array:
    """Share [edges, *streams] of gamma variables of given mean and shape at most `edges_s` [edges] (Wilson and Hilferty
    1931)."""
    edges = edges_s.reshape((-1,) + (1,) * mean_s.ndim)
    root = jnp.cbrt(edges / jnp.maximum(mean_s, 1e-9)[None])
    deviation = 1.0 / (3.0 * jnp.sqrt(shape))[None]
    return jax.scipy.stats.norm.cdf((root - 1.0 + deviation**2) / deviation)


def shape_of(ratio: Array) -> Array:
    """Shape of the gamma distribution whose 95 % quantile is `ratio` times its mean."""
    deviation = 1.0 / (3.0 * np.sqrt(_SHAPES))
    ratios = (1.0 - deviation**2 + 1.6449 * deviation) ** 3
    best = int(np.argmax(ratios))  # ratios fall with the shape from here on
    return jnp.exp(jnp.interp(-ratio, jnp.asarray(-ratios[best:]), jnp.asarray(np.log(_SHAPES[best:]))))


def histogram(mean_s: Array, quantile_95_s: Array, requests: Array) -> Array:
    """[buckets, *streams] counts of requests by their time from end to end."""
    shape = shape_of(quantile_95_s / jnp.maximum(mean_s, 1e-9))
    below = gamma_share_below(jnp.asarray(LATENCY_S, jnp.float32), mean_s, shape)
    return jnp.diff(below, axis=0, prepend=0.0, append=1.0) * requests[None]
