"""Rounding of the relaxation: what it leaves whole stays, the rest is inserted on the exact objective.

A vertex of the relaxed programme splits few requests (for unrelated machines at most one less than there are edges:
Lenstra, Shmoys and Tardos, 1990).
"""

import numpy as np

from offline_rl.assignment.exact import shares_of
from offline_rl.assignment.insertion import insertion, largest_first
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs

_WHOLE = 0.999
"""Share from which on a request counts as whole."""


def lp_rounding(costs: Costs, time_s: float = 60.0) -> np.ndarray:
    """[Z] the rounded assignment, or the insertion where that is better or the relaxation was not solved in time."""
    inserted = insertion(costs)
    best_s = float(makespan_s(costs, inserted))
    shares = shares_of(costs, best_s, time_s)
    if shares is None:
        return inserted
    likeliest = shares.argmax(axis=1)
    is_whole = shares.max(axis=1) > _WHOLE
    order = largest_first(costs)
    rounded = insertion(costs, order[~is_whole[order]], likeliest)
    return rounded if makespan_s(costs, rounded) < best_s else inserted
