"""Whether agents await their answers: each sends its next request only when its last one has ended (a closed system).

Source: B. Schroeder, A. Wierman, M. Harchol-Balter, Open versus closed: a cautionary tale, NSDI 2006. From an end to
the next request an agent *thinks*; a quicker scheduler gets more requests, a slower one fewer. Read as times that
depend on nothing, such a log shows a bad scheduler queues that no agent would have built up, and a good one a system
that is emptier than it would be.

A request *overlaps* the one before it where it comes before that has ended. Of agents that await their answers hardly
any does; of others as many as if every gap were held against the response time of another of the agent's requests
around then. Timers that are slower than any answer overlap in neither, and are not taken for agents that await.
"""

from typing import Any

import numpy as np

from twin.placement.hazards import RunLog
from twin.placement.repeats import fit_repeats
from twin.placement.types import REJECTED

NEIGHBOURS = (1, 2, 3, 4)
"""How many requests of the agent later and earlier the response times are from that a gap is held against."""
FEWEST = 60.0
"""Overlaps that must be expected of a log, for none to tell anything."""
MOST_SHARE = 0.1
"""Share of them that there may be: ends are written late, and agents have a second window."""


def awaits_answers(
    arrival_s: np.ndarray, finish_s: np.ndarray, status: np.ndarray, agent: np.ndarray, stretch: np.ndarray
) -> bool:
    """Whether the agents of a log await their answers.

    Args:
        arrival_s: [rows] in order.
        finish_s: [rows] inf where it is not known to have ended.
        status: [rows] codes.
        agent: [rows] index, -1 where it is hidden.
        stretch: [rows] which of the consecutive pieces of the log a row is from; nothing is known of what lies between.
    """
    response_s = ended_s(arrival_s, finish_s, status) - arrival_s
    overlap, expected = overlaps(arrival_s, response_s, agent, stretch)
    return bool(expected.sum() >= FEWEST and overlap.sum() <= MOST_SHARE * expected.sum())


def overlaps(
    arrival_s: np.ndarray, response_s: np.ndarray, agent: np.ndarray, stretch: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[rows] whether the next request of its agent came before each had ended, and how often that would be by the
    response times of others of the agent's around then; 0 for both where there are none.

    Args:
        arrival_s, agent, stretch: As of `awaits_answers`.
        response_s: [rows] inf or NaN where it is not known.
    """
    overlap, expected = np.zeros(len(arrival_s)), np.zeros(len(arrival_s))
    known = np.flatnonzero((agent >= 0) & np.isfinite(response_s))
    order = known[np.lexsort((arrival_s[known], stretch[known], agent[known]))]
    one, place = order[:-1], np.arange(len(order) - 1)
    gap_s, goes_on = np.diff(arrival_s[order]), _alike(one, order[1:], agent, stretch)
    total, count = np.zeros(len(one)), np.zeros(len(one))
    for step in (*NEIGHBOURS, *(-each for each in NEIGHBOURS)):
        other = order[np.clip(place + step, 0, len(order) - 1)]
        inside = goes_on & (other != one) & _alike(one, other, agent, stretch)
        total += inside & (gap_s < response_s[other])
        count += inside
    counts = count > 0.0
    expected[one] = total / np.maximum(count, 1.0)
    overlap[one] = counts & (gap_s < response_s[one])
    return overlap, expected


def fit_returns(log: RunLog) -> dict[str, Any]:
    """When the agents of a log come again: the fields `repeats` and `awaits` of `Cluster`.

    Where they repeat what fails only that is followed: what they ask for then hangs on failures more than on times.
    """
    repeats = fit_repeats(log.arrival_s, log.finish_s, log.status, log.agent, log.service)
    awaits = repeats is None and awaits_answers(
        log.arrival_s, log.finish_s, log.status, log.agent, log.stretch
    )
    return {"repeats": repeats, "awaits": awaits}


def think_times_s(
    arrival_s: np.ndarray, finish_s: np.ndarray, status: np.ndarray, agent: np.ndarray
) -> np.ndarray:
    """[rows] from the end of each request until its agent's next, below 0 where that came before; inf where there is
    none, or the end is not known. Arguments as of `awaits_answers`."""
    order = np.argsort(agent, kind="stable")
    follows = np.flatnonzero((np.diff(agent[order]) == 0) & (agent[order[1:]] >= 0))
    one, other = order[follows], order[follows + 1]
    ends_s = ended_s(arrival_s, finish_s, status)[one]
    found = np.full(len(agent), np.inf)
    found[one] = np.where(np.isfinite(ends_s), arrival_s[other] - ends_s, np.inf)
    return found


def ended_s(arrival_s: np.ndarray, finish_s: np.ndarray, status: np.ndarray) -> np.ndarray:
    """When each request was answered: what is refused is so at once; inf where it is not known."""
    return np.where(status == REJECTED, arrival_s, finish_s)


def _alike(one: np.ndarray, other: np.ndarray, *labels: np.ndarray) -> np.ndarray:
    """[rows] whether two rows have the same labels."""
    return np.all([label[one] == label[other] for label in labels], axis=0)
