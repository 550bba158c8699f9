"""A lower bound of the makespan at any size: the dual of a relaxation, raised by multiplicative weights.

Whatever T an assignment reaches, no pair that alone ends after T is in it, and on every edge (equation 13, with what
only adds left out)

    local + transferred + returning + sum of all work          <= T
    arriving + transferred + returning + sum of sent work      <= T

Weights w >= 0 of these 2 Q rows that sum to one make one inequality of them: the weighted backlog plus, for every
request, its cheapest weighted work among the pairs left is at most T. So `dual(T)`, that sum with the pairs left at T,
shows that nothing below min(T, dual(T)) can be reached. Weights of rows that the cheapest choices overload are raised
(Plotkin, Shmoys and Tardos, 1995, for unrelated machines), and T follows what has been shown.
"""

from typing import NamedTuple

import numpy as np

from twin.assignment.objective import alone_s
from twin.assignment.types import Costs

_LEAST = 1e-30
"""Of weights and of seconds that are divided by."""
_TOLERANCE = 1e-4
"""How near to the given makespan, relatively, ends the search."""
_SENT_SHARE = 5e-4
"""Of the weights at first, on rows of sent work: they can still rise, and a large share makes staying look cheap."""


class _Relaxed(NamedTuple):
    """The relaxation of one instance."""

    work_s: np.ndarray  # [Z, Q]
    stays: np.ndarray  # [Z, Q] bool
    alone_s: np.ndarray  # [Z, Q]
    base_s: np.ndarray  # [2, Q] what the rows hold already


def lower_bound_s(costs: Costs, best_s: float, *, num_rounds: int = 300) -> float:
    """A makespan that no assignment undercuts.

    Args:
        costs: Of one instance.
        best_s: The makespan of some assignment: what the bound cannot exceed.
        num_rounds: Of raising weights; each looks at every pair once.
    """
    relaxed = _relaxed(costs)
    low_s = float(max(relaxed.base_s.max(), relaxed.alone_s.min(axis=1).max()))
    speed = _first_weights(relaxed)
    weights = np.outer([1.0 - _SENT_SHARE, _SENT_SHARE], speed / speed.sum())
    target_s, allowed = best_s, None
    for number in range(num_rounds):
        if best_s - low_s <= _TOLERANCE * best_s:
            break
        if allowed is None:
            allowed = np.where(relaxed.alone_s <= target_s * (1.0 + 1e-12), relaxed.work_s, np.inf)
        dual_s, ends_s = _dual(relaxed, allowed, weights)
        low_s = max(low_s, min(dual_s, target_s))
        if number % 20 == 19 and low_s < target_s:  # fewer pairs, a larger dual; still valid below the target
            target_s, allowed = low_s + 0.5 * (target_s - low_s), None
        elif low_s >= target_s:
            target_s, allowed = low_s + 0.5 * (best_s - low_s), None
        rate = 1.0 / np.sqrt(1.0 + 0.5 * number)
        weights = weights * np.exp(rate * (ends_s / max(dual_s, low_s) - 1.0).clip(-2.0, 2.0))
        weights = np.maximum(weights / weights.sum(), _LEAST)
    return min(low_s, best_s)


def _relaxed(costs: Costs) -> _Relaxed:
    num_edges = len(costs.local_s)
    after_s = costs.transferred_s + costs.returning_s
    return _Relaxed(
        costs.work_s,
        costs.source[:, None] == np.arange(num_edges),
        alone_s(costs),
        np.stack([costs.local_s + after_s, costs.arriving_s + after_s]),
    )


def _first_weights(relaxed: _Relaxed) -> np.ndarray:
    """[Q] the edges' speeds: then a request's weighted work is about the same everywhere."""
    work_s = np.where(np.isfinite(relaxed.work_s), relaxed.work_s, 0.0)
    total_s = work_s.sum(axis=0)
    return 1.0 / np.maximum(total_s, max(1e-9 * total_s.max(), _LEAST))


def _dual(relaxed: _Relaxed, allowed_s: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """The dual's value, and [2, Q] what the rows come to under each request's cheapest choice."""
    price = weights.sum(axis=0)
    weighted = allowed_s * price
    own = np.flatnonzero(relaxed.stays.any(axis=1))
    source = relaxed.stays[own].argmax(axis=1)
    weighted[own, source] = allowed_s[own, source] * weights[0, source]
    edge = weighted.argmin(axis=1)
    requests = np.arange(len(edge))
    value_s = float(weighted[requests, edge].sum() + (weights * relaxed.base_s).sum())
    work_s, stays = relaxed.work_s[requests, edge], relaxed.stays[requests, edge]
    num_edges = len(price)
    ends_s = relaxed.base_s + np.stack(
        [np.bincount(edge, work_s, num_edges), np.bincount(edge, np.where(stays, 0.0, work_s), num_edges)]
    )
    return value_s, ends_s
