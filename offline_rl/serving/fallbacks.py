"""Heuristics that answer while the policy does not: each scores the candidates from what the server keeps book of.

`least_loaded` is the baseline of that name in comparisons, waiting requests counted, on the server's books.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from offline_rl.serving.cluster import CandidateView


class Fallback(NamedTuple):
    """A heuristic: `scores(view)` [n], the largest feasible one is best, any of equals."""

    name: str
    description: str
    scores: Callable[[CandidateView], np.ndarray]


def _least_loaded(view: CandidateView) -> np.ndarray:
    cores = np.where(np.isfinite(view.cores) & (view.cores > 0.0), view.cores, np.nan)
    free = 1.0 - view.committed / cores
    return np.where(np.isnan(free), -view.num_held, free)


def _fewest_requests(view: CandidateView) -> np.ndarray:
    return -view.num_held


def _any(view: CandidateView) -> np.ndarray:
    return np.zeros(len(view.names))


LEAST_LOADED = Fallback(
    "least_loaded", "the node with the largest share of cores that nothing held there requests", _least_loaded
)
FEWEST_REQUESTS = Fallback("fewest_requests", "the node that holds the fewest requests", _fewest_requests)
ANY = Fallback("any", "any feasible node", _any)

FALLBACKS = (LEAST_LOADED, FEWEST_REQUESTS, ANY)


def fallback_named(name: str) -> Fallback:
    """The heuristic of a name among those of `Heuristic`."""
    return next(one for one in FALLBACKS if one.name == name)
