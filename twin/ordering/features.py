"""What a policy observes of a pool, and what every number means: only what is known when the scheduler decides.

All are of order one without any fitted normalisation: shares of the pool, flags, logarithms of counts, and durations as
log(1 + time / time unit), one wait in days besides. The true run time is never among them; statistics of users'
finished jobs are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.calendar import DAY_S, WEEK_S
from twin.contracts import Array
from twin.ordering.config import OrderingConfig
from twin.ordering.machine import PARTS
from twin.ordering.rows import numbers, take_rows
from twin.ordering.starting import reservation
from twin.ordering.states import JobRequests, PoolObservation, PoolState, Users
from twin.ordering.types import Pool
from twin.ordering.users import user_row
from twin.placement.features import Feature

TWO_PI = 2.0 * np.pi
HORIZONS = (0.5, 2.0, 8.0, 32.0)
"""How far ahead the free processors are expected, in time units."""

JOB_FEATURES = (
    Feature("wait", "log1p(time units)", "how long the job has waited"),
    Feature("requested", "log1p(time units)", "run time asked for"),
    Feature("predicted", "log1p(time units)", "run time asked for, times the user's mean of run / requested"),
    Feature(
        "user_run", "log1p(time units)", "the user's mean run time (of the logarithm); 0 without history"
    ),
    Feature("user_haste", "1", "the user's mean of time unit / max(6 run, time unit); 0 without history"),
    Feature("share", "share", "processors asked for, as a share of the pool"),
    Feature("width", "log1p / log1p(pool)", "processors asked for, from 0 to 1 on a logarithmic scale"),
    Feature("area", "log1p(time units)", "requested time of the whole pool that the job would fill"),
    Feature("slowdown", "log", "bounded slowdown if it started now and ran as requested"),
    Feature("predicted_slowdown", "log", "bounded slowdown if it started now and ran as predicted"),
    Feature("fits", "flag", "it would start if chosen now"),
    *(
        Feature(f"fits_after_{horizon:g}", "flag", f"expected to fit {horizon:g} time units from now")
        for horizon in HORIZONS
    ),
    Feature("could_backfill", "flag", "fits and does not delay the longest waiting job, by requested times"),
    Feature("known_user", "1 - 1 / (1 + count)", "how many of the user's jobs have finished"),
    Feature("user_ratio", "1", "the user's mean of run / requested; 1 without history"),
    Feature("user_waiting", "log1p(count) / 4", "jobs that the user has waiting"),
    Feature("user_running", "log1p(count) / 4", "jobs that the user has running"),
    Feature("place", "share", "place in the queue, of the visible places"),
    Feature("waited", "days", "how long the job has waited: a weight on it is a rate at which jobs age"),
)
"""Features of a waiting job, in the order of axis 0 of `PoolObservation.job`; 0 in places without a job."""

POOL_FEATURES = (
    Feature("free", "share", "free processors"),
    *(
        Feature(f"free_after_{horizon:g}", "share", f"expected free {horizon:g} time units from now")
        for horizon in HORIZONS
    ),
    Feature("num_waiting", "log1p(count) / 4", "jobs that wait"),
    Feature("unseen", "share", "waiting jobs beyond the visible ones, of the queue's places"),
    Feature("num_running", "log1p(count) / 4", "jobs that run"),
    Feature(
        "waiting_work", "log1p(time units)", "requested time of the whole pool that the queue would fill"
    ),
    Feature("running_work", "log1p(time units)", "the same of what is left of running jobs"),
    Feature("oldest_wait", "log1p(time units)", "how long the longest waiting job has waited"),
    Feature("reservation", "log1p(time units)", "until the longest waiting job is expected to fit"),
    Feature("day_sine", "1", "sine of the time of day"),
    Feature("day_cosine", "1", "cosine of the time of day"),
    Feature("week_sine", "1", "sine of the time of week"),
    Feature("week_cosine", "1", "cosine of the time of week"),
)
"""Features of the pool, in the order of axis 0 of `PoolObservation.pool`."""

NUM_GLOBAL = len(POOL_FEATURES) + 2 * len(JOB_FEATURES)
"""Features of a critic."""


def observe(pool: Pool, config: OrderingConfig, state: PoolState) -> PoolObservation:
    """What the seat observes: [job features, num_visible, 1, *streams] and [pool features, 1, *streams]."""
    job, whole = _both(pool, config, state)
    return PoolObservation(job[:, :, None], whole[:, None])


def observe_global(pool: Pool, config: OrderingConfig, state: PoolState) -> Array:
    """[NUM_GLOBAL, *streams]: the pool, and the visible jobs' features in total (by `num_visible`) and on average."""
    job, whole = _both(pool, config, state)
    total = jnp.sum(job, axis=1)
    count = jnp.minimum(state.num_waiting, config.num_visible).astype(jnp.float32)
    return jnp.concatenate([whole, total / config.num_visible, total / jnp.maximum(count, 1.0)[None]])


