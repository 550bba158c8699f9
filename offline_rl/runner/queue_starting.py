"""Which waiting jobs start now: taken in an order until one does not fit, then, with EASY, what fits before it.

A job larger than the pool never starts, and delays no other job.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from offline_rl.runner import queue_rules
from offline_rl.runner.queue_descriptions import RunningJob, UserPast, WaitingJob

PARTS = 1000
"""Of a processor."""
Next = Callable[[Sequence[int], Sequence[RunningJob]], int]
"""The places of the jobs left, in order, and what runs -> which of those places is next, as its index among them.

It is asked again only after the job that it named last has started."""


def starting(
    setting: Mapping[str, Any],
    following: Next,
    waiting: Sequence[WaitingJob],
    running: Sequence[RunningJob],
    users: Mapping[str, UserPast],
    clock_s: float,
) -> list[int]:
    """The places in `waiting` of all jobs that start now, in the order in which they do.

    Args:
        setting: Of a contract: the pool, and the order of backfilling.
        following: Which job is next.
        waiting, running, users, clock_s: As `QueuePolicy.decide`.
    """
    size = parts_of(setting["processors"])
    never = set(too_large(setting, waiting))
    left = [place for place in range(len(waiting)) if place not in never]
    held, started = list(running), []
    free = size - sum(parts_of(one.processors) for one in held)
    while left and free > 0:  # more may run than the pool of the contract has: then nothing starts
        chosen = following(left, held)
        job = waiting[left[chosen]]
        if parts_of(job.processors) > free:
            break
        free -= parts_of(job.processors)
        held.append(RunningJob(job.processors, clock_s + _expected_s(job, users, setting), job.user))
        started.append(left.pop(chosen))
    if left and free > 0 and setting["easy"]:
        started += _filling(setting, left.pop(chosen), left, waiting, held, users, clock_s)
    return started


def in_order(ranked: Callable[[Sequence[int]], np.ndarray]) -> Next:
    """Who is next where no job's place before another depends on a third: the order is asked for once.

    Args:
        ranked: The places of the jobs left -> which goes first, which then, as indices among them.
    """
    order: Iterator[int] | None = None

    def following(left: Sequence[int], _: Sequence[RunningJob]) -> int:
        nonlocal order
        if order is None:
            order = iter([left[one] for one in ranked(left).tolist()])
        return bisect_left(left, next(order))

    return following


def in_order_of_rule(
    setting: Mapping[str, Any], waiting: Sequence[WaitingJob], users: Mapping[str, UserPast], clock_s: float
) -> Next:
    """Who is next under the rule of a setting."""

    def ranked(left: Sequence[int]) -> np.ndarray:
        jobs = rule_inputs([waiting[place] for place in left], users, clock_s, setting)
        return np.argsort(queue_rules.places(setting, jobs))

    return in_order(ranked)


def too_large(setting: Mapping[str, Any], waiting: Sequence[WaitingJob]) -> list[int]:
    """The places in `waiting` of the jobs that request more processors than the pool of a setting has."""
    size = parts_of(setting["processors"])
    return [place for place, job in enumerate(waiting) if parts_of(job.processors) > size]


def _filling(
    setting: Mapping[str, Any],
    head: int,
    behind: Sequence[int],
    waiting: Sequence[WaitingJob],
    held: Sequence[RunningJob],
    users: Mapping[str, UserPast],
    clock_s: float,
) -> list[int]:
    """The places among `behind` that start beside the head's reservation."""
    jobs = [waiting[place] for place in behind]
    free, shadow_s, extra = reservation(parts_of(waiting[head].processors), held, clock_s, setting)
    score = queue_rules.backfilling(setting, rule_inputs(jobs, users, clock_s, setting))
    found = []
    for one in np.argsort(score, kind="stable").tolist():
        width = parts_of(jobs[one].processors)
        late = clock_s + _expected_s(jobs[one], users, setting) > shadow_s
        if width > (min(free, extra) if late else free):
            continue
        extra -= width if late else 0
        free -= width
        found.append(behind[one])
    return found


def reservation(
    needed: int, running: Sequence[RunningJob], clock_s: float, setting: Mapping[str, Any]
) -> tuple[int, float, int]:
    """Parts free now, when `needed` of them will be, and what is left beside them then."""
    held = np.array([parts_of(one.processors) for one in running], np.int64)
    ends_s = np.array([max(one.expected_end_s, clock_s) for one in running])
    free = parts_of(setting["processors"]) - int(held.sum())
    by_end = np.argsort(ends_s)
    instants_s = np.append(clock_s, ends_s[by_end])
    given_back = np.append(0, np.cumsum(held[by_end]))  # by so many of the jobs, the first to end first
    later = free + given_back[np.searchsorted(ends_s[by_end], instants_s, side="right")]
    first = int(np.argmax(later >= needed))  # it comes to that: in the end the whole pool is free
    return free, float(instants_s[first]), int(later[first]) - needed


def rule_inputs(
    jobs: Sequence[WaitingJob], users: Mapping[str, UserPast], clock_s: float, setting: Mapping[str, Any]
) -> queue_rules.Jobs:
    """The inputs of rules for some jobs."""
    arrival_s = np.array([one.arrival_s for one in jobs])
    return {
        "arrival_s": arrival_s - setting.get("rule_origin_s", 0.0),
        "wait_s": clock_s - arrival_s,
        "processors": np.array([one.processors for one in jobs]),
        "requested_s": np.array([one.requested_s for one in jobs]),
        "predicted_s": np.array([predicted_s_of(one, users, setting) for one in jobs]),
    }


def predicted_s_of(job: WaitingJob, users: Mapping[str, UserPast], setting: Mapping[str, Any]) -> float:
    """The run time to expect of a job, at most what it requests: as predicted when it came, else as it would be now."""
    if job.predicted_s is not None:
        return min(job.predicted_s, job.requested_s)
    past = UserPast() if job.user is None else users.get(job.user, UserPast())
    return queue_rules.predicted_s(setting, job.requested_s, past.last_s, past.before_s)


def _expected_s(job: WaitingJob, users: Mapping[str, UserPast], setting: Mapping[str, Any]) -> float:
    """How long a job that starts now is taken to hold its processors."""
    return predicted_s_of(job, users, setting) if queue_rules.reserves(setting) else job.requested_s


def parts_of(processors: float) -> int:
    """Processors in parts, at least one."""
    return max(round(processors * PARTS), 1)
