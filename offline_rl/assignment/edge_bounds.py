"""A lower bound of the makespan that counts the longest way back of every edge, which `bounds` leaves out.

Give every request a value u >= 0. If all requests are answered by T, then their values together are at most

    sum over edges of the largest value of requests that one edge alone could answer by T

so a T at which that sum is smaller than all values is not reached by any assignment (the configuration programme's
dual; Lagrangian relaxation of "every request has one edge"). What one edge can answer is bounded from above by levels
of its longest way back: with the longest between l and l', only requests with ways of at most l' are there, and their
work, the largest value per second first and the last in part, fills T less the backlogs and l. Values
of requests that are taken by several edges fall, those of requests that none takes rise.
"""

from typing import NamedTuple

import numpy as np

from twin.assignment.objective import alone_s
from twin.assignment.types import Costs

_LEVELS, _TARGETS = 12, 24
_ROUNDING = 1e-9
"""What an edge is given besides, relative to T, so that rounding cannot make the bound too high."""


class _EdgeAlone(NamedTuple):
    """One edge and the requests that it could answer in time."""

    requests: np.ndarray  # [n]
    work_s: np.ndarray  # [n]
    result_s: np.ndarray  # [n]
    levels_s: np.ndarray  # [levels] the first holds already
    least_s: np.ndarray  # [levels] the shortest way above the level before
    backlog_s: float


def edge_bound_s(costs: Costs, best_s: float, low_s: float, num_rounds: int = 30) -> float:
    """A makespan that no assignment undercuts, at least `low_s`.

    Args:
        costs: Of one instance.
        best_s: The makespan of some assignment.
        low_s: What is known already.
        num_rounds: Of changing values; each looks at every pair once a level.
    """
    if not len(costs.source) or best_s <= low_s:
        return low_s
    edges = _edges(costs, best_s)
    value = np.min(costs.work_s, axis=1).astype(float)
    value = np.maximum(value, 1e-6 * max(float(value.max()), 1e-300))
    aim_s = 0.5 * (low_s + best_s)
    for number in range(num_rounds):
        targets_s = np.append(np.linspace(low_s, best_s, _TARGETS + 1)[1:], aim_s)
        most, taken = np.zeros(len(targets_s)), np.zeros(len(value))
        for one in edges:
            found, share = _most_valued(one, value, targets_s)
            most += found
            taken[one.requests] += share
        total = value.sum()
        shown = targets_s[most < total * (1.0 - _ROUNDING)]
        low_s = max(low_s, float(shown.max(initial=0.0)))
        if low_s >= best_s:
            return best_s
        aim_s = low_s + 0.5 * (best_s - low_s) / _TARGETS
        rate = 0.1 / np.sqrt(1.0 + 0.3 * number)
        value = value * np.exp(rate * (1.0 - taken).clip(-2.0, 1.0))
    return low_s


def _edges(costs: Costs, best_s: float) -> list[_EdgeAlone]:
    in_time = alone_s(costs) <= best_s * (1.0 + _ROUNDING)
    found = []
    for one in range(len(costs.local_s)):
        requests = np.flatnonzero(in_time[:, one])
        result_s, returning_s = costs.result_s[requests, one], float(costs.returning_s[one])
        longer_s = result_s[result_s > returning_s]
        levels_s = np.array([returning_s])
        if len(longer_s):
            levels_s = np.append(levels_s, np.unique(np.quantile(longer_s, np.linspace(0.0, 1.0, _LEVELS))))
        backlog_s = float(costs.local_s[one] + costs.transferred_s[one])
        work_s = np.maximum(costs.work_s[requests, one], 1e-12)
        least_s = np.array([returning_s, *(longer_s[longer_s > level].min() for level in levels_s[:-1])])
        found.append(_EdgeAlone(requests, work_s, result_s, levels_s, least_s, backlog_s))
    return found


def _most_valued(one: _EdgeAlone, value: np.ndarray, targets_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[targets] value at most of what the edge answers in time, and [n] the shares of requests at the last target."""
    worth = value[one.requests]
    order = np.argsort(-worth / one.work_s)
    work_s, worth, result_s = one.work_s[order], worth[order], one.result_s[order]
    most, share = np.zeros(len(targets_s)), np.zeros(len(order))
    for level_s, least_s in zip(one.levels_s, one.least_s, strict=True):
        kept = np.flatnonzero(result_s <= level_s * (1.0 + 1e-12))
        room_s = targets_s * (1.0 + _ROUNDING) - one.backlog_s - least_s
        filled_s = np.append(0.0, np.cumsum(work_s[kept]))
        valued = np.append(0.0, np.cumsum(worth[kept]))
        found = np.where(room_s >= 0.0, np.interp(room_s, filled_s, valued), 0.0)
        if found[-1] > most[-1]:
            share[:] = 0.0
            share[order[kept]] = ((room_s[-1] - filled_s[:-1]) / work_s[kept]).clip(0.0, 1.0)
        most = np.maximum(most, found)
    return most, share
