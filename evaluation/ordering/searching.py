"""Finds the exponents of an index by playing it through generated months: random search with successive halving.

A replay of a month takes hundredths of a second, and the mean bounded slowdown of a month jumps with every tie, so many
months are worth more than a gradient. Candidates begin with published rules and with what theory suggests (`KNOWN`),
perturbed; all are played in a few months, the better half in twice as many, and so on, then the best are perturbed once
more. Every month counts alike, whatever its load: the objective is the mean of the logarithms of the months' mean
bounded slowdowns. Last, ageing: the fastest that costs at most `PRICE` of it is taken, since who waits for weeks is not
in a mean.

Source: successive halving, Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evaluation.metrics.slowdown import bounded_slowdown
from evaluation.ordering.predicting import parts_of, seen_at_arrival
from twin.contracts import PyTree
from twin.ordering.replay import replay
from twin.ordering.rules import LOGGED_ORDER, SAF
from twin.ordering.types import Jobs, Pool, WarmStart
from twin.ordering.windows import window

KNOWN = np.array(
    [
        (0.0, 0.0, 1.0, 1.0, 0.0),
        (0.0, 0.0, 1.0, 0.0, 0.0),
        (0.0, 1.0, 0.0, 1.0, 0.0),
        (1.0, 1.0, 0.0, 1.0, 0.05),
        (2.0, 1.0, 0.0, 1.0, 0.05),
        (2.0, 0.5, 0.5, 1.0, 0.05),
        (3.0, 1.0, 0.0, 1.5, 0.05),
        (2.0, 1.0, 0.0, 0.7, 0.05),
    ]
)
"""Exponents to begin with; the first are smallest area, shortest request and smallest expected area first."""
AGEING = np.array([0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0])
"""Rates to choose among, a day."""
PRICE = 0.02
FEWEST = 4
"""Candidates that are played in all months."""


class Month(NamedTuple):
    """A generated month to play in.

    Attributes:
        jobs: those that wait when it begins, and those that arrive in it.
        warm: what runs when it begins.
        seen: [SEEN, jobs] what was known of each when it arrived, under the schedule it was generated with.
        new: [jobs] bool: arrives in it.
    """

    jobs: Jobs
    warm: WarmStart
    seen: np.ndarray
    new: np.ndarray


class Found(NamedTuple):
    """What a search found.

    Attributes:
        exponents: [5] of the index.
        slowdown: mean bounded slowdown in the months of the search (the mean of the logarithms, undone).
        of_known: [known] that of `KNOWN`.
    """

    exponents: np.ndarray
    slowdown: float
    of_known: np.ndarray


def month_of(jobs: Jobs, start_s: np.ndarray, begin_s: float, pool: Pool) -> Month:
    """A month of generated jobs with a schedule, from `begin_s` on."""
    part, place, warm = window(jobs, start_s, begin_s)
    seen = seen_at_arrival(jobs, start_s, pool)[:, place]
    return Month(part, warm, seen, part.arrival_s >= begin_s)


def search(
    seed: int, predictor: PyTree, months: Sequence[Month], pool: Pool, *, num_candidates: int = 32
) -> Found:
    """Finds exponents.

    Args:
        seed: of the candidates.
        predictor: what the index reads, from `fit_predictor`.
        months: to play in, at least one.
        pool: the processors; jobs are backfilled, smallest area first.
        num_candidates: how many to begin with, those of `KNOWN` among them, and how many to add near the best.
    """
    generator = np.random.default_rng(seed)
    easy = Pool(pool.processors, easy=True)
    ready = [(month, parts_of(predictor, month.seen, month.jobs.arrival_s, pool)) for month in months]
    known: dict[bytes, list[float]] = {}

    def value(exponents: np.ndarray, num_months: int) -> float:
        values = known.setdefault(exponents.tobytes(), [])
        for month, parts in ready[len(values) : num_months]:
            values.append(np.log(promised(month, exponents @ parts, easy)))
        return float(np.mean(values[:num_months]))

    def halve(candidates: np.ndarray, num_months: int) -> np.ndarray:
        while len(candidates) > FEWEST:
            order = np.argsort([value(one, min(num_months, len(ready))) for one in candidates], kind="stable")
            candidates = candidates[order[: max(len(candidates) // 2, FEWEST)]]
            num_months *= 2
        return candidates

    few = max(1, len(ready) // 4)
    best = halve(np.concatenate([KNOWN, _near(generator, KNOWN, num_candidates - len(KNOWN))]), few)
    best = halve(np.concatenate([best, _near(generator, best, num_candidates // 2)]), few)
    chosen = min(best, key=lambda one: value(one, len(ready)))
    aged = [np.append(chosen[:-1], rate) for rate in AGEING if rate > chosen[-1]]
    limit = value(chosen, len(ready)) + np.log1p(PRICE)
    chosen = [chosen, *(one for one in aged if value(one, len(ready)) <= limit)][-1]
    of_known = np.exp([value(one, len(ready)) for one in KNOWN[:3]])
    return Found(chosen, float(np.exp(value(chosen, len(ready)))), of_known)


def promised(month: Month, score: np.ndarray, pool: Pool) -> float:
    """Mean bounded slowdown of an order in a month.

    Args:
        month: the month.
        score: [jobs] highest first.
        pool: the processors, and whether to backfill.
    """
    ranked = month.jobs._replace(logged_start_s=-score)
    wait_s = replay(ranked, pool, LOGGED_ORDER, backfill=SAF, warm=month.warm).start_s - month.jobs.arrival_s
    new = month.new & ~np.isnan(wait_s)
    return float(np.mean(bounded_slowdown(wait_s[new], month.jobs.run_s[new])))


def _near(generator: np.random.Generator, centres: np.ndarray, number: int) -> np.ndarray:
    """[number, 5] exponents near some of the centres; none makes a job worse for having waited."""
    rows = generator.integers(len(centres), size=number)
    spread = np.array([0.6, 0.3, 0.3, 0.3, 0.0])
    moved = centres[rows] + spread * generator.standard_normal((number, 5))
    moved[:, -1] *= np.exp(generator.standard_normal(number))
    return np.maximum(moved, 0.0)
