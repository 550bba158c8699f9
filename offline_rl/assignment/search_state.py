"""The state of a local search: an assignment, what every edge holds under it, and what moves would make of that.

It knows, for every request, its edge without it; so a move, a swap or a chain is priced for all pairs at once.
What a step changes is computed anew for the edges that it touches, all of them in one pass.
"""

import numpy as np

from offline_rl.assignment.terms import PairTerms, ended_s, terms_of, with_one
from twin.assignment.types import Costs


class SearchState:
    """One assignment, changed in place.

    Attributes:
        terms: Of the instance.
        edge: [Z] the assignment.
        held: [4, Q] of every edge, see `terms`.
        end_s: [Q] completion of every edge.
        without: [4, Z] what the request's edge holds without it.
        without_end_s: [Z] its completion then.
    """

    def __init__(self, costs: Costs | PairTerms, edge: np.ndarray) -> None:
        self.terms = costs if isinstance(costs, PairTerms) else terms_of(costs)
        self.edge = np.array(edge)
        self._own = self.terms.of_pair[np.arange(len(self.edge)), :, self.edge].T.copy()  # [4, Z]
        self.held, self.without = np.empty_like(self.terms.base), np.empty_like(self._own)
        self.end_s, self.without_end_s = np.empty(self.held.shape[1]), np.empty(len(self.edge))
        self._settle(np.arange(self.held.shape[1]))

    def members(self, edge: int) -> np.ndarray:
        """The requests on an edge."""
        return np.flatnonzero(self.edge == edge)

    def send(self, *moves: tuple[int, int]) -> None:
        """Sends requests to other edges: (request, edge)."""
        touched = {int(self.edge[request]) for request, _ in moves} | {edge for _, edge in moves}
        for request, edge in moves:
            self.edge[request] = edge
            self._own[:, request] = self.terms.of_pair[request, :, edge]
        self._settle(np.array(sorted(touched)))

    def inserted_end_s(self, requests: np.ndarray) -> np.ndarray:
        """[requests, Q] completion of every edge with each of the requests besides; inf on its own edge."""
        end_s = ended_s(with_one(self.held, self.terms.of_pair[requests]))
        end_s[np.arange(len(requests)), self.edge[requests]] = np.inf
        return end_s

    def exchanged_end_s(self, requests: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[requests, others] completion of the others' edges with each request in place of each other."""
        there = self.terms.of_pair[requests].take(self.edge[others], axis=2)
        return ended_s(with_one(self.without[:, others], there))

    def _settle(self, touched: np.ndarray) -> None:
        """Computes anew what edges hold."""
        base, num_edges = self.terms.base, len(self.end_s)
        is_touched = np.zeros(num_edges, bool)
        is_touched[touched] = True
        requests = np.flatnonzero(is_touched[self.edge])
        edge, own = self.edge[requests], self._own[:, requests]
        held, without = base.copy(), np.empty_like(own)
        for term in (0, 1):
            held[term] += np.bincount(edge, own[term], num_edges)
        np.subtract(held[:2, edge], own[:2], out=without[:2])
        for term in (2, 3):
            longest, second = held[term], base[term].copy()
            np.maximum.at(longest, edge, own[term])
            is_longest = own[term] >= longest[edge]
            np.maximum.at(second, edge, np.where(is_longest, 0.0, own[term]))
            is_only = is_longest & (np.bincount(edge, is_longest, num_edges)[edge] < 2)
            without[term] = np.where(is_only, second[edge], longest[edge])
        self.held[:, touched], self.without[:, requests] = held[:, touched], without
        self.end_s[touched] = ended_s(held[:, touched])
        self.without_end_s[requests] = ended_s(without)