class Packed(NamedTuple):
    """The jobs that wait in all streams, side by side."""

    job: Array  # [job features, jobs]
    pool: Array  # [pool features, jobs]: of each job's stream
    place: Array  # [jobs] int32 in the stream's queue; -1 where there is no job
    stream: Array  # [jobs] int32


def observe_packed(
    pool: Pool, config: OrderingConfig, state: PoolState, num_held: Array, num_jobs: int
) -> Packed:
    """What the seat observes of the places that hold a job, and of no others: most queues are short.

    Args:
        pool: The processors.
        config: The problem's.
        state: The pools, with one axis of streams.
        num_held: [streams] int32: how many places of each to look at, from the first on, at most `num_visible`.
        num_jobs: How many there are at most in total.
    """
    upto = jnp.cumsum(num_held)  # the jobs of a stream stand together, in order of arrival
    job = jnp.arange(num_jobs, dtype=jnp.int32)
    stream = jnp.sum(job[:, None] >= upto[None], axis=1, dtype=jnp.int32)
    is_job, stream = stream < len(num_held), jnp.minimum(stream, len(num_held) - 1)
    place = jnp.clip(job - (upto - num_held)[stream], 0, config.num_visible - 1)
    free_after, shadow, extra = _free_capacity(pool, config, state)
    row = user_row(config.num_agents, state.queue.agent[place, stream])
    seen = _Seen(
        state.queue.arrival[place, stream],
        state.queue.processors[place, stream],
        state.queue.requested[place, stream],
        place,
        state.clock[stream],
        state.free[stream],
        [free[stream] for free in free_after],
        shadow[stream],
        extra[stream],
        row >= 0,
        Users(*(leaf[jnp.maximum(row, 0), stream] for leaf in state.users)),
    )
    whole = _of_pool(pool, config, state, free_after, shadow)
    return Packed(_of_jobs(pool, config, seen), whole[:, stream], jnp.where(is_job, place, -1), stream)


class _Seen(NamedTuple):
    """What features of jobs are made of; leaves [*jobs], or what goes with them by broadcasting."""

    arrival: Array
    processors: Array
    requested: Array
    place: Array
    clock: Array
    free: Array
    free_after: list[Array]
    shadow: Array
    extra: Array
    known: Array  # bool: the user is known
    users: Users  # of the job's own user


def _both(pool: Pool, config: OrderingConfig, state: PoolState) -> tuple[Array, Array]:
    """[job features, num_visible, *streams] and [pool features, *streams]."""
    queue: JobRequests = jax.tree.map(lambda leaf: leaf[: config.num_visible], state.queue)
    free_after, shadow, extra = _free_capacity(pool, config, state)
    row = user_row(config.num_agents, queue.agent)
    place = numbers(config.num_visible, state.clock)
    seen = _Seen(
        queue.arrival,
        queue.processors,
        queue.requested,
        jnp.broadcast_to(place, queue.arrival.shape),
        state.clock[None],
        state.free[None],
        [free[None] for free in free_after],
        shadow[None],
        extra[None],
        row >= 0,
        Users(*(take_rows(leaf, row) for leaf in state.users)),
    )
    job = jnp.where((place < state.num_waiting[None])[None], _of_jobs(pool, config, seen), 0.0)
    return job, _of_pool(pool, config, state, free_after, shadow)


def _free_capacity(pool: Pool, config: OrderingConfig, state: PoolState) -> tuple[list[Array], Array, Array]:
    """Parts free after every horizon; when the longest waiting job will fit, and what is left beside it then."""
    needed = jnp.minimum(state.queue.processors[0], round(pool.processors * PARTS))
    return (_free_after(config, state), *reservation(state, needed, state.num_waiting > 0))


def _squash(config: OrderingConfig, ticks: Array) -> Array:
    """log(1 + time / time unit), at least 0."""
    return jnp.log(1.0 + _units(config, ticks))


def _units(config: OrderingConfig, ticks: Array) -> Array:
    return jnp.maximum(ticks, 0).astype(jnp.float32) * (config.tick_s / config.time_unit_s)


