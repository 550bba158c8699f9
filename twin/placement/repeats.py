"""Requests that repeat failed ones: how often clients try again, and when, read off a log.

    chance = mean of (asked again - expected) over failed requests, of (1 - expected)

*Asked again* is 1 where the same agent asks for the same service within a while of the end; *expected* is how often
that happens after requests of the pair that completed, as often as after all others of that time. Of the requests that
came again, the soonest, so many as are beyond what is expected, are taken to repeat failed ones: a twin's episodes
have none of them, and every failure there draws its own (`repeated_arrivals`).

A log has repeats only where their share of all requests is clear of chance over stretches of it (`left_out`), and at
least `LEAST_SHARE`.
"""

from typing import Any

import numpy as np

from twin.placement.cross_validation import clear_gain, stretches
from twin.placement.types import COMPLETED, DROPPED, FAILED, Repeats

FEWEST = 50
"""Failed requests, and completed ones, of agents that are known."""
LEAST_S = 60.0
"""A repeated request comes within so long of the end, or the median response time where that is longer."""
LEAST_SHARE = 0.01
BLOCK = 64
"""Consecutive requests that are taken to be of one time."""
PRIOR = 5.0
"""Requests' worth of what is usual that a pair's own, and a time's, is drawn to."""


def is_failed(status: Any) -> Any:
    """Whether requests of this status may be repeated; arrays of any kind."""
    return (status == FAILED) | (status == DROPPED)


def fit_repeats(
    arrival_s: np.ndarray, finish_s: np.ndarray, status: np.ndarray, agent: np.ndarray, service: np.ndarray
) -> Repeats | None:
    """The repeats of a log.

    Args:
        arrival_s: [rows] in order.
        finish_s: [rows] inf where it is not known to have ended.
        status: [rows] codes.
        agent, service: [rows] indices; agents that are hidden are -1.

    Returns:
        None where the log shows none.
    """
    known = (agent >= 0) & np.isfinite(finish_s)
    failed, completed = known & is_failed(status), known & (status == COMPLETED)
    if min(failed.sum(), completed.sum()) < FEWEST:
        return None
    within_s = longest_wait_s(arrival_s, finish_s, completed)
    pair = pairs_of(agent, service)
    delay_s, _ = next_of_pair(pair, arrival_s, finish_s)
    again = (delay_s <= within_s).astype(float)
    expected = expected_again(pair, again, completed)
    beyond = again - expected
    if clear_gain(np.where(failed, beyond, 0.0), stretches(len(pair))) <= LEAST_SHARE:
        return None
    chance = float(beyond[failed].sum() / np.maximum(1.0 - expected[failed], 0.0).sum())
    delays_s = np.sort(delay_s[failed & (again > 0.0)])
    kept = delays_s[: max(1, round(min(chance, 1.0) * int(failed.sum())))]
    return Repeats(min(chance, 1.0), float(kept.mean()), float(kept[-1]))


def is_repeat(
    repeats: Repeats,
    arrival_s: np.ndarray,
    finish_s: np.ndarray,
    status: np.ndarray,
    agent: np.ndarray,
    service: np.ndarray,
) -> np.ndarray:
    """[rows] bool: whether each repeats a failed request; arguments of `fit_repeats`."""
    delay_s, following = next_of_pair(pairs_of(agent, service), arrival_s, finish_s)
    is_repeated = (agent >= 0) & is_failed(status) & (delay_s <= repeats.longest_s)
    found = np.zeros(len(arrival_s), bool)
    found[following[is_repeated]] = True
    return found


def longest_wait_s(arrival_s: np.ndarray, finish_s: np.ndarray, completed: np.ndarray) -> float:
    """Within how long of the end of a request another of its pair may repeat it."""
    return max(LEAST_S, float(np.median((finish_s - arrival_s)[completed])))


def pairs_of(*labels: np.ndarray) -> np.ndarray:
    """[rows] one index for all labels of a row."""
    return np.unique(np.stack(labels), axis=1, return_inverse=True)[1].ravel()


def next_of_pair(
    pair: np.ndarray, arrival_s: np.ndarray, finish_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[rows] how long after the end of each the next request of its pair arrives, inf where none does, and its row.

    One whose end is not known came to nothing at once.
    """
    came_s = arrival_s - arrival_s.min(initial=np.inf)
    apart = 2.0 * (np.ptp(arrival_s) + 1.0)
    ended_s = came_s + np.where(np.isfinite(finish_s), finish_s - arrival_s, 0.0)
    at_s = pair * apart + came_s
    order = np.argsort(at_s, kind="stable")
    place = np.searchsorted(at_s[order], pair * apart + np.minimum(ended_s, apart - 1.0), side="right")
    row = np.append(order, 0)[place]
    follows = (place < len(pair)) & (pair[row] == pair)
    return np.where(follows, came_s[row] - ended_s, np.inf), np.where(follows, row, -1)


def expected_again(pair: np.ndarray, again: np.ndarray, completed: np.ndarray) -> np.ndarray:
    """[rows] how often a request is followed by another of its pair, by those that completed, around then."""
    overall = float(again[completed].mean())
    total, count = (
        np.bincount(pair[completed], values, pair.max() + 1)
        for values in (again[completed], np.ones(completed.sum()))
    )
    usual = ((total + PRIOR * overall) / (count + PRIOR))[pair]
    block = np.arange(len(pair)) // BLOCK
    seen, due = (
        np.bincount(block[completed], values[completed], block.max() + 1) + PRIOR * overall
        for values in (again, usual)
    )
    return np.clip(usual * (seen / np.maximum(due, 1e-9))[block], 0.0, 1.0)
