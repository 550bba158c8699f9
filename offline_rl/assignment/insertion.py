"""Insertion on the exact objective: the largest request first, each on the edge that then ends soonest.

List scheduling by earliest completion time, for the objective of `twin.assignment.objective`. Linear in requests x
edges; one pass of array operations over the edges for every request.
"""

import numpy as np

from twin.assignment.types import Costs


def largest_first(costs: Costs) -> np.ndarray:
    """[Z] the requests by their least work, the largest first."""
    return np.argsort(-np.min(costs.work_s, axis=-1), kind="stable")


def insertion(costs: Costs, order: np.ndarray | None = None, fixed: np.ndarray | None = None) -> np.ndarray:
    """[Z] the edge of every request.

    Args:
        costs: Of one instance.
        order: The requests in the order of insertion; all of them, `largest_first`, where None.
        fixed: [Z] the edges of the requests that are not in `order`, which are there before.
    """
    edge = np.zeros(len(costs.source), np.int64) if fixed is None else np.array(fixed, np.int64)
    held = HeldWork(costs, edge, order)
    for request in (largest_first(costs) if order is None else order).tolist():
        best = int(held.ended_with(request).argmin())
        edge[request] = best
        held.take(request, best)
    return edge


class HeldWork:
    """The four terms of every edge's completion while requests are inserted one by one; arrays [Q].

    Args:
        costs: Of one instance.
        edge: [Z] where the requests are that are not in `order`.
        order: The requests that are to be inserted; all of them where None.
    """

    def __init__(self, costs: Costs, edge: np.ndarray, order: np.ndarray | None = None) -> None:
        self._work_s, self._transfer_s, self._result_s = costs[:3]
        self._source = costs.source.tolist()
        self._local_s, self._arriving_s, self._sent_s, self._returning_s = (
            np.array(one, float) for one in costs[4:]
        )
        self._end_s, self._returned_s = np.empty_like(self._local_s), np.empty_like(self._local_s)
        if order is None:
            return
        requests = np.setdiff1d(np.arange(len(edge)), order)
        there = edge[requests]
        work_s, transfer_s, result_s = (of_pair[requests, there] for of_pair in costs[:3])
        stays = costs.source[requests] == there
        np.add.at(self._local_s, there[stays], work_s[stays])
        np.add.at(self._sent_s, there[~stays], work_s[~stays])
        np.maximum.at(self._arriving_s, there[~stays], transfer_s[~stays])
        np.maximum.at(self._returning_s, there, result_s)

    def ended_s(self) -> np.ndarray:
        """When every edge has answered what it holds."""
        return np.maximum(self._local_s, self._arriving_s) + self._sent_s + self._returning_s

    def ended_with(self, request: int) -> np.ndarray:
        """The same with the request on it, edge by edge; the array is the caller's until the next call."""
        work_s, source, end_s = self._work_s[request], self._source[request], self._end_s
        np.maximum(self._arriving_s, self._transfer_s[request], out=end_s)
        np.maximum(self._local_s, end_s, out=end_s)
        end_s += work_s
        if source >= 0:
            end_s[source] = max(self._local_s[source] + work_s[source], self._arriving_s[source])
        end_s += self._sent_s
        np.maximum(self._returning_s, self._result_s[request], out=self._returned_s)
        end_s += self._returned_s
        return end_s

    def take(self, request: int, edge: int) -> None:
        """Inserts the request."""
        work_s = self._work_s[request, edge]
        self._returning_s[edge] = max(self._returning_s[edge], self._result_s[request, edge])
        if edge == self._source[request]:
            self._local_s[edge] += work_s
        else:
            self._sent_s[edge] += work_s
            self._arriving_s[edge] = max(self._arriving_s[edge], self._transfer_s[request, edge])
