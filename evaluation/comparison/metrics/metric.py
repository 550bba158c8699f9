"""The type of metrics, and the aggregations that they are made of: ratio, mean and quantile, by resampling unit.

A metric turns `Decisions` into a `Statistic`: a function of unit weights. With all weights one it is the metric itself;
with drawn weights it is a bootstrap replicate. Point value and interval thus come from the same code.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evaluation.comparison.bootstrap import ANYWHERE, SHARE, TIME, Statistic, blocks_of
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.entries import MetricFacts

CHUNK_ELEMENTS = 4_000_000
_RANGES = {"share": SHARE, "jain_fairness": SHARE, "s": TIME}
"""Of metrics, by name or unit."""
STRIDE = 32
"""Values between two of which a quantile has the counts of every unit."""


@dataclass(frozen=True)
class NotApplicable:
    """A metric that the log does not support, with the reason."""

    reason: str


@dataclass(frozen=True)
class Metric:
    """One metric of a policy.

    Attributes:
        name: Name in tables and files.
        unit: Unit of the value; "share" for parts of a whole, "1" for other pure numbers.
        better: "higher", "lower" or "none".
        description: One sentence with the formula in words.
        needs: Information that the log must contain (of `evaluation.comparison.decisions.NEEDS`).
        statistic: Decisions -> function of unit weights.
    """

    name: str
    unit: str
    better: str
    description: str
    needs: tuple[str, ...]
    statistic: Callable[[Decisions], Statistic]

    def applicable(self, decisions: Decisions) -> NotApplicable | None:
        """The reason why the log does not support the metric; None where it does."""
        reasons = [decisions.missing[need] for need in self.needs if need in decisions.missing]
        return NotApplicable("; ".join(reasons)) if reasons else None

    def compute(self, decisions: Decisions) -> float | NotApplicable:
        """The metric on all decisions; NaN where no row counts."""
        refusal = self.applicable(decisions)
        if refusal is not None:
            return refusal
        num_units = blocks_of(decisions.unit).num_units
        return float(self.statistic(decisions)(np.ones((1, num_units)))[0])


def range_of(metric: Metric | MetricFacts) -> tuple[float, float]:
    """What a metric can be: a share and Jain's index lie in [0, 1], and a time is not negative."""
    return _RANGES.get(metric.name, _RANGES.get(metric.unit, ANYWHERE))


def range_of_gap(metric: Metric | MetricFacts) -> tuple[float, float]:
    """What the difference of two policies in a metric can be."""
    low, high = range_of(metric)
    return low - high, high - low


def ratio(decisions: Decisions, numerator: np.ndarray, denominator: np.ndarray) -> Statistic:
    """Sum of `numerator` over sum of `denominator` (both [rows]), added up by unit first; NaN over zero.

    A mean over some rows is the ratio of the masked values to the mask.
    """
    blocks = blocks_of(decisions.unit)
    above = np.bincount(blocks.row_unit, numerator, minlength=blocks.num_units)
    below = np.bincount(blocks.row_unit, denominator, minlength=blocks.num_units)

    def statistic(weights: np.ndarray) -> np.ndarray:
        return _divide(weights @ above, weights @ below)

    return statistic


def mean(decisions: Decisions, value: np.ndarray, where: np.ndarray) -> Statistic:
    """Mean of `value` [rows] over the rows `where` [rows] bool."""
    return ratio(decisions, np.where(where, value, 0.0), where.astype(np.float64))


def quantile(decisions: Decisions, value: np.ndarray, where: np.ndarray, level: float) -> Statistic:
    """The smallest of the `value` [rows] whose cumulative weight over the rows `where` reaches `level` of
    the whole.

    For unit weights this is `numpy.quantile(..., method="inverted_cdf")`. Replicates are found by bisection
    over the sorted values, vectorised over replicates, without a table of replicates by rows: first among every
    `STRIDE`-th value, of which a table of units has the counts, then by single values.
    """
    blocks = blocks_of(decisions.unit)
    order = np.flatnonzero(where)[np.argsort(value[where], kind="stable")]
    ascending, row_unit = value[order], blocks.row_unit[order]
    num_rows, num_units = len(order), blocks.num_units
    num_marks = -(-num_rows // STRIDE)
    marked = np.zeros((num_marks + 1, num_units))
    np.add.at(marked, (np.arange(num_rows) // STRIDE + 1, row_unit), 1.0)
    marked = np.cumsum(marked, axis=0)  # [marks + 1, units] rows before the mark

    def statistic(weights: np.ndarray) -> np.ndarray:
        total = weights @ marked[-1]
        if num_rows == 0:
            return np.full(len(weights), np.nan)
        wanted = level * total * (1.0 - 1e-12)
        low, high = np.zeros(len(weights), np.int64), np.full(len(weights), num_marks - 1)
        while np.any(low < high):
            middle = (low + high) // 2
            reached = np.einsum("ru,ru->r", weights, marked[middle + 1]) >= wanted
            low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        rank = np.minimum(high[:, None] * STRIDE + np.arange(STRIDE), num_rows - 1)
        before = np.einsum("ru,ru->r", weights, marked[high])
        within = np.cumsum(np.take_along_axis(weights, row_unit[rank], axis=1), axis=1)
        first = np.argmax(before[:, None] + within >= wanted[:, None], axis=1)
        return np.where(total > 0.0, ascending[rank[np.arange(len(rank)), first]], np.nan)

    return statistic


def in_chunks(statistic: Statistic, num_columns: int) -> Statistic:
    """The same statistic, computed over few replicates at a time so that memory stays bounded."""
    step = max(1, CHUNK_ELEMENTS // max(num_columns, 1))

    def chunked(weights: np.ndarray) -> np.ndarray:
        parts = [statistic(weights[row : row + step]) for row in range(0, len(weights), step)]
        return np.concatenate(parts)

    return chunked


def _divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0.0)
