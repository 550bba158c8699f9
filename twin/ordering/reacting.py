"""Users who wait for their results: a job is sent some time after another one of theirs has ended, whenever that is.

Fixed arrivals punish and reward a schedule too much: in truth, users who wait longer send their next jobs later. Here a
job depends on the user's latest job that had ended when it was sent, if that was at most `LONGEST_THINK_S` before: then
it arrives one think time after that job ends, under any policy. All others keep their arrivals.

Source: Zakay and Feitelson 2014, "Preserving user behavior characteristics in trace-based simulation of parallel job
scheduling", MASCOTS, simplified to one dependency a job; sessions as in Shmueli and Feitelson 2009, "On simulation and
design of parallel-systems schedulers: are we doing the right thing?", TPDS. Fields 17 and 18 of the Standard Workload
Format hold the same where a log has them.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Streams
from twin.ordering.arrivals import Begun, Coming, Ended, JobArrivals
from twin.ordering.config import OrderingConfig
from twin.ordering.job_windows import JobWindows
from twin.ordering.rows import first_row, get, numbers, put
from twin.ordering.states import NEVER, JobRequests, Leaf
from twin.ordering.types import Jobs
from twin.placement.windows import choose_windows, take

LONGEST_THINK_S = 1200.0
"""Longest think time within a session."""


class Thinking(NamedTuple):
    """What jobs wait for; leaves [N, W], beside `JobWindows`."""

    after: Leaf  # int32: place in the window of the job that must have ended; -1 where the arrival is fixed
    think: Leaf  # int32 ticks, at least 1: time from that end to the arrival


def sessions(jobs: Jobs, *, longest_think_s: float = LONGEST_THINK_S) -> tuple[np.ndarray, np.ndarray]:
    """Which job every job waited for in the log, by its own starts and run times.

    Args:
        jobs: The jobs of the log; what has no agent or no logged start waits for nothing and is waited for by none.
        longest_think_s: Longest time from an end to the next job of a session.

    Returns:
        after [jobs] int: the user's latest job that had ended; -1 where there is none.
        think_s [jobs]: the time from its end to the arrival; 0 where there is none.
    """
    after, think_s = np.full(len(jobs.arrival_s), -1), np.zeros(len(jobs.arrival_s))
    end_s = jobs.logged_start_s + jobs.run_s
    for agent in np.unique(jobs.agent[jobs.agent >= 0]):
        own = np.flatnonzero(jobs.agent == agent)
        ended = own[~np.isnan(end_s[own])]
        ended = ended[np.argsort(end_s[ended], kind="stable")]
        latest = np.searchsorted(end_s[ended], jobs.arrival_s[own], side="right") - 1
        waits = latest >= 0
        job, other = own[waits], ended[latest[waits]]
        think = jobs.arrival_s[job] - end_s[other]
        soon = think <= longest_think_s
        after[job[soon]], think_s[job[soon]] = other[soon], think[soon]
    return after, think_s


def cut_thinking(
    place: np.ndarray, windows: JobWindows, sent: tuple[np.ndarray, np.ndarray], config: OrderingConfig
) -> Thinking:
    """What the jobs of windows wait for.

    Args:
        place: [N, W] places of the windows' jobs in the log, from `cut_job_windows`.
        windows: The windows.
        sent: From `sessions` of the log.
        config: For the tick.

    Returns:
        The dependencies within each window. Jobs that wait already when it begins, and jobs that waited for one that
        is not in the window, keep their arrivals.
    """
    after_job, think_s = sent
    after, think = np.full(place.shape, -1, np.int32), np.ones(place.shape, np.int32)
    for window in range(place.shape[1]):
        index = place[place[:, window] >= 0, window]
        rows = slice(0, len(index))
        where = np.searchsorted(index, after_job[index])
        inside = np.minimum(where, len(index) - 1)
        found = (after_job[index] >= 0) & (index[inside] == after_job[index])
        found &= np.asarray(windows.requests.arrival)[rows, window] >= 0
        after[rows, window] = np.where(found, inside, -1)
        ticks = np.floor(think_s[index] / config.tick_s + 0.5)
        think[rows, window] = np.where(found, np.maximum(ticks, 1), 1)
    return Thinking(after, think)


class _Waiting(NamedTuple):
    """A stream's jobs; leaves [N, *streams] and [*streams]."""

    windows: JobWindows
    thinking: Thinking
    arrival: Array  # [N, *streams] int32 ticks: NEVER once it has come, and while it waits for another job
    num_come: Array


def reacting_jobs(windows: JobWindows, thinking: Thinking) -> JobArrivals:
    """Arrivals of users who react: as `replayed_jobs`, but jobs that waited for another one wait for it again."""
    num_jobs, num_windows = windows.run.shape

    def init(key: Array, streams: Streams) -> tuple[_Waiting, Begun]:
        window = choose_windows(key, num_windows, streams)
        own, depends = JobWindows(*take(windows, window)), Thinking(*take(thinking, window))
        here = numbers(num_jobs, own.length) < own.length[None]
        arrival = jnp.where(here & (depends.after < 0), own.requests.arrival, NEVER)
        begun = Begun(own.running, own.end, own.users, own.week)
        return _Waiting(own, depends, arrival, jnp.zeros(streams, jnp.int32)), begun

    def next_job(private: _Waiting) -> tuple[Array, Array]:
        earliest = jnp.min(private.arrival, axis=0)
        return earliest, first_row(private.arrival == earliest[None])

    def peek(private: _Waiting) -> Coming:
        earliest, row = next_job(private)
        request = JobRequests(*(get(leaf, row) for leaf in private.windows.requests))
        return Coming(request._replace(arrival=earliest), get(private.windows.run, row), row)

    def move(_key: Array, private: _Waiting, taken: Array, ended: Ended) -> _Waiting:
        _, row = next_job(private)
        arrival = put(private.arrival, jnp.where(taken, row, -1), jnp.int32(NEVER))
        number = jnp.where(ended.happened & (ended.number >= 0), ended.number, num_jobs)
        sends = private.thinking.after == number[None]
        arrival = jnp.where(sends, ended.clock[None] + private.thinking.think, arrival)
        return private._replace(arrival=arrival, num_come=private.num_come + taken.astype(jnp.int32))

    def exhausted(private: _Waiting) -> Array:
        return private.num_come >= private.windows.length

    return JobArrivals(num_jobs, init, peek, move, exhausted)
