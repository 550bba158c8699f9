"""Arrivals: the interface through which jobs come to the pool, replayed or generated."""

from collections.abc import Callable
from typing import NamedTuple

from twin.contracts import Array, PyTree, Streams
from twin.ordering.states import JobRequests, Running, Users


class Coming(NamedTuple):
    """The next job to arrive; leaves [*streams]."""

    request: JobRequests  # `arrival` is NEVER where no job will come any more (or: not before a running job has ended)
    run: Array  # int32 ticks, at least 1: the true run time, private until the job ends
    number: Array  # int32: under which its start is written down


class Begun(NamedTuple):
    """How an episode begins, at tick 0: what runs, what waits, and what is known of the users."""

    running: Running  # leaves [any number of rows up to running_size, *streams], starts at or before 0
    end: Array  # [rows, *streams] int32: true ends of what runs
    users: Users  # leaves [num_agents, *streams]; num_waiting and num_running are counted anew
    week: Array  # [*streams] int32: ticks from Monday 00:00 to tick 0


class Ended(NamedTuple):
    """A job that has just ended; leaves [*streams]."""

    happened: Array  # bool: else the rest means nothing
    clock: Array  # int32 ticks
    agent: Array  # int32
    number: Array  # int32: as it came, -1 if it ran already at tick 0


class JobArrivals(NamedTuple):
    """Arriving jobs: pure functions of a private state.

    Jobs are taken one by one, in order of arrival; jobs that wait already at tick 0 come first, with arrivals before 0.
    An arrival that lies in the past (its user's job ended just now) is taken as of now.
    """

    num_jobs: int  # length of the list of starts that an episode keeps (0: none)
    init: Callable[[Array, Streams], tuple[PyTree, Begun]]  # (key, streams)
    peek: Callable[[PyTree], Coming]  # private -> the next job
    # (key, private, taken [*streams] bool: the next job has arrived, ended) -> private; called after every event
    move: Callable[[Array, PyTree, Array, Ended], PyTree]
    exhausted: Callable[[PyTree], Array]  # private -> [*streams] bool: no job will ever come any more
