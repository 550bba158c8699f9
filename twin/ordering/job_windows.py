"""Windows of jobs as arrays, `W` at a time: the arrivals of replay.

A window begins at tick 0 with what ran and waited at that moment and with the users' history up to then.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from logs_schema.calendar import MONDAY_S, WEEK_S
from twin.contracts import Array, Streams
from twin.ordering.arrivals import Begun, Coming, Ended, JobArrivals
from twin.ordering.config import OrderingConfig
from twin.ordering.machine import PARTS
from twin.ordering.queue import waiting_of
from twin.ordering.rows import get
from twin.ordering.rules import Rule
from twin.ordering.states import LONGEST, NEVER, JobRequests, Leaf, Running, Users
from twin.ordering.types import Jobs, OrderingError, Pool
from twin.ordering.users import histories
from twin.ordering.windows import running_at
from twin.placement.windows import choose_windows, take


class JobWindows(NamedTuple):
    """`W` windows of at most `N` jobs; all times in ticks since the window began."""

    requests: JobRequests  # leaves [N, W], in order of arrival; below 0: waits already
    run: Leaf  # [N, W] int32 ticks: the true run times
    length: Leaf  # [W] int32: jobs in the window; the rest is padding
    running: Running  # leaves [rows, W]: what runs when the window begins
    end: Leaf  # [rows, W] int32 ticks: when it will end
    users: Users  # leaves [num_agents, W]
    week: Leaf  # [W] int32: ticks from Monday 00:00 to the beginning


def standing_order(jobs: Jobs, rule: Rule) -> np.ndarray:
    """[jobs] int32 the place of every job in a rule's order, ties in order of arrival; of rules that do not age."""
    score = rule.score(waiting_of(jobs), 0.0)
    place = np.empty(len(score), np.int32)
    place[np.argsort(score, kind="stable")] = np.arange(len(score))
    return place


def fitting_tick_s(jobs: Jobs) -> float:
    """The longest of 1, 0.1, 0.01 and 0.001 s of which all times of the jobs are whole numbers; 0.001 if none is.

    A log rounded to longer ticks is another log: on one of hundredths, rounded to seconds, a queue took another way.
    """
    for digits in range(3):
        whole = [np.round(times, digits) for times in (jobs.arrival_s, jobs.requested_s, jobs.run_s)]
        given = (jobs.arrival_s, jobs.requested_s, jobs.run_s)
        if all(np.allclose(one, other, rtol=0.0, atol=1e-6) for one, other in zip(whole, given, strict=True)):
            return float(10.0**-digits)
    return 0.001


def cut_job_windows(
    jobs: Jobs,
    pool: Pool,
    config: OrderingConfig,
    start_s: np.ndarray,
    spans_s: np.ndarray,
    *,
    priority: np.ndarray | None = None,
    num_jobs: int = 0,
) -> tuple[JobWindows, np.ndarray]:
    """Cuts windows out of jobs with a known schedule, which gives what runs and waits when each begins.

    Args:
        jobs: All jobs, those before the windows too: they are the users' history.
        pool: The processors; jobs that are larger are left out.
        config: Sizes and the tick.
        start_s: [jobs] when each job started, for example in a replay; NaN if never.
        spans_s: [W, 2] beginnings and ends; jobs that arrive in between belong, and those that still wait.
        priority: [jobs] int32, a standing order for `orders.by_priority`, lowest first; see `standing_order`.
        num_jobs: Least length `N` of the arrays, so that several cuts can have the same shapes.

    Returns:
        The windows, and for every entry [N, W] its place among `jobs`, -1 for padding.

    Raises:
        OrderingError: There is no window, one is empty, what runs at its beginning exceeds the pool or the table, or a
            window is too long for its ticks.
    """
    if not len(spans_s):
        raise OrderingError("no window is named", where="spans_s", advice="name at least one span")
    parts = np.maximum(np.rint(jobs.processors * PARTS), 1).astype(np.int64)
    fitting = parts <= round(pool.processors * PARTS)
    members = [_members(jobs, fitting, start_s, begin, end) for begin, end in spans_s]
    place = np.full((max(num_jobs, *(len(index) for index in members)), len(members)), -1)
    for window, index in enumerate(members):
        place[: len(index), window] = index
    begin_s = np.asarray(spans_s, float)[:, 0]

    def ticks(values_s: np.ndarray) -> np.ndarray:
        whole = np.floor(values_s / config.tick_s + 0.5)
        return np.clip(whole, -LONGEST, LONGEST).astype(np.int32)

    def of_jobs(values: np.ndarray) -> np.ndarray:
        return np.where(place >= 0, values[place], 0).astype(np.int32)

    _check_length(np.where(place >= 0, jobs.arrival_s[place] - begin_s[None], 0.0), config)
    standing = np.zeros(len(parts), np.int32) if priority is None else priority
    requests = JobRequests(
        arrival=np.where(place >= 0, ticks(jobs.arrival_s[place] - begin_s[None]), NEVER).astype(np.int32),
        processors=of_jobs(parts),
        requested=np.maximum(of_jobs(ticks(jobs.requested_s)), 1),
        agent=of_jobs(jobs.agent),
        priority=of_jobs(standing),
    )
    running, end = _running(jobs, pool, config, parts, start_s, begin_s, ticks)
    origin_s = jobs.origin_us / 1e6 + begin_s
    windows = JobWindows(
        requests,
        np.maximum(of_jobs(ticks(jobs.run_s)), 1),
        np.sum(place >= 0, axis=0).astype(np.int32),
        running,
        end,
        histories(jobs, config, start_s, begin_s),
        ticks((origin_s - MONDAY_S) % WEEK_S),
    )
    return windows, place