def _free_after(config: OrderingConfig, state: PoolState) -> list[Array]:
    """[*streams] parts for each horizon: what is free if all running jobs end as requested."""
    held, ends = state.running.processors, state.running.expected_end

    def by(horizon: float) -> Array:
        instant = state.clock + round(horizon * config.time_unit_s / config.tick_s)
        return state.free + jnp.sum(jnp.where(ends <= instant[None], held, 0), axis=0, dtype=jnp.int32)

    return [by(horizon) for horizon in HORIZONS]


def _of_jobs(pool: Pool, config: OrderingConfig, seen: _Seen) -> Array:
    """[job features, *jobs]."""
    clock = seen.clock

    def of_user(leaf: Array) -> Array:
        return jnp.where(seen.known, leaf.astype(jnp.float32), 0.0)

    num_finished = of_user(seen.users.num_finished)
    has_history = num_finished > 0
    ratio = jnp.where(has_history, of_user(seen.users.ratio), 1.0)
    wait_s = (clock - seen.arrival).astype(jnp.float32) * config.tick_s
    requested_s = seen.requested.astype(jnp.float32) * config.tick_s
    processors = seen.processors.astype(jnp.float32) / PARTS
    share, requested = processors / pool.processors, _units(config, seen.requested)
    fits = seen.processors <= seen.free
    in_time = (clock + seen.requested <= seen.shadow) | (seen.processors <= seen.extra)
    rows = [
        jnp.log(1.0 + wait_s / config.time_unit_s),
        jnp.log(1.0 + requested),
        jnp.log(1.0 + requested * ratio),
        jnp.where(has_history, of_user(seen.users.log_run), 0.0),
        jnp.where(has_history, of_user(seen.users.haste), 0.0),
        share,
        jnp.log(1.0 + processors) / np.log1p(pool.processors),
        jnp.log(1.0 + share * requested),
        _slowdown(config, wait_s, requested_s),
        _slowdown(config, wait_s, requested_s * ratio),
        fits,
        *(seen.processors <= free for free in seen.free_after),
        fits & (in_time | (seen.place == 0)),
        1.0 - 1.0 / (1.0 + num_finished),
        ratio,
        jnp.log(1.0 + of_user(seen.users.num_waiting)) / 4.0,
        jnp.log(1.0 + of_user(seen.users.num_running)) / 4.0,
        seen.place.astype(jnp.float32) / config.num_visible,
        wait_s / DAY_S,
    ]
    return jnp.stack([values.astype(jnp.float32) for values in rows])


def _slowdown(config: OrderingConfig, wait_s: Array, run_s: Array) -> Array:
    """log(max(1, (wait + run) / max(run, floor)))."""
    return jnp.log(jnp.maximum((wait_s + run_s) / jnp.maximum(run_s, config.slowdown_floor_s), 1.0))


def _of_pool(
    pool: Pool, config: OrderingConfig, state: PoolState, free_after: list[Array], shadow: Array
) -> Array:
    size = pool.processors * PARTS
    queue, running, clock = state.queue, state.running, state.clock
    waiting = numbers(config.queue_size, clock) < state.num_waiting[None]
    unit = config.tick_s / config.time_unit_s
    requested = jnp.where(waiting, queue.requested.astype(jnp.float32) * unit, 0.0)
    waiting_work = jnp.sum(requested * queue.processors.astype(jnp.float32), axis=0) / size
    left = _units(config, running.expected_end - clock[None])
    running_work = jnp.sum(left * running.processors.astype(jnp.float32), axis=0) / size
    any_waits = state.num_waiting > 0
    num_running = jnp.sum(running.processors > 0, axis=0).astype(jnp.float32)
    unseen = jnp.maximum(state.num_waiting - config.num_visible, 0).astype(jnp.float32)
    rows = [
        state.free.astype(jnp.float32) / size,
        *(free.astype(jnp.float32) / size for free in free_after),
        jnp.log(1.0 + state.num_waiting.astype(jnp.float32)) / 4.0,
        unseen / config.queue_size,
        jnp.log(1.0 + num_running) / 4.0,
        jnp.log(1.0 + waiting_work),
        jnp.log(1.0 + running_work),
        jnp.where(any_waits, _squash(config, clock - queue.arrival[0]), 0.0),
        jnp.where(any_waits, _squash(config, shadow - clock), 0.0),
        *_of_time(config, state),
    ]
    return jnp.stack(rows)


def _of_time(config: OrderingConfig, state: PoolState) -> list[Array]:
    """Sine and cosine of the time of day and of week."""
    turns = []
    for period_s in (DAY_S, WEEK_S):
        period = round(period_s / config.tick_s)
        into = (state.clock % period + state.week % period) % period
        angle = into.astype(jnp.float32) * (TWO_PI / period)
        turns += [jnp.sin(angle), jnp.cos(angle)]
    return turns
