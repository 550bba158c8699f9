"""In which order nodes start those that wait on them, where that is not the order in which they came.

A log says so without a word about it. Whenever a node starts a request that waited while others wait that need no more
than it does, every order has one of them that should be next. What counts are the starts where an order and that of
arrival would have taken different ones: an order is a node's where nearly all of these are as it says.

* *shortest*: the least expected run time first (as requested, or usual of the service);
* *deadline*: whose deadline is over first;
* *latest*: who came last.

Nodes that mostly start others than those that came first, by none of these, are *unordered*: a fit says so.

Answers go by an order: what waits behind a request is not in its way, and begins later once it is
placed (`replanning`).
What policies observe is the same as without.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twin.placement.priorities import MOST_ROWS, QueuedRuns

ARRIVAL, SHORTEST, DEADLINE, LATEST = range(4)
UNORDERED = -1
"""Codes of orders, and of none."""
NAMES = {SHORTEST: "shortest first", DEADLINE: "earliest deadline first", LATEST: "latest first"}
FEWEST = 50
"""Starts of a node at which an order and that of arrival differ, without which nothing is said of it."""
NEARLY_ALL = 0.9
"""Share of them that are as the order says, at least."""
MOSTLY = 0.5
"""Share of a node's starts that are of another than came first, at least, where it is unordered."""
MOST_STARTS = 2_000
"""Of a node that are looked at, about at most, spread evenly."""


@dataclass(frozen=True)
class Disciplines:
    """In which order nodes start requests.

    Attributes:
        of_node: [nodes] code of the order, `ARRIVAL` where the log shows no other.
    """

    of_node: tuple[int, ...]

    def key(self, node: Any, arrival_s: Any, expected_s: Any, deadline_s: Any, np: Any) -> Any:
        """Of requests on nodes: those of a lower one go first. Any arrays of one shape, of the module `np`; instants
        on one clock."""
        order = np.asarray(self.of_node, np.int32)[node]
        key = np.where(order == SHORTEST, expected_s, arrival_s)
        key = np.where(order == DEADLINE, arrival_s + deadline_s, key)
        return np.where(order == LATEST, -arrival_s, key)

    def orders(self, node: Any, np: Any) -> Any:
        """Whether nodes have another order than that of arrival."""
        return np.asarray(self.of_node, np.int32)[node] != ARRIVAL


def disciplines_of(content: Mapping[str, Any] | None) -> Disciplines | None:
    """The disciplines that an encoding's JSON holds."""
    return None if content is None else Disciplines(tuple(content["of_node"]))


def fit_disciplines(
    held: QueuedRuns, demand: np.ndarray, expected_s: np.ndarray, deadline_s: np.ndarray, num_nodes: int
) -> tuple[Disciplines | None, int]:
    """The orders of a log, and how many nodes are unordered.

    Args:
        held: Of the training days.
        demand: [resources, rows] what each request needs.
        expected_s, deadline_s: [rows] expected run time, and time from arrival to deadline (inf without one).
        num_nodes: Of the cluster.

    Returns:
        None in the place of orders where no node is shown to have another than that of arrival.
    """
    rows = np.flatnonzero((held.node >= 0) & (held.start_s <= held.finish_s))[:MOST_ROWS]
    keys = np.stack([held.arrival_s, expected_s, held.arrival_s + deadline_s, -held.arrival_s])
    found = [ARRIVAL] * num_nodes
    for node in range(num_nodes):
        here = rows[held.node[rows] == node]
        found[node] = _order(held.arrival_s[here], held.start_s[here], demand[:, here], keys[:, here])
    known = tuple(max(order, ARRIVAL) for order in found)
    return Disciplines(known) if any(known) else None, found.count(UNORDERED)


def _order(arrival_s: np.ndarray, start_s: np.ndarray, demand: np.ndarray, keys: np.ndarray) -> int:
    """The order of one node; rows in order of arrival, keys [orders, rows]."""
    waited = np.flatnonzero(start_s > arrival_s)
    differ, right = np.zeros((2, len(keys)))
    num_met = num_passed = 0
    for row in waited[:: max(1, len(waited) // MOST_STARTS)]:
        waits = (arrival_s <= start_s[row]) & (start_s >= start_s[row])
        waits &= np.all(demand <= demand[:, row, None], axis=0)
        waits[row] = True
        those = np.flatnonzero(waits)
        if len(those) < 2:
            continue
        # the first of equals is the one that came first
        first = those[np.argmin(keys[:, those], axis=1)]
        num_met += 1
        other = first != first[ARRIVAL]
        differ += other
        right += other & (start_s[first] == start_s[row])
        num_passed += bool(start_s[first[ARRIVAL]] > start_s[row])
    enough = differ >= FEWEST
    share = np.where(enough, right / np.maximum(differ, 1.0), 0.0)
    best = int(np.argmax(share))
    if share[best] >= NEARLY_ALL:
        return best
    return UNORDERED if num_met >= FEWEST and num_passed > MOSTLY * num_met else ARRIVAL
