"""Insertion under a cap: each request where it costs the edges least, among the edges that still end by the cap.

Insertion by earliest end loses capacity to long ways: a way of a second keeps a fast edge as late as a slow one. Here a
request goes where

    sum over edges of price * exp(alpha * (completion / cap - 1))

grows least (Aspnes, Azar, Fiat, Plotkin and Waarts, 1997), prices being the edges' speeds, so that slow edges take long
ways. A small alpha saves most and balances least; the cap balances instead: an edge that would end after it is taken
only where every edge would, the one that exceeds it least first. The cap is bisected between one that was kept and one
that was not; each trial is linear in requests x edges.
"""

import time

import numpy as np

from offline_rl.assignment.insertion import HeldWork, largest_first
from offline_rl.assignment.terms import speed_prices
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs

_LOW = 0.85
"""The first lower end of the bisection, over the given makespan."""
_ALPHA = 4.0
"""Chosen among 2 to 8 at (50, 600), (200, 3000) and (1000, 15000), without backlogs."""
_TOLERANCE = 0.002
"""Relative width at which the bisection ends."""
_BEYOND, _MOST = 1e6, 300.0
"""Of a completion beyond the cap, in caps: more than any potential near it; of exponents."""
_MAX_TRIALS = 4
"""Caps tried at most."""
_LOOKS_EVERY = 64
"""Requests between two looks at the clock."""


def capped_insertions(costs: Costs, edge: np.ndarray, until_s: float = float("inf")) -> np.ndarray:
    """[Z] the best assignment of a bisection of caps, never worse than `edge`.

    Nothing is drawn: the clock decides only how many trials are made, and one that is not over by `until_s` does not
    count.

    Args:
        costs: Of one instance.
        edge: [Z] some assignment.
        until_s: Time by `time.monotonic` at which the best found so far is returned.
    """
    best, best_s = edge, float(makespan_s(costs, edge))
    low_s = max(_LOW * best_s, float(HeldWork(costs, edge).ended_s().max()))
    prices = speed_prices(costs.work_s)
    order = largest_first(costs)
    for _ in range(_MAX_TRIALS):
        if best_s - low_s <= _TOLERANCE * best_s or time.monotonic() >= until_s:
            break
        cap_s = 0.5 * (low_s + best_s)
        found = _capped(costs, order, cap_s, prices, until_s)
        if found is None:
            break
        found_s = float(makespan_s(costs, found))
        if found_s > cap_s:
            low_s = cap_s
        if found_s < best_s:
            best, best_s = found, found_s
    return best


def _capped(
    costs: Costs, order: np.ndarray, cap_s: float, prices: np.ndarray, until_s: float
) -> np.ndarray | None:
    """[Z] one insertion; None where the time is over before."""
    edge = np.zeros(len(costs.source), np.int64)
    held = HeldWork(costs, edge)
    rate, shift = _ALPHA / cap_s, np.log(np.maximum(prices, 1e-300)) - _ALPHA
    potential = np.exp(np.minimum(rate * held.ended_s() + shift, _MOST))
    then, beyond = np.empty_like(potential), np.empty_like(potential)
    for number, request in enumerate(order.tolist()):
        if number % _LOOKS_EVERY == 0 and time.monotonic() >= until_s:
            return None
        end_s = held.ended_with(request)
        np.subtract(end_s, cap_s, out=beyond)
        np.maximum(beyond, 0.0, out=beyond)
        beyond *= _BEYOND / cap_s
        end_s *= rate
        end_s += shift
        np.minimum(end_s, _MOST, out=end_s)
        np.exp(end_s, out=then)
        beyond += then
        beyond -= potential
        best = int(beyond.argmin())
        edge[request] = best
        potential[best] = then[best]
        held.take(request, best)
    return edge
