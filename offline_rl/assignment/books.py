"""What every edge holds under an assignment, and what moves between edges would make of it.

The books know, for every request, its edge without it; so a move, a swap or a chain is priced for all pairs at once.
"""

from typing import NamedTuple

import numpy as np

from twin.assignment.types import Costs


class HeldAssignment(NamedTuple):
    """The four terms of an edge's completion; leaves of one shape: [Q] as it is, [Z] of a request's edge without it."""

    local_s: np.ndarray
    arriving_s: np.ndarray
    sent_s: np.ndarray
    returning_s: np.ndarray

    def end_s(self) -> np.ndarray:
        """When the edge has answered."""
        return np.maximum(self.local_s, self.arriving_s) + self.sent_s + self.returning_s

    def at(self, index: np.ndarray) -> "HeldAssignment":
        """The entries at an index."""
        return HeldAssignment(*(leaf[index] for leaf in self))

    def end_with_s(
        self, stays: np.ndarray, work_s: np.ndarray, transfer_s: np.ndarray, result_s: np.ndarray
    ) -> np.ndarray:
        """When the edge would have answered with one request more; all arguments and leaves broadcast."""
        before_s = np.maximum(self.local_s, np.maximum(self.arriving_s, transfer_s)) + work_s
        staying_s = np.maximum(self.local_s + work_s, self.arriving_s)
        return np.where(stays, staying_s, before_s) + self.sent_s + np.maximum(self.returning_s, result_s)


class Books:
    """The books of one assignment, which they own, in double precision: what is priced is then what is found.

    Attributes:
        edge: [Z] the assignment.
        held: [Q] of every edge.
        end_s: [Q] completion of every edge.
        without: [Z] what the request's edge holds without it.
        without_end_s: [Z] its completion then.
    """

    def __init__(self, costs: Costs, edge: np.ndarray) -> None:
        costs = Costs(*(leaf if leaf is costs.source else np.asarray(leaf, float) for leaf in costs))
        self.costs, self.edge = costs, np.array(edge)
        num_edges = costs.local_s.shape[-1]
        requests = np.arange(len(edge))
        self._stays = costs.source == self.edge
        self._own = np.stack([of_pair[requests, self.edge] for of_pair in costs[:3]])
        self.held = HeldAssignment(*(np.empty(num_edges) for _ in range(4)))
        self.without = HeldAssignment(*(np.empty(len(edge)) for _ in range(4)))
        self.end_s, self.without_end_s = np.empty(num_edges), np.empty(len(edge))
        by_edge = np.argsort(self.edge, kind="stable")
        bounds = np.searchsorted(self.edge[by_edge], np.arange(num_edges + 1))
        self._members = [by_edge[bounds[one] : bounds[one + 1]] for one in range(num_edges)]
        for one in range(num_edges):
            self._settle(one)

    def members(self, edge: int) -> np.ndarray:
        """The requests on an edge."""
        return self._members[edge]

    def send(self, *moves: tuple[int, int]) -> None:
        """Sends requests to other edges: (request, edge)."""
        touched = {int(self.edge[request]) for request, _ in moves} | {edge for _, edge in moves}
        for request, edge in moves:
            old = self.edge[request]
            self._members[old] = self._members[old][self._members[old] != request]
            self._members[edge] = np.append(self._members[edge], request)
            self.edge[request] = edge
            self._stays[request] = self.costs.source[request] == edge
            self._own[:, request] = [of_pair[request, edge] for of_pair in self.costs[:3]]
        for one in touched:
            self._settle(one)

    def inserted_end_s(self, requests: np.ndarray) -> np.ndarray:
        """[requests, Q] completion of every edge with each of the requests besides; inf on its own edge."""
        costs, rows = self.costs, np.arange(len(requests))
        pairs = [of_pair[requests] for of_pair in costs[:3]]
        stays = costs.source[requests, None] == np.arange(len(self.end_s))
        end_s = self.held.end_with_s(stays, *pairs)
        end_s[rows, self.edge[requests]] = np.inf
        return end_s

    def exchanged_end_s(self, requests: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[requests, others] completion of the others' edges with each request in place of each other."""
        edges = self.edge[others]
        pairs = [of_pair[requests[:, None], edges] for of_pair in self.costs[:3]]
        return self.without.at(others).end_with_s(self.costs.source[requests, None] == edges, *pairs)

    def _settle(self, edge: int) -> None:
        """Computes anew what the edge holds."""
        costs, requests = self.costs, self._members[edge]
        stays = self._stays[requests]
        work_s, transfer_s, result_s = self._own[:, requests]
        staying_s = np.where(stays, work_s, 0.0)
        sent_s = work_s - staying_s
        arriving, arriving_without = _largest(np.where(stays, 0.0, transfer_s), costs.arriving_s[edge])
        returning, returning_without = _largest(result_s, costs.returning_s[edge])
        local_all, sent_all = costs.local_s[edge] + staying_s.sum(), costs.transferred_s[edge] + sent_s.sum()
        for leaf, value in zip(self.held, (local_all, arriving, sent_all, returning), strict=True):
            leaf[edge] = value
        self.end_s[edge] = max(local_all, arriving) + sent_all + returning
        without = HeldAssignment(
            local_all - staying_s, arriving_without, sent_all - sent_s, returning_without
        )
        for leaf, values in zip(self.without, without, strict=True):
            leaf[requests] = values
        self.without_end_s[requests] = without.end_s()


def _largest(values: np.ndarray, least: float) -> tuple[float, np.ndarray]:
    """The largest of the values and `least`, and the same without each of the values."""
    if not len(values):
        return least, values
    first = int(values.argmax())
    largest = max(values[first], least)
    without = np.full(len(values), largest)
    rest = values.copy()
    rest[first] = -np.inf
    without[first] = max(rest.max(), least)
    return largest, without
