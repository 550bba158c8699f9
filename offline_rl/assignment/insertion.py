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
    local_s, arriving_s, sent_s, returning_s = held_before(costs, edge, order)
    other, end_s = np.empty_like(local_s), np.empty_like(local_s)
    sources = costs.source.tolist()
    for request in (largest_first(costs) if order is None else order).tolist():
        work_s, source = costs.work_s[request], sources[request]
        np.maximum(arriving_s, costs.transfer_s[request], out=end_s)
        np.maximum(local_s, end_s, out=end_s)
        end_s += work_s
        if source >= 0:
            end_s[source] = max(local_s[source] + work_s[source], arriving_s[source])
        end_s += sent_s
        np.maximum(returning_s, costs.result_s[request], out=other)
        end_s += other
        best = int(end_s.argmin())
        edge[request] = best
        returning_s[best] = other[best]
        if best == source:
            local_s[best] += work_s[best]
        else:
            sent_s[best] += work_s[best]
            arriving_s[best] = max(arriving_s[best], costs.transfer_s[request, best])
    return edge


def held_before(costs: Costs, edge: np.ndarray, order: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """The four terms of every edge's completion [Q] with the requests that are not inserted."""
    local_s, arriving_s, sent_s, returning_s = (np.array(one, float) for one in costs[4:])
    requests = np.setdiff1d(np.arange(len(edge)), np.arange(len(edge)) if order is None else order)
    there = edge[requests]
    work_s, transfer_s, result_s = (of_pair[requests, there] for of_pair in costs[:3])
    stays = costs.source[requests] == there
    np.add.at(local_s, there[stays], work_s[stays])
    np.add.at(sent_s, there[~stays], work_s[~stays])
    np.maximum.at(arriving_s, there[~stays], transfer_s[~stays])
    np.maximum.at(returning_s, there, result_s)
    return local_s, arriving_s, sent_s, returning_s
