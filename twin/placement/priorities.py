"""Queues whose requests go before those of others on a node, and drive them out: who counts of what a node holds.

A log says so without a word about it: on one node, later requests of one queue start before those of another that
have waited longer, and hardly ever the other way round. Ranks are read off such overtaking. They are kept only where
the time until those leave that go before a request forecasts its wait better than the time until all leave, beyond
chance and by a share of the variance (`left_out`). Whether running requests of lower rank are waited for or driven out
is what forecasts better.

Answers and fates go by it. What a policy observes does not: a rule that did not see what it drives out was the worse
for it.

What a log does not show: where a request that was driven out had run before. Its start is the last one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twin.placement.cross_validation import LEAST_GAIN, MIN_RUNS, clear_gain, stretches
from twin.records import at_rows

FEWEST = 30
"""Pairs of a waiting request and a later one, without which nothing is said of two queues."""
LEAST_MORE = 0.3
"""How much more often requests of a queue overtake those of another than they are overtaken, at least."""
MOST_ROWS = 40_000
"""Requests that are looked at, about at most: consecutive ones, from the beginning."""
UNIT_S = 1.0
"""Waits are compared by the logarithm of so many seconds and the wait."""


@dataclass(frozen=True)
class Priorities:
    """Which queues go first.

    Attributes:
        rank: [queues] of the vocabulary; requests of a lower number go before those of a higher one.
        preempts: Whether requests that run make room for one of a lower number.
    """

    rank: tuple[int, ...]
    preempts: bool

    def of(self, queue: Any, np: Any) -> Any:
        """The ranks of queues, as arrays of the module `np`."""
        return np.asarray(self.rank, np.int32)[queue]

    def counts(self, of: Any, own: Any, runs: Any) -> Any:
        """Whether what a node holds, of rank `of`, is in the way of a request of rank `own`; any arrays or tensors."""
        before = of <= own
        return before if self.preempts else before | runs


def priorities_of(content: Mapping[str, Any] | None) -> Priorities | None:
    """The priorities that an encoding's JSON holds."""
    return None if content is None else Priorities(tuple(content["rank"]), bool(content["preempts"]))


class QueuedRuns(NamedTuple):
    """Requests of a log in order of arrival; leaves [rows]."""

    queue: np.ndarray
    node: np.ndarray  # -1 where the log does not name it
    arrival_s: np.ndarray
    start_s: np.ndarray  # NaN where unknown
    finish_s: np.ndarray  # NaN where unknown; those of runs not over yet, the end of the days
    cores: np.ndarray
    stretch: np.ndarray  # of consecutive days


def fit_priorities(held: QueuedRuns, cores_of_node: np.ndarray, num_queues: int) -> Priorities | None:
    """The priorities of a log.

    Args:
        held: Of the training days.
        cores_of_node: [nodes] inf where not known.
        num_queues: Of the vocabulary.

    Returns:
        None where queues do nothing, beyond chance, to who waits for whom.
    """
    known = (held.node >= 0) & (held.start_s <= held.finish_s)
    rows = np.flatnonzero(known)[:MOST_ROWS]
    if len(rows) < MIN_RUNS or len(np.unique(held.queue[rows])) < 2:
        return None
    held = at_rows(held, rows)
    rank = _ranks(held, num_queues)
    if max(rank) == 0:
        return None
    wait = np.log(UNIT_S + held.start_s - held.arrival_s)
    found = _until_room(held, cores_of_node, np.array(rank)[held.queue])
    errors = (np.log(UNIT_S + found) - wait) ** 2
    plain, keeps, preempts = errors
    # Where they are driven out, no log has a higher rank arrive while a lower one goes on in its way
    drives_out = float(preempts.mean()) <= float(keeps.mean())
    better = preempts if drives_out else keeps
    if clear_gain(plain - better, stretches(len(wait))) <= LEAST_GAIN * float(np.var(wait)):
        return None
    return Priorities(rank, drives_out)


def _ranks(held: QueuedRuns, num_queues: int) -> tuple[int, ...]:
    """[queues] 0 for those that go first; equal where the log does not show a difference. Queues of which it says
    nothing are of the last rank."""
    overtook, met = _overtaking(held, num_queues)
    pairs = np.maximum(met, met.T)
    share = overtook / np.maximum(met, 1)
    more = np.where(pairs >= FEWEST, share - share.T, 0.0)
    order = np.argsort(-more.sum(axis=1), kind="stable")
    rank, current, group = np.full(num_queues, -1), 0, list[int]()
    for queue in order.tolist():
        if pairs[queue].max() < FEWEST:
            continue
        if group and max(more[one, queue] for one in group) >= LEAST_MORE:
            current, group = current + 1, []
        rank[queue] = current
        group.append(queue)
    return tuple(np.where(rank < 0, current, rank).tolist())


def _overtaking(held: QueuedRuns, num_queues: int) -> tuple[np.ndarray, np.ndarray]:
    """[queues, queues] how often a later request of one started before a waiting one of another, and how often there
    was such a pair."""
    overtook, met = np.zeros((2, num_queues, num_queues))
    for row, there in held_before(held):
        waiting = there[held.start_s[there] > held.arrival_s[row]]
        np.add.at(met[held.queue[row]], held.queue[waiting], 1.0)
        passed = waiting[held.start_s[waiting] > held.start_s[row]]
        np.add.at(overtook[held.queue[row]], held.queue[passed], 1.0)
    return overtook, met


def held_before(held: QueuedRuns) -> Iterator[tuple[int, np.ndarray]]:
    """Every row, and the earlier rows that its node holds as it arrives."""
    there: dict[tuple[int, int], np.ndarray] = {}
    place = list(zip(held.stretch.tolist(), held.node.tolist(), strict=True))
    for row in range(len(place)):
        before = there.get(place[row], np.zeros(0, np.int64))
        before = before[held.finish_s[before] > held.arrival_s[row]]
        yield row, before
        there[place[row]] = np.append(before, row)


def _until_room(held: QueuedRuns, cores_of_node: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """[3, rows] seconds until so many of a node's requests have left that there are cores: of all, of those that go
    before or run already, of those that go before."""
    found = np.zeros((3, len(rank)))
    for row, there in held_before(held):
        before = rank[there] <= rank[row]
        runs = held.start_s[there] <= held.arrival_s[row]
        left = cores_of_node[held.node[row]] - held.cores[row]
        for number, chosen in enumerate((np.ones(len(there), bool), before | runs, before)):
            found[number, row] = first_enough(
                held.finish_s[there[chosen]] - held.arrival_s[row], held.cores[there[chosen]], left
            )
    return found


def first_enough(leaves_in_s: np.ndarray, cores: np.ndarray, left: float) -> float:
    """The first time at which what has not left has at most so many cores."""
    order = np.argsort(-leaves_in_s)
    over = np.flatnonzero(np.cumsum(cores[order]) > max(left, 0.0) + 1e-6)
    return float(leaves_in_s[order[over[0]]]) if len(over) else 0.0
