"""Holds two orders against each other on what came of them in past weeks: gain, longest waits, fairness.

The *gain* of an order over another is the logarithm of the ratio of their mean bounded slowdowns, half week by half
week, and the mean over paces within each. It is paired (both orders meet the same jobs), and one half week in which a
queue broke down counts no more than another. Constraints are paired likewise: Jain's index of all weeks together rests
on a handful of users, and moved by factors of .5 to 14 on KTH where that of single half weeks moved by a tenth.

A constraint excludes an order only where past weeks *surely* show harm: where the ratio is beyond its limit in 95 % of
bootstrap samples, whole weeks being drawn. Twelve weeks give the 99th percentile of waits an error of its own, so that
a ratio alone excludes good orders as often as bad ones.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from evaluation.problems.ordering.past_weeks import OrderOutcome
from twin.records import at_rows

MOST_P99 = 1.1
"""Times the rule's 99th percentile of waits that another order may have: the geometric mean over paces."""
LEAST_FAIR = 0.9
"""Times the rule's fairness between users that it must have: the geometric mean over half weeks and paces."""
LEAST_BLOCKS = 3
"""Half weeks without which a gain has no error, and weeks without which no harm is sure."""
NUM_SAMPLES = 400
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
    """Whether an order violates no constraint, which are relative to the rule, in past weeks with confidence."""
    weeks = np.unique(rule.week)
    if len(weeks) < LEAST_BLOCKS:
        return True
    drawn = np.random.default_rng(0).integers(0, len(weeks), (NUM_SAMPLES, len(weeks)))
    counts = np.stack([np.bincount(one, minlength=len(weeks)) for one in drawn])
    longest, fair = longest_ratios(seen, rule, counts), fairness_ratios(seen, rule, counts)
    return bool(np.quantile(longest, 1.0 - _LEVEL) <= MOST_P99 and np.quantile(fair, _LEVEL) >= LEAST_FAIR)


def longest_ratios(seen: OrderOutcome, rule: OrderOutcome, counts: np.ndarray) -> np.ndarray:
    """[samples] the 99th percentile of waits over the rule's: the geometric mean over paces.

    Args:
        seen, rule: of the same jobs.
        counts: [samples, weeks] how often each week, in order of time, is in a sample.
    """
    logs = []
    for is_faster in np.unique(rule.is_faster):
        _, week = np.unique(rule.week, return_inverse=True)
        own = week[rule.is_faster == is_faster]
        mine, theirs = (_longest_waits_s(one.at(is_faster).wait_s, own, counts) for one in (seen, rule))
        logs.append(np.log(mine) - np.log(theirs))
    return np.asarray(np.exp(np.mean(logs, axis=0)))


def _longest_waits_s(wait_s: np.ndarray, week: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[samples] the least wait, in seconds and at least one, that 99 % of a sample's jobs do not exceed.

    A sample that has no job of this pace counts as without waits.
    """
    order = np.argsort(wait_s, kind="stable")
    wait_s, week, found = np.maximum(wait_s[order], 1.0), week[order], np.ones(len(counts))
    for sample, count in enumerate(counts):
        below = np.cumsum(count[week])
        if below[-1]:
            found[sample] = wait_s[np.searchsorted(below, 0.99 * below[-1])]
    return found


def fairness_ratios(seen: OrderOutcome, rule: OrderOutcome, counts: np.ndarray) -> np.ndarray:
    """[samples] Jain's index of the users' mean slowdowns over the rule's: the geometric mean over half weeks.

    Args:
        seen, rule, counts: as `longest_ratios`.
    """
    weeks = np.unique(rule.week)
    total, number = np.zeros(len(weeks)), np.zeros(len(weeks))
    for place, week in enumerate(weeks):
        mine, theirs = (at_rows(one, one.week == week) for one in (seen, rule))
        each = _by_block(
            [
                (block, np.log(fairness(mine, rows)) - np.log(fairness(theirs, rows)))
                for block, rows in _cells(theirs)
            ]
        )
        total[place], number[place] = each.sum(), len(each)
    return np.asarray(np.exp((counts @ total) / (counts @ number)))


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
