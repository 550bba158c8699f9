"""Arrival times of requests: a rate for every hour of the week, gaps with a law of their own, and a memory.

Arrivals `t_i` are brought to operational time `L(t)`, the integral of the rate, in which they come once per unit on the
average. What is left there is burstiness, kept as it was logged:

    e_i = L(t_i+1) - L(t_i) = Q(Phi(x_i))        Q: quantiles of the logged gaps, Phi: normal distribution function
    x_i = sum_k sqrt(w_k) s_ki + sqrt(1 - sum_k w_k) noise        s_ki = p_k s_k,i-1 + sqrt(1 - p_k^2) noise

so gaps have the logged law and the autocorrelation of their normal scores is `sum_k w_k p_k^lag`, with two terms, for
what lasts a few arrivals and what lasts long: crowds come and stay. A Poisson process has exponential Q and no w.
Logs in whole seconds hold arrivals at one instant, often many: after every arrival another one at the same instant
comes with a probability that depends on whether the last one did; gaps, their law and their memory are those between
instants.

Rates of the hours of a week shrink towards those of its kind of day (working day, weekend), these towards those of any
day, by the weight of a quarter of a day.
"""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from logs_schema.calendar import DAY_S, DAYS_A_WEEK, MONDAY_S, WEEK_S
from twin.contracts import Array
from twin.placement.types import Leaf
from twin.population.errors import PopulationError

