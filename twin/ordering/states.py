"""The arrays of the ordering problem inside programs: a queue in order of arrival, a table of what runs, its users.

Times are whole ticks (`OrderingConfig.tick_s` seconds, int32) since the beginning of the episode, so that events of
one instant are seen to be of one instant however long the episode: float32 holds a week's seconds to .06 s only.
Processors are whole parts, `twin.ordering.machine.PARTS` to a processor, as in the replay in Python.
"""

from typing import Any, NamedTuple

from twin.contracts import Array

Leaf = Any
"""A leaf of a record: a JAX array inside programs, a NumPy array in windows cut from a log."""

NEVER = 2**30
"""The tick of what does not happen (34 years away, where a tick is a second)."""
LONGEST = 2**29
"""Longest time in ticks that a job may request or run; longer ones are taken to be this long."""


class JobRequests(NamedTuple):
    """Jobs as known to the scheduler; leaves [*batch]. Nothing here is known only later."""

    arrival: Leaf  # int32 ticks, before 0 for jobs that wait already
    processors: Leaf  # int32 parts, at least 1
    requested: Leaf  # int32 ticks, at least 1
    agent: Leaf  # int32, the submitting user; -1 if unknown. Agents that agree modulo `num_agents` share their history
    priority: Leaf  # int32, a standing order for `orders.by_priority`, lowest first; 0 where there is none


class Running(NamedTuple):
    """The table of what runs; leaves [running_size, *streams]. A row without processors is empty."""

    processors: Leaf  # int32 parts
    start: Leaf  # int32 ticks
    expected_end: Leaf  # int32 ticks: start + requested
    agent: Leaf  # int32
    order: Leaf  # int32: how many had started before


class Users(NamedTuple):
    """Statistics of every user's finished jobs, and what the user has in the system; leaves [num_agents, *streams]."""

    num_finished: Leaf  # float32
    ratio: Leaf  # float32: fading mean of run / requested time
    log_run: Leaf  # float32: fading mean of log(1 + run / time unit)
    haste: Leaf  # float32: fading mean of time unit / max(6 run, time unit)
    num_waiting: Leaf  # int32
    num_running: Leaf  # int32


class PoolState(NamedTuple):
    """The whole state of the bookkeeping; nothing in it is ahead of its time."""

    clock: Array  # [*streams] int32 ticks
    queue: JobRequests  # leaves [queue_size, *streams], in order of arrival; the first `num_waiting` rows hold jobs
    num_waiting: Array  # [*streams] int32
    running: Running
    free: Array  # [*streams] int32 parts
    users: Users
    num_started: Array  # [*streams] int32
    num_late: Array  # [*streams] int32: jobs that found the queue full and had to wait outside it
    num_blocked: Array  # [*streams] int32: looks at which a job fitted and the table of what runs was full
    week: Array  # [*streams] int32: ticks from Monday 00:00 to tick 0
    deciding: Array  # [*streams] bool: a decision is due


class PoolEvents(NamedTuple):
    """The ordering problem's `Outcome.observed_events`: the pool at the next decision, and what the time until then
    cost."""

    pool: PoolState
    outcome: "PoolOutcome"


class PoolOutcome(NamedTuple):
    """What came of a decision: what all jobs' waiting cost from this decision to the next; leaves [*batch] float32.

    Summed over an episode: the sum over jobs of (cost at the start - cost without any wait).
    """

    cost: Leaf  # of the kind `OrderingConfig.cost`
    wait_s: Leaf  # seconds that jobs waited, all jobs together
    num_started: Leaf  # jobs that started


class PoolDecisionInfo(NamedTuple):
    """What is known of a decision at once; leaves [seats, *streams]."""

    position: Leaf  # int32: the decision, a place in the queue
    agent: Leaf  # int32: of the chosen job
    fits: Leaf  # bool: it starts at once; else the machine is reserved for it
    wait_s: Leaf  # float32: how long it has waited


class PoolObservation(NamedTuple):
    """What a policy observes. Names, units and ranges: `twin.ordering.features`."""

    job: Leaf  # [job features, num_visible, seats, *streams]
    pool: Leaf  # [pool features, seats, *streams]