def _check_length(since_begin_s: np.ndarray, config: OrderingConfig) -> None:
    """Twice as far back as ahead: a job that has starved for weeks may still wait."""
    farthest_s = max(np.max(since_begin_s), -np.min(since_begin_s) / 2.0)
    if farthest_s > LONGEST // 2 * config.tick_s:
        raise OrderingError(
            f"a job arrives {farthest_s:,.0f} s from the beginning of its window (half of that if before it)",
            where=f"ticks of {config.tick_s:g} s",
            allowed=f"at most {LONGEST // 2 * config.tick_s:,.0f} s",
            advice="cut shorter windows, or choose a longer OrderingConfig.tick_s",
        )


def _members(
    jobs: Jobs, fitting: np.ndarray, start_s: np.ndarray, begin_s: float, end_s: float
) -> np.ndarray:
    """The jobs of a span: those that wait at its beginning and those that arrive in it, in order of arrival."""
    waits = (jobs.arrival_s < begin_s) & (start_s >= begin_s)
    arrives = (jobs.arrival_s >= begin_s) & (jobs.arrival_s < end_s)
    index = np.flatnonzero(fitting & (waits | arrives))
    if not len(index):
        raise OrderingError(
            "no job waits or arrives in a window",
            where=f"from {begin_s:,.0f} to {end_s:,.0f} s after the first arrival",
            advice="choose spans in which the log has jobs",
        )
    return index


def _running(
    jobs: Jobs,
    pool: Pool,
    config: OrderingConfig,
    parts: np.ndarray,
    start_s: np.ndarray,
    begin_s: np.ndarray,
    ticks: Callable[[np.ndarray], np.ndarray],
) -> tuple[Running, np.ndarray]:
    """What runs when every window begins: leaves [running_size, W], and true ends [running_size, W]."""
    shape = (config.running_size, len(begin_s))
    running = Running(*(np.zeros(shape, np.int32) for _ in Running._fields))
    end = np.full(shape, NEVER, np.int32)
    for window, begin in enumerate(begin_s):
        runs = running_at(jobs, start_s, begin)
        if len(runs) > config.running_size or parts[runs].sum() > round(pool.processors * PARTS):
            raise OrderingError(
                f"{len(runs):,} jobs run on {jobs.processors[runs].sum():,g} processors when a window begins",
                where=f"window {window}, {begin:,.0f} s after the first arrival",
                allowed=f"{config.running_size:,} jobs on {pool.processors:,g} processors",
                advice="take the schedule of a replay on this pool, or a larger running_size",
            )
        rows = slice(0, len(runs))
        started = ticks(start_s[runs] - begin)
        running.processors[rows, window] = parts[runs]
        running.start[rows, window] = started
        running.expected_end[rows, window] = started + np.maximum(ticks(jobs.requested_s[runs]), 1)
        running.agent[rows, window] = jobs.agent[runs]
        running.order[rows, window] = np.arange(len(runs))
        end[rows, window] = np.maximum(started + np.maximum(ticks(jobs.run_s[runs]), 1), 0)
    return running, end


class _JobWalk(NamedTuple):
    """A stream's way through its window; leaves [N, *streams] and [*streams]."""

    requests: JobRequests
    run: Array
    length: Array
    position: Array


def replayed_jobs(windows: JobWindows) -> JobArrivals:
    """Arrivals from history: every stream walks through one window, jobs and run times as they are.

    With as many streams as windows each has its own; otherwise windows are drawn with replacement at reset.
    """
    num_jobs, num_windows = windows.run.shape

    def init(key: Array, streams: Streams) -> tuple[_JobWalk, Begun]:
        own = JobWindows(*take(windows, choose_windows(key, num_windows, streams)))
        walk = _JobWalk(own.requests, own.run, own.length, jnp.zeros(streams, jnp.int32))
        return walk, Begun(own.running, own.end, own.users, own.week)

    def peek(walk: _JobWalk) -> Coming:
        request = JobRequests(*(get(leaf, walk.position) for leaf in walk.requests))
        request = request._replace(arrival=jnp.where(exhausted(walk), NEVER, request.arrival))
        return Coming(request, get(walk.run, walk.position), walk.position)

    def move(_key: Array, walk: _JobWalk, taken: Array, _ended: Ended) -> _JobWalk:
        return walk._replace(position=walk.position + taken.astype(jnp.int32))

    def exhausted(walk: _JobWalk) -> Array:
        return walk.position >= walk.length

    return JobArrivals(num_jobs, init, peek, move, exhausted)
