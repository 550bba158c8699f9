"""Holds two orders against each other on what came of them in past weeks: gain, longest waits, fairness.

The *gain* of an order over another is the logarithm of the ratio of their mean bounded slowdowns, half week by half
week, and the mean over paces within each. It is paired (both orders meet the same jobs), and one half week in which a
queue broke down counts no more than another. Constraints are paired likewise: Jain's index of all weeks together rests
on a handful of users, and moved by factors of .5 to 14 on KTH where that of single half weeks moved by a tenth.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from evaluation.problems.ordering.past_weeks import OrderOutcome

MOST_P99 = 1.1
"""Times the rule's 99th percentile of waits that another order may have: the geometric mean over paces."""
LEAST_FAIR = 0.9
"""Times the rule's fairness between users that it must have: the geometric mean over half weeks and paces."""
LEAST_BLOCKS = 3
_LEVEL = 0.95


class Gain(NamedTuple):
    """The gain of an order over another.

    Attributes:
        mean: over half weeks.
        error: its standard error; infinite of fewer than three half weeks.
        num_blocks: half weeks.
    """

    mean: float
    error: float
    num_blocks: int

    def low(self, num_tried: int) -> float:
        """The lower end of its interval (Student's t, 95 %), widened for the number of orders tried."""
        if not np.isfinite(self.error):
            return -np.inf
        level = 1.0 - (1.0 - _LEVEL) / max(1.0, np.log2(max(num_tried, 2)))
        return float(self.mean - stdtrit(self.num_blocks - 1, level) * self.error)

    def shrunk(self, mean: float, deviation: float) -> float:
        """The posterior mean where such gains are normal elsewhere, of a given mean and standard deviation; minus
        infinity without an error of its own."""
        if not np.isfinite(self.error):
            return -np.inf
        weight = deviation**2 / (deviation**2 + self.error**2)
        return float(weight * self.mean + (1.0 - weight) * mean)


def gain_of(seen: OrderOutcome, held: OrderOutcome) -> Gain:
    """The gain of an order over another, of the same jobs."""
    cells = [
        (block, np.log(held.slowdown[rows].mean()) - np.log(seen.slowdown[rows].mean()))
        for block, rows in _cells(held)
    ]
    each = _by_block(cells)
    if len(each) < LEAST_BLOCKS:
        return Gain(float(each.mean()), np.inf, len(each))
    return Gain(float(each.mean()), float(np.std(each, ddof=1) / np.sqrt(len(each))), len(each))


def is_allowed(seen: OrderOutcome, rule: OrderOutcome) -> bool:
    """Whether an order keeps to the constraints, which are relative to the rule."""
    return longest_ratio(seen, rule) <= MOST_P99 and fairness_ratio(seen, rule) >= LEAST_FAIR


def longest_ratio(seen: OrderOutcome, rule: OrderOutcome) -> float:
    """The 99th percentile of waits over the rule's: the geometric mean over paces."""
    logs = []
    for is_faster in np.unique(rule.is_faster):
        mine, theirs = (float(np.quantile(one.at(is_faster).wait_s, 0.99)) for one in (seen, rule))
        logs.append(np.log(max(mine, 1.0)) - np.log(max(theirs, 1.0)))
    return float(np.exp(np.mean(logs)))


def fairness_ratio(seen: OrderOutcome, rule: OrderOutcome) -> float:
    """Jain's index of the users' mean slowdowns over the rule's: the geometric mean over half weeks."""
    cells = [
        (block, np.log(fairness(seen, rows)) - np.log(fairness(rule, rows))) for block, rows in _cells(rule)
    ]
    return float(np.exp(_by_block(cells).mean()))


def fairness(seen: OrderOutcome, rows: np.ndarray) -> float:
    """Jain's index of the users' mean slowdowns, of some jobs; 1 where no user is known."""
    rows = rows[seen.agent[rows] >= 0]
    if not len(rows):
        return 1.0
    _, user = np.unique(seen.agent[rows], return_inverse=True)
    each = np.bincount(user, weights=seen.slowdown[rows]) / np.bincount(user)
    return float(each.sum() ** 2 / (len(each) * (each**2).sum()))


def _cells(seen: OrderOutcome) -> Iterator[tuple[float, np.ndarray]]:
    """Every half week at every pace: the half week, and its jobs."""
    cell = np.stack([seen.block, seen.is_faster])
    kinds, place = np.unique(cell, axis=1, return_inverse=True)
    for number, block in enumerate(kinds[0].tolist()):
        yield block, np.flatnonzero(place == number)


def _by_block(cells: list[tuple[float, float]]) -> np.ndarray:
    """[half weeks] the means over paces."""
    block, value = np.array(cells).T
    _, place = np.unique(block, return_inverse=True)
    return np.asarray(np.bincount(place, weights=value) / np.bincount(place))