HOUR_S, HOURS_A_DAY = 3_600.0, 24
HOURS_A_WEEK = HOURS_A_DAY * DAYS_A_WEEK
WEEKEND = np.array([False] * 5 + [True] * 2)
MIN_ARRIVALS = 100
GRID_SIZE = 4096
SHRINKAGE_DAYS = 0.25
CANDIDATES = 128
"""States that the state at any time is drawn among."""
SMALLEST = 1e-9
"""Least gap between two instants, in operational time: numbers may lose a shorter one."""
LARGEST_AGAIN = 0.999
MANY_ARRIVALS, DENSE_STEPS = 1 << 20, 1 << 12
"""Of a drawn stretch, beyond which the clock begins anew every so many: 32 bits would lose the gaps of a late hour."""
_LEAST_VARIANCE = 1e-100
"""Of scores: gaps that are all alike have none."""
LAGS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120)
NUM_TERMS = 2
PERSISTENCES = (0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


class ArrivalModel(NamedTuple):
    """A fitted model of arrival times; arrays."""

    rate_per_s: Leaf  # [hours of the week] from Monday 00:00
    gap: Leaf  # [quantiles] of the gaps between instants in operational time, ascending; with ties the mean is one
    again: Leaf  # [2] chance of another arrival at the same instant: after a gap, after none
    share: Leaf  # [terms] w: in the variance of the scores
    persistence: Leaf  # [terms] p
    resolution_s: Leaf  # []: instants are multiples of it; 0 where they are not


class Flow(NamedTuple):
    """Where a stream of arrivals stands; leaves [*streams]."""

    clock_s: Array  # on the episode's clock, before rounding to the resolution
    slow: Array  # [terms, *streams] s_i
    tied: Array  # [*streams] bool: the last arrival came at the instant of the one before


def fit_arrivals(
    arrival_s: np.ndarray, days: Sequence[int], rate_per_s: np.ndarray | None = None
) -> ArrivalModel:
    """Learns arrival times.

    Args:
        arrival_s: [arrivals] seconds since 1970 (UTC), sorted.
        days: Days since 1970 that were looked at, those without arrivals counted.
        rate_per_s: [hours of the week] `rates` of more days than these, where gaps are learned from some of many.

    Raises:
        PopulationError: Fewer than `MIN_ARRIVALS` arrivals on these days, or none that tells a gap.
    """
    looked_at = np.unique(np.asarray(days, np.int64))
    arrival_s = np.asarray(arrival_s, float)
    arrival_s = arrival_s[np.isin((arrival_s // DAY_S).astype(np.int64), looked_at)]
    if len(arrival_s) < MIN_ARRIVALS:
        raise PopulationError(
            f"{len(arrival_s)} arrivals are too few to learn arrival times",
            where=f"{len(looked_at)} days",
            allowed=f"at least {MIN_ARRIVALS}",
            advice="take more days",
        )
    if rate_per_s is None:
        rate_per_s = rates(counts_of_hours(arrival_s), looked_at)
    gap, run = _operational_gaps(arrival_s, rate_per_s, looked_at)
    apart = gap > 0.0
    if not apart.any():
        raise PopulationError(
            f"no two of {len(arrival_s)} arrivals tell a gap: they are of one instant, or of days apart",
            where=f"{len(looked_at)} days",
            allowed="arrivals at two instants of a day or more",
            advice="take more days",
        )
    again = _again(apart, run)
    gap, run = gap[apart], run[apart]
    share, persistence = _memory(_scores(gap), np.arange(len(gap)) + 1000 * run)
    grid = np.quantile(gap, (np.arange(GRID_SIZE) + 0.5) / GRID_SIZE)
    whole = bool(np.all(arrival_s == np.floor(arrival_s)))
    leaves = (
        rate_per_s,
        grid / (grid.mean() * np.mean(apart)),
        again,
        share,
        persistence,
        1.0 if whole else 0.0,
    )
    return ArrivalModel(*(np.asarray(leaf, np.float32) for leaf in leaves))


def flow_at_any_time(key: Array, model: ArrivalModel, clock_s: Array) -> Flow:
    """A flow that has gone on for ever, at a moment `clock_s` [*streams] that no arrival chose.

    Such a moment falls into a gap as often as the gap is long: with crowds that stay it lies between them, mostly. Of
    `CANDIDATES` states one is drawn by the lengths of their gaps.
    """
    key_slow, key_noise, key_choice = jax.random.split(key, 3)
    slow = jax.random.normal(key_slow, (NUM_TERMS, CANDIDATES, *clock_s.shape))
    amount = _amount(model, slow, jax.random.normal(key_noise, slow.shape[1:]))
    chosen = jax.random.categorical(key_choice, jnp.log(jnp.maximum(amount, 1e-9)), axis=0)
    slow = jnp.take_along_axis(slow, chosen[None, None], axis=1)[:, 0]
    return Flow(clock_s, slow, jnp.zeros(clock_s.shape, bool))


def next_arrival(key: Array, model: ArrivalModel, flow: Flow, offset_s: Array) -> Flow:
    """The next arrival of every stream.

    Args:
        key: PRNG key.
        model: The fitted model.
        flow: Where the streams stand, leaves [*streams].
        offset_s: [*streams] time of the week (Monday 00:00 is 0) at which the episode's clock was zero.
    """
    key_noise, key_tie = jax.random.split(key)
    again = jnp.where(flow.tied, model.again[1], model.again[0])
    tied = jax.random.uniform(key_tie, flow.clock_s.shape) < again
    noise = jax.random.normal(key_noise, (NUM_TERMS + 1, *flow.clock_s.shape))
    persistence = jnp.reshape(jnp.asarray(model.persistence), (-1,) + (1,) * flow.clock_s.ndim)
    slow = persistence * flow.slow + jnp.sqrt(1.0 - persistence**2) * noise[1:]
    amount = _amount(model, slow, noise[0])
    time_s = jnp.mod(offset_s + flow.clock_s, WEEK_S)
    later = flow.clock_s + gap_s(jnp.asarray(model.rate_per_s), time_s, amount)
    # another instant of the log
    later = jnp.maximum(later, rounded(model, flow.clock_s) + model.resolution_s)
    return Flow(jnp.where(tied, flow.clock_s, later), jnp.where(tied, flow.slow, slow), tied)


def _amount(model: ArrivalModel, slow: Array, noise: Array) -> Array:
    """The gap in operational time that slow terms [terms, *shape] and noise [*shape] stand for."""
    share = jnp.reshape(jnp.asarray(model.share), (-1,) + (1,) * noise.ndim)
    rest = jnp.sqrt(1.0 - jnp.sum(share))
    score = jnp.sum(jnp.sqrt(share) * slow, axis=0) + rest * noise
    place = jax.scipy.special.ndtr(score) * GRID_SIZE - 0.5
    grid = jnp.asarray(model.gap)
    below = jnp.clip(jnp.floor(place), 0, GRID_SIZE - 2).astype(jnp.int32)
    within = jnp.clip(place - below, 0.0, 1.0)
    return (1.0 - within) * jnp.take(grid, below) + within * jnp.take(grid, below + 1)


def gap_s(rate_per_s: Array, time_s: Array, amount: Array) -> Array:
    """How long it takes from `time_s` of the week until the integral of the rate has grown by `amount`; [*streams]."""
    ends = jnp.cumsum(rate_per_s) * HOUR_S
    hour = jnp.clip(jnp.floor(time_s / HOUR_S), 0, HOURS_A_WEEK - 1).astype(jnp.int32)
    rate = jnp.take(rate_per_s, hour)
    left = rate * ((hour + 1) * HOUR_S - time_s)
    beyond = jnp.take(ends, hour) + amount - left
    weeks = jnp.floor(beyond / ends[-1])
    rest = beyond - weeks * ends[-1]
    passed = ends.reshape((-1,) + (1,) * rest.ndim) <= rest[None]
    last = jnp.minimum(jnp.sum(passed, axis=0, dtype=jnp.int32), HOURS_A_WEEK - 1)
    there = jnp.take(rate_per_s, last)
    into = jnp.clip(rest - jnp.take(ends, last) + there * HOUR_S, 0.0, None) / jnp.where(
        there > 0.0, there, 1.0
    )
    crossing = weeks * WEEK_S + last * HOUR_S + jnp.minimum(into, HOUR_S) - time_s
    return jnp.where(amount < left, amount / jnp.where(rate > 0.0, rate, 1.0), jnp.maximum(crossing, 0.0))


def rounded(model: ArrivalModel, clock_s: Array) -> Array:
    """Instants as the log would have written them."""
    step = jnp.asarray(model.resolution_s)
    return jnp.where(step > 0.0, jnp.floor(clock_s / jnp.maximum(step, 1e-9)) * step, clock_s)


def draw_arrivals(key: Array, model: ArrivalModel, *, offset_s: float, length_s: float) -> np.ndarray:
    """Generated arrivals, seconds in [0, length_s) after `offset_s` of the week."""
    expected = float(np.max(model.rate_per_s)) * length_s
    num_steps = 1 << int(np.ceil(np.log2(max(64.0, expected / 4))))
    if is_dense := expected > MANY_ARRIVALS:
        num_steps = DENSE_STEPS
    begin_s = 0.0  # of the clock
    flow = flow_at_any_time(key, model, jnp.zeros(1))
    pieces: list[np.ndarray] = []
    while begin_s + float(flow.clock_s[0]) < length_s:
        offset = jnp.full(1, (offset_s + begin_s) % WEEK_S, jnp.float32)
        flow, times = _onward(jax.random.fold_in(key, len(pieces)), model, flow, offset, num_steps)
        pieces.append(begin_s + np.asarray(times, float)[:, 0])
        if is_dense:
            whole_s = jnp.floor(flow.clock_s)
            begin_s, flow = begin_s + float(whole_s[0]), flow._replace(clock_s=flow.clock_s - whole_s)
    every = np.concatenate(pieces)
    return every[every < length_s]


@partial(jax.jit, static_argnames="num_steps")
def _onward(
    key: Array, model: ArrivalModel, flow: Flow, offset_s: Array, num_steps: int
) -> tuple[Flow, Array]:
    """The next arrivals of every stream: where they stand then, and their instants [num_steps, *streams]."""

    def one(flow: Flow, key_step: Array) -> tuple[Flow, Array]:
        flow = next_arrival(key_step, model, flow, offset_s)
        return flow, rounded(model, flow.clock_s)

    return jax.lax.scan(one, flow, jax.random.split(key, num_steps))


def counts_of_hours(arrival_s: np.ndarray) -> np.ndarray:
    """[weekdays, hours] arrivals; those of parts of a log add up to those of all of it."""
    day = (arrival_s // DAY_S).astype(np.int64)
    hour = np.minimum((arrival_s % DAY_S / HOUR_S).astype(int), HOURS_A_DAY - 1)
    counts = np.zeros((DAYS_A_WEEK, HOURS_A_DAY))
    np.add.at(counts, ((day + 3) % DAYS_A_WEEK, hour), 1.0)
    return counts


def rates(counts: np.ndarray, days: np.ndarray) -> np.ndarray:
    """[hours of the week] arrivals a second, by `counts_of_hours` of these days (since 1970)."""
    exposure = np.bincount((days + 3) % DAYS_A_WEEK, minlength=DAYS_A_WEEK).astype(float)
    any_day = counts.sum(axis=0) / exposure.sum()
    found = np.zeros_like(counts)
    for kind in (WEEKEND, ~WEEKEND):
        of_kind = (counts[kind].sum(axis=0) + SHRINKAGE_DAYS * any_day) / (
            exposure[kind].sum() + SHRINKAGE_DAYS
        )
        found[kind] = (counts[kind] + SHRINKAGE_DAYS * of_kind) / (exposure[kind] + SHRINKAGE_DAYS)[:, None]
    return found.reshape(-1) / HOUR_S


def _operational_gaps(
    arrival_s: np.ndarray, rate_per_s: np.ndarray, days: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gaps in operational time, and for each which stretch of days without a break it lies in."""
    since = arrival_s - MONDAY_S
    ends = np.concatenate([[0.0], np.cumsum(rate_per_s) * HOUR_S])
    week, inside = np.floor(since / WEEK_S), since % WEEK_S
    hour = np.minimum((inside / HOUR_S).astype(int), HOURS_A_WEEK - 1)
    place = week * ends[-1] + ends[hour] + rate_per_s[hour] * (inside - hour * HOUR_S)
    day = (arrival_s // DAY_S).astype(np.int64)
    run = np.cumsum(np.diff(days, prepend=days[0]) > 1)[np.searchsorted(days, day)]
    joined = np.diff(run) == 0
    gap = np.where(np.diff(arrival_s) > 0.0, np.maximum(np.diff(place), SMALLEST), 0.0)
    return gap[joined], run[1:][joined]


def _again(apart: np.ndarray, run: np.ndarray) -> np.ndarray:
    """[2] share of the arrivals at the instant of the one before, of those that follow a gap and of the others."""
    next_one, joined = ~apart[1:], np.diff(run) == 0
    shares = [
        np.mean(next_one[joined & before]) if np.any(joined & before) else 0.0
        for before in (apart[:-1], ~apart[:-1])
    ]
    return np.minimum(shares, LARGEST_AGAIN)


def _scores(gap: np.ndarray) -> np.ndarray:
    """Normal scores of the gaps; those of equal gaps share their mean."""
    rank = np.empty(len(gap))
    rank[np.argsort(gap, kind="stable")] = np.arange(len(gap))
    score = ndtri((rank + 0.5) / len(gap))
    _, tie = np.unique(gap, return_inverse=True)
    return np.asarray((np.bincount(tie, score) / np.bincount(tie))[tie])


def _memory(score: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares and persistences by least squares on the autocorrelations of the scores.

    Scores of equal gaps (a log in whole seconds) stand for hidden ones that differ. With `v` the variance of the means,
    the covariance of the means is, to first order, `v^2` times that of the hidden scores.
    """
    from scipy.optimize import nnls

    near = {lag: order[lag:] - order[:-lag] == lag for lag in LAGS if lag < len(score) // 4}
    near = {lag: pair for lag, pair in near.items() if pair.any()}  # days with few arrivals have no long lags
    products = [float(np.mean((score[lag:] * score[:-lag])[pair])) for lag, pair in near.items()]
    lags, variance = np.array(list(near), int), max(float(np.mean(score**2)), _LEAST_VARIANCE)
    found = np.clip(np.array(products) / variance**2, -1.0, 1.0)
    best = (float("inf"), np.zeros(NUM_TERMS), np.zeros(NUM_TERMS))
    for persistence in combinations(PERSISTENCES, NUM_TERMS):
        share, error = nnls(np.array(persistence)[None] ** lags[:, None], found)
        if error < best[0] - 1e-9:
            best = (error, share / max(1.0, share.sum()), np.array(persistence))
    return best[1], best[2]
