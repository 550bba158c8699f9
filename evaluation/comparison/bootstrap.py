"""Confidence intervals: paired block bootstrap of any statistic of units, with BCa intervals for few units.

Requests of one day share its load and conditions, so whole *units* (days, or long blocks of one day) are drawn with
replacement, never single requests. A replicate is a row of weights: how often each unit was drawn. A statistic is a
function of weights, so ratios are resampled as ratios of sums, and two policies evaluated on the same units get the
same weights: what is common to both (a busy day) cancels in their difference.

The interval is BCa (Efron 1987, "Better bootstrap confidence intervals"), its levels widened by the ratio of Student's
t to the normal quantile (Hesterberg 2015, "What teachers should know about the bootstrap", section 3.3), without which
ten units cover 90 % instead of 95 %. Below `min_units` no interval is reliable, and none is given.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from logs_schema.errors import ConfigError

Statistic = Callable[[np.ndarray], np.ndarray]
"""weights [replicates, units] -> values [replicates]; NaN where the drawn units leave the value undefined."""

MAX_UNDEFINED = 0.05
MIN_DAYS, BLOCKS_PER_DAY = 8, 12
"""Fewest days that are resampled as whole days; blocks of equal size that a day is cut into otherwise."""


@dataclass(frozen=True)
class IntervalConfig:
    """Configuration of the intervals.

    Attributes:
        num_replicates: Draws of units, >= 200.
        level: Coverage aimed at, in (0, 1).
        min_units: Fewest units that give an interval, >= 2.
        seed: Of the generator; the same seed gives the same intervals.
    """

    num_replicates: int = 2000
    level: float = 0.95
    min_units: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_replicates < 200 or not 0.0 < self.level < 1.0 or self.min_units < 2:
            raise ConfigError(
                "the bootstrap is misconfigured",
                where=f"num_replicates={self.num_replicates}, level={self.level}, min_units={self.min_units}",
                allowed="num_replicates >= 200, 0 < level < 1, min_units >= 2",
                advice="correct [intervals], or [certify] for certificates",
            )


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval.

    Attributes:
        value: The statistic on all units; None where it is not applicable or undefined.
        low, high: The interval; None where no reliable one can be given.
        num_units: Number of units it is computed from.
        reason: Why there is no value, or no interval; empty where there are both.
    """

    value: float | None
    low: float | None
    high: float | None
    num_units: int
    reason: str = ""


WITHIN_DAY = "within a day"
"""In the names of units that are shorter than a day."""


class DifferenceVerdict(Enum):
    """The verdict on a paired difference."""

    BETTER = "better"
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    NO_DIRECTION = "no direction"


class Blocks(NamedTuple):
    """Rows grouped to units: `row_unit` [rows] in [0, num_units), in the order of sorted labels."""

    labels: np.ndarray
    row_unit: np.ndarray

    @property
    def num_units(self) -> int:
        """Number of distinct units."""
        return len(self.labels)


def blocks_of(unit: np.ndarray) -> Blocks:
    """Groups rows by their unit label [rows]."""
    labels, row_unit = np.unique(unit, return_inverse=True)
    return Blocks(labels, row_unit)


def resampling_units(day: np.ndarray) -> tuple[np.ndarray, str]:
    """The unit of every row: its day where there are `MIN_DAYS`, else consecutive blocks of requests of its day.

    Args:
        day: [rows] day of every row; rows of a day in order of arrival.

    Returns:
        Labels [rows] and the kind of unit in words.
    """
    days, row_day = np.unique(day, return_inverse=True)
    if len(days) >= MIN_DAYS:
        return row_day, "days"
    rank = np.empty(len(day), np.int64)
    counts = np.bincount(row_day, minlength=len(days))
    order = np.argsort(row_day, kind="stable")
    rank[order] = np.arange(len(day)) - np.repeat(np.cumsum(counts) - counts, counts)
    block = rank * BLOCKS_PER_DAY // np.maximum(counts, 1)[row_day]
    return row_day * BLOCKS_PER_DAY + block, f"blocks of consecutive requests {WITHIN_DAY}"


@lru_cache(maxsize=4)  # every metric of a judge and shift has the same
def weights_of(num_units: int, config: IntervalConfig) -> np.ndarray:
    """The weights a statistic is evaluated on, read-only: all units once, each left out in turn, then the draws.

    Args:
        num_units: Number of units, >= 1.
        config: How to draw.

    Returns:
        [1 + units + replicates, units] how often each unit counts; draws sum to `num_units`.
    """
    generator = np.random.default_rng(config.seed)
    share = np.full(num_units, 1.0 / num_units)
    draws = generator.multinomial(num_units, share, size=config.num_replicates)
    weights = np.concatenate([np.ones((1, num_units)), 1.0 - np.eye(num_units), draws])
    weights.flags.writeable = False
    return weights


ANYWHERE, SHARE, GAP_OF_SHARES, TIME = ((-math.inf, math.inf), (0.0, 1.0), (-1.0, 1.0), (0.0, math.inf))
"""What a statistic can be: anything, a share, the difference of two, a time."""


