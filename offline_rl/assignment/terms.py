"""What every pair of a request and an edge adds to the edge's completion, as four terms, for many assignments at once.

    completion = max(local, arriving) + sent + returning

A request that stays adds to `local`, one that is sent adds to `sent` and may raise `arriving`; either may raise
`returning` (`twin.assignment.objective`). So a request more is two sums and two maxima, whatever it does.
"""

from typing import NamedTuple

import numpy as np

from twin.assignment.types import Costs

LOCAL, SENT, ARRIVING, RETURNING = range(4)
_LEAST = 1e-9


class PairTerms(NamedTuple):
    """One instance in double precision: what is priced is then what is found."""

    of_pair: np.ndarray  # [Z, 4, Q] seconds; inf where an edge does not host the service
    base: np.ndarray  # [4, Q] what the edges hold already
    prices: np.ndarray  # [Q] the edges' speeds, summing to one: what a second of an edge is worth
    size: np.ndarray  # [Z] least work over the largest request's

    def base_end_s(self) -> float:
        """When the last edge has answered what it holds already: no assignment is better."""
        return float(ended_s(self.base).max())


def terms_of(costs: Costs) -> PairTerms:
    """The terms of one instance."""
    num_requests, num_edges = costs.work_s.shape
    own = np.flatnonzero(costs.source >= 0)
    source = costs.source[own]
    of_pair = np.empty((num_requests, 4, num_edges))
    of_pair[:, LOCAL] = 0.0
    of_pair[own, LOCAL, source] = costs.work_s[own, source]
    of_pair[:, SENT], of_pair[:, ARRIVING] = costs.work_s, costs.transfer_s
    of_pair[own, SENT, source] = of_pair[own, ARRIVING, source] = 0.0
    of_pair[:, RETURNING] = costs.result_s
    base = np.stack([costs.local_s, costs.transferred_s, costs.arriving_s, costs.returning_s]).astype(float)
    size = np.min(costs.work_s, axis=1).astype(float)
    return PairTerms(of_pair, base, speed_prices(costs.work_s), size / max(size.max(initial=0.0), 1e-300))


def ended_s(held: np.ndarray) -> np.ndarray:
    """[..., edges] when edges that hold this [..., 4, edges] have answered."""
    end_s = np.maximum(held[..., LOCAL, :], held[..., ARRIVING, :])
    end_s += held[..., SENT, :]
    end_s += held[..., RETURNING, :]
    return end_s


def with_one(held: np.ndarray, term: np.ndarray) -> np.ndarray:
    """[..., 4, edges] what edges hold with one request more; both broadcast."""
    more = np.empty(np.broadcast_shapes(held.shape, term.shape))
    np.add(held[..., :2, :], term[..., :2, :], out=more[..., :2, :])
    np.maximum(held[..., 2:, :], term[..., 2:, :], out=more[..., 2:, :])
    return more


def held_by(terms: PairTerms, edges: np.ndarray) -> np.ndarray:
    """[assignments, 4, Q] what the edges hold under assignments [assignments, Z]; Q stands for nowhere."""
    count, num_requests = edges.shape
    num_edges = terms.base.shape[1]
    own = terms.of_pair[np.arange(num_requests), :, np.minimum(edges, num_edges - 1)]
    places = num_edges + 1
    place = (edges + places * np.arange(count)[:, None]).ravel()
    held = np.empty((count, 4, places))
    for term in (LOCAL, SENT):
        held[:, term] = np.bincount(place, own[..., term].ravel(), count * places).reshape(count, places)
    for term in (ARRIVING, RETURNING):
        longest = np.zeros(count * places)
        np.maximum.at(longest, place, own[..., term].ravel())
        held[:, term] = longest.reshape(count, places)
    held = held[..., :num_edges]
    held[:, :2] += terms.base[:2]
    np.maximum(held[:, 2:], terms.base[2:], out=held[:, 2:])
    return held


def speed_prices(work_s: np.ndarray) -> np.ndarray:
    """[Q] the speeds of edges, of the requests they host [Z, Q], summing to one."""
    count, total_s = len(work_s), work_s.sum(axis=0, dtype=float)
    if not np.isfinite(total_s).all():
        hosts = np.isfinite(work_s)
        count, total_s = hosts.sum(axis=0), np.where(hosts, work_s, 0.0).sum(axis=0, dtype=float)
    mean_s = total_s / np.maximum(count, 1)
    slowest_s = mean_s.max(initial=0.0)
    mean_s = np.where(np.asarray(count) > 0, mean_s, slowest_s)
    speed = 1.0 / np.maximum(mean_s, max(_LEAST * slowest_s, 1e-300))
    prices: np.ndarray = speed / speed.sum()
    return prices
