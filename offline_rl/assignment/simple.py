"""Rules that look at no load: where a request came, where its client will be, and the best of random assignments."""

from collections.abc import Callable

import numpy as np

from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs

_PAIRS_AT_ONCE = 2_000_000
"""Requests of all samples that are evaluated together: what bounds the memory."""


def local(costs: Costs) -> np.ndarray:
    """[Z] every request stays where it came; the quickest edge for one that came from none of them, or cannot stay."""
    quickest = np.argmin(costs.work_s, axis=-1)
    can_stay = (costs.source >= 0) & np.isfinite(_at(costs.work_s, np.maximum(costs.source, 0)))
    return np.where(can_stay, costs.source, quickest)


def predicted(costs: Costs, edge: np.ndarray) -> np.ndarray:
    """[Z] every request goes where its client will be, `edge` [Z]; where that is -1 or does not host it, as `local`."""
    can_go = (edge >= 0) & np.isfinite(_at(costs.work_s, np.maximum(edge, 0)))
    return np.where(can_go, edge, local(costs))


def best_of_random(rng: np.random.Generator, costs: Costs, num_samples: int) -> np.ndarray:
    """[Z] the best of uniformly drawn assignments to edges that host the service."""
    hosts = np.isfinite(costs.work_s)
    num_hosts, order = hosts.sum(axis=-1), np.argsort(~hosts, axis=-1, kind="stable")

    def draw(number: int) -> np.ndarray:
        drawn = rng.integers(num_hosts, size=(number, len(num_hosts)))
        edges: np.ndarray = order[np.arange(len(num_hosts)), drawn]
        return edges

    return best_drawn(costs, local(costs), np.inf, num_samples, draw)


def best_drawn(
    costs: Costs, best: np.ndarray, best_s: float, num_samples: int, draw: Callable[[int], np.ndarray]
) -> np.ndarray:
    """[Z] the best of an assignment with its makespan and of `num_samples` others, which `draw` makes in batches."""
    at_once = max(1, _PAIRS_AT_ONCE // len(best))
    for begin in range(0, num_samples, at_once):
        edges = draw(min(at_once, num_samples - begin))
        found_s = makespan_s(costs, edges)
        if found_s.min() < best_s:
            best, best_s = edges[np.argmin(found_s)], found_s.min()
    return best


def _at(of_pair: np.ndarray, edge: np.ndarray) -> np.ndarray:
    return of_pair[np.arange(len(edge)), edge]