def summarise(
    values: np.ndarray,
    num_units: int,
    config: IntervalConfig,
    within: tuple[float, float] = ANYWHERE,
    num_holding: int | None = None,
) -> Estimate:
    """The estimate behind the values of a statistic, or of a difference of two, on `weights_of`.

    Args:
        values: [1 + units + replicates].
        num_units: Number of units, >= 1.
        config: As the weights were drawn with.
        within: What the statistic can be. Intervals over several seeds are stretched and may reach beyond: they are cut
            there, or at the value itself where that lies beyond.
        num_holding: Units that hold something of what is measured; None: all do.

    Returns:
        The value; its interval, or the reason why there is none.
    """
    num_holding = num_units if num_holding is None else num_holding
    value, without_one, replicates = float(values[0]), values[1 : num_units + 1], values[num_units + 1 :]
    defined = np.isfinite(replicates)
    enough = defined & np.all(np.isfinite(without_one))
    if (lone := without_interval(value, enough, num_holding, config)) is not None:
        return lone
    low, high = _bca(value, replicates[defined], without_one, student_width(num_holding, config.level))
    least, most = min(within[0], value), max(within[1], value)
    return Estimate(value, max(low, least), min(high, most), num_holding)


def without_interval(
    value: float, defined: np.ndarray, num_units: int, config: IntervalConfig
) -> Estimate | None:
    """The estimate and why it has no interval; None where it can have one.

    Args:
        value: Of all units.
        defined: [replicates] bool, whether the statistic is finite.
        num_units: Number of units.
        config: As the weights were drawn with.
    """
    if not np.isfinite(value):
        return Estimate(None, None, None, num_units, "undefined: no row counts for it")
    if num_units < config.min_units:
        units = "1 unit is" if num_units == 1 else f"{num_units} units are"
        return Estimate(value, None, None, num_units, f"no interval: {units} fewer than {config.min_units}")
    if np.mean(~defined) > MAX_UNDEFINED:
        return Estimate(value, None, None, num_units, "no interval: it is undefined on too many units")
    return None


def estimate(statistic: Statistic, num_units: int, config: IntervalConfig) -> Estimate:
    """A statistic of units with its interval; see `summarise`."""
    if num_units == 0:
        return Estimate(None, None, None, 0, "there is nothing to measure")
    return summarise(statistic(weights_of(num_units, config)), num_units, config)


def mean_over_units(values: np.ndarray) -> Statistic:
    """The mean of `values` [units]."""
    return ratio_over_units(values, np.ones(len(values)))


def ratio_over_units(above: np.ndarray, below: np.ndarray) -> Statistic:
    """Sum of `above` [units, ...] over sum of `below` [units, ...]; not finite where the sum below is zero."""

    def statistic(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((weights @ above) / (weights @ below))

    return statistic


def verdict(difference: Estimate, better: str) -> DifferenceVerdict:
    """The verdict on a difference to a reference.

    Args:
        difference: Of a paired comparison.
        better: "higher", "lower" or "none": the better direction of the metric.

    Returns:
        BETTER or WORSE where the interval excludes zero, else CANNOT_TELL; NO_DIRECTION for a metric without a better
        direction.
    """
    if better == "none":
        return DifferenceVerdict.NO_DIRECTION
    if difference.low is None or difference.high is None or difference.low <= 0.0 <= difference.high:
        return DifferenceVerdict.CANNOT_TELL
    return (
        DifferenceVerdict.BETTER
        if (difference.low > 0.0) == (better == "higher")
        else DifferenceVerdict.WORSE
    )


def student_width(num: int, level: float) -> float:
    """Half the width of Student's interval for a mean of so many, in the deviations of means drawn with replacement."""
    return math.sqrt(num / (num - 1)) * float(stdtrit(num - 1, 0.5 + 0.5 * level))


def _bca(value: float, replicates: np.ndarray, without_one: np.ndarray, width: float) -> tuple[float, float]:
    """Bias-corrected and accelerated percentiles, `width` deviations to either side of the middle."""
    num, ordered = len(replicates), np.sort(replicates)
    deviation = without_one.mean() - without_one
    spread = float(np.sum(deviation**2))
    flat = spread <= 1e-24 * value**2  # a percentile that no single unit moves
    acceleration = 0.0 if flat else float(np.sum(deviation**3)) / (6.0 * spread**1.5)
    below = 0.5 * float(ordered.searchsorted(value, "left") + ordered.searchsorted(value, "right")) / num
    bias = float(ndtri(min(max(below, 1.0 / num), 1.0 - 1.0 / num)))
    ends = []
    for shifted in (bias - width, bias + width):
        adjusted = float(ndtr(bias + shifted / max(1.0 - acceleration * shifted, 1e-3)))
        ends.append(_percentile(ordered, adjusted))
    low, high = ends
    return float(min(low, value)), float(max(high, value))


def _percentile(ordered: np.ndarray, level: float) -> float:
    """`numpy.quantile` of values in their order, which takes several times as long."""
    place = level * (len(ordered) - 1)
    index = math.floor(place)
    part, low = place - index, float(ordered[index])
    high = float(ordered[min(index + 1, len(ordered) - 1)])
    return high - (high - low) * (1.0 - part) if part >= 0.5 else low + (high - low) * part
