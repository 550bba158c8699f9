"""From logits to assignments: the likeliest, the best of many samples, insertion among the likely, and a search."""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.layers import softmax
from offline_rl.assignment.local_search import LocalSearchConfig, improve
from offline_rl.assignment.simple import best_drawn
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs


def greedy(logits: np.ndarray) -> np.ndarray:
    """[Z] the likeliest edge of every request (the first of equals)."""
    return logits.argmax(axis=-1)


def best_of_samples(
    rng: np.random.Generator, costs: Costs, logits: np.ndarray, num_samples: int
) -> np.ndarray:
    """[Z] the best of the likeliest assignment and of so many drawn ones, evaluated in batches."""
    best = greedy(logits)
    # Rounding may lead beyond 1, into the next request's row
    below = np.minimum(softmax(logits).cumsum(axis=-1), 1.0)
    below[:, -1] = 1.0

    def draw(number: int) -> np.ndarray:
        return _drawn(below, rng.random((number, len(logits))))

    return best_drawn(costs, best, float(makespan_s(costs, best)), num_samples, draw)


def _drawn(below: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """[samples, Z] by inverse distribution functions [Z, Q]: all requests' rows one after the other, sorted once."""
    num_requests, num_edges = below.shape
    offset = np.arange(num_requests)
    place = np.searchsorted((below + offset[:, None]).ravel(), uniform + offset, side="right")
    return np.minimum(place - offset * num_edges, num_edges - 1)


@dataclass(frozen=True)
class DecodingConfig:
    """How logits become an assignment.

    Attributes:
        num_samples: Drawn assignments beside the likeliest.
        least_share: Edges of a request that are likely: of at least so much of the likeliest one's probability.
        search: Of the local search from the best candidate.
    """

    num_samples: int = 32
    least_share: float = 0.02
    search: LocalSearchConfig = field(default_factory=lambda: LocalSearchConfig(time_s=0.05, restarts=True))


def decode(
    rng: np.random.Generator,
    costs: Costs,
    logits: np.ndarray,
    config: DecodingConfig | None = None,
    first: np.ndarray | None = None,
) -> np.ndarray:
    """[Z] the best of samples, of insertion and of insertion among the likely edges, then a bounded local search.

    Insertion is a candidate like any other, so no answer is worse than insertion and, given the time, a search from it.
    What there is no time for is left out; insertion among the likely edges always is a candidate.

    Args:
        rng: Of samples and restarts.
        costs: Of one instance.
        logits: [Z, Q].
        config: How; its search's time is that of all of this.
        first: [Z] the insertion, where it is known.
    """
    config = config or DecodingConfig()
    begun_s = time.monotonic()
    candidates = [insertion(costs) if first is None else first]
    candidates.append(insertion(likely(costs, logits, config.least_share)))
    if config.num_samples and time.monotonic() - begun_s < config.search.time_s:
        candidates.append(best_of_samples(rng, costs, logits, config.num_samples))
    best = min(candidates, key=lambda edge: float(makespan_s(costs, edge)))
    left_s = max(0.0, config.search.time_s - (time.monotonic() - begun_s))
    return improve(costs, best, replace(config.search, time_s=left_s), rng)


def likely(costs: Costs, logits: np.ndarray, least_share: float) -> Costs:
    """The costs with the unlikely pairs left out; the likeliest edge always stays."""
    keeps = logits >= logits.max(axis=-1, keepdims=True) + np.log(least_share)
    return costs._replace(work_s=np.where(keeps, costs.work_s, np.inf))
