"""A replica as a queueing station: calls share its cores equally, each uses one core at most.

With n calls the replica completes `min(n, c) / work_s` calls a second, c its cores: M/M/1 with processor sharing for
c <= 1, M/M/c for whole c. With Poisson arrivals at a share rho of the capacity the number of calls is, for m = floor(c)
and a = rho c,

    p(n) ~ a^n / n!  for n <= m,    p(m + k) ~ a^m / m! rho^k

(product form: a network of such stations is a Jackson network, and the mean is the same for every distribution of work
with this mean where c <= 1). Between decisions loads change, so the number in a station is carried over by a fluid law
that has the stationary number as its fixed point (pointwise stationary fluid flow; Wang, Tipper and Banerjee 1996):

    dN/dt = arrivals - capacity rho(N),    N(rho) the stationary number
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array

MOST_CORES = 4
"""Of a replica: terms of the sum above."""
_LARGEST = 0.9999
_HALVINGS = 15


def stationary_number(rho: Array, cores: Array) -> Array:
    """Mean number of calls in a replica of `cores` (at most `MOST_CORES`) at a share `rho` < 1 of its capacity."""
    whole = jnp.floor(jnp.maximum(cores, 0.0))
    load = rho * cores
    term, total, first = jnp.ones_like(rho), jnp.ones_like(rho), jnp.zeros_like(rho)
    for n in range(1, MOST_CORES + 1):
        following = term * load / n
        counts = n <= whole
        term = jnp.where(counts, following, term)
        total = total + jnp.where(counts, following, 0.0)
        first = first + jnp.where(counts, n * following, 0.0)
    free = 1.0 - rho
    above = term * rho / free
    return (first + whole * above + term * rho / free**2) / (total + above)


class Passed(NamedTuple):
    """What a station did in a while; leaves as the station's."""

    number: Array  # of calls in a replica, at the end
    done_per_s: Array  # completed, of a replica
    refused_per_s: Array


def pass_time(
    number: Array, arriving_per_s: Array, rate_per_s: Array, cores: Array, most: Array, dt_s: float
) -> Passed:
    """The fluid law over `dt_s`, implicit in time: stable and conserving for any step.

    Args:
        number: Calls in a replica.
        arriving_per_s: At a replica.
        rate_per_s: Capacity of a replica.
        cores: Of a replica.
        most: Calls that it holds; what would go beyond is refused.
        dt_s: How long.
    """
    target = number + dt_s * arriving_per_s
    step = dt_s * rate_per_s

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        over = stationary_number(middle, cores) + step * middle > target
        return jnp.where(over, low, middle), jnp.where(over, middle, high)

    ends = (jnp.zeros_like(target), jnp.full_like(target, _LARGEST))
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, ends)
    done = jnp.minimum(rate_per_s * 0.5 * (low + high), target / dt_s)
    left = target - dt_s * done
    refused = jnp.maximum(left - most, 0.0)
    return Passed(left - refused, done, refused / dt_s)


def sojourn(number: Array, done_per_s: Array, service_s: Array, most: Array) -> tuple[Array, Array]:
    """Mean and variance of a call's time in a replica: Little's law, and the variance of processor sharing.

    For M/M/1 with processor sharing the variance is `W^2 (2 + rho) / (2 - rho)` (Coffman, Muntz and Trotter 1970), and
    `rho = 1 - service_s / W`; the latter stands in for rho where a replica has several cores. A replica that is full
    (`most` calls) stays so: its calls share alike, and exponential work gives exponential times, of variance `W^2`.
    """
    mean_s = jnp.maximum(number / jnp.maximum(done_per_s, 1e-9), service_s)
    mean_s = jnp.where(done_per_s > 1e-6, mean_s, service_s)
    crowding = 1.0 - service_s / mean_s
    varied = 2.0 * crowding / (2.0 - crowding) * (1.0 - jnp.clip(number / most, 0.0, 1.0) ** 2)
    return mean_s, mean_s**2 * (1.0 + varied)
