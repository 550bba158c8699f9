"""The lines of a certificate: a measured value, its noise floor, its threshold and its verdict.

A line passes if its whole interval is on the right side of the threshold, fails if the whole interval is on the wrong
side, and cannot tell otherwise. The probability of a false pass is thus bounded by the level of the interval, and more
held-out days turn "cannot tell" into one of the two. Correction for the number of lines: `family`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from scipy.special import stdtr, stdtrit

from evaluation.comparison.bootstrap import (
    Estimate,
    IntervalConfig,
    Statistic,
    student_width,
    weights_of,
    without_interval,
)
from evaluation.comparison.formatting import number

NONE = Estimate(None, None, None, 0, "not measured")
NOTHING = 1e-9
"""Part of its spread by which a value may move when a unit is left out that holds nothing of it: rounding."""
NO_CLONE = (
    "not tested, since the clone is not shown to decide as the log did; more updates of the clone ([certify] "
    "clone_updates) or more held-out days may show it"
)
"""Why a line of the closed loop does not apply."""


class Verdict(Enum):
    """The verdict of a line, or of a whole certificate."""

    PASS = "pass"
    FAIL = "fail"
    CANNOT_TELL = "cannot tell"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Line:
    """One line of a certificate.

    Attributes:
        section: Name of the section.
        name: Name of the measure.
        unit: Unit of the value.
        value: The measure between the twin and the held-out days.
        floor: The measure between real days; without a value where the ideal is known.
        judged: The value compared with the limit: value less floor, or the value.
        limit: Largest accepted value of `judged`, or the smallest one where `higher_is_better`.
        higher_is_better: Whether higher values are better; then the value is a correlation, 1 at most.
        threshold: The limit for display.
        verdict: The verdict.
        reason: Remark on the verdict; may be empty.
        chance: The p-value: probability of a value as bad or worse if the true value is at the limit; None where the
            line cannot fail.
        deciding: Whether a certificate passes only if this line does.
        days: Held-out days needed for a verdict, where it is cannot tell.
    """

    section: str
    name: str
    unit: str
    value: Estimate
    floor: Estimate
    judged: Estimate
    limit: float | None
    higher_is_better: bool
    threshold: str
    verdict: Verdict
    reason: str = ""
    chance: float | None = None
    deciding: bool = False
    days: int | None = None

    def with_remark(self, remark: str) -> "Line":
        """The line with one more remark on its verdict."""
        return replace(self, reason="; ".join(filter(None, (self.reason, remark))))


def against_floor(
    section: str,
    name: str,
    unit: str,
    measured: Statistic,
    floor: Statistic,
    num_units: int,
    tolerance: float,
    config: IntervalConfig,
) -> Line:
    """A line whose value may exceed the noise floor by at most `tolerance`.

    Args:
        section, name, unit: As in `Line`.
        measured: Distance of the twin from the held-out days, as a function of the units' weights.
        floor: The same distance of one real day from another, of the same units.
        num_units: Units of both.
        tolerance: Largest accepted difference of the two.
        config: Of the intervals; twin and floor are drawn together, so what is common cancels.
    """
    weights = weights_of(num_units, config)
    values, floors = measured(weights), floor(weights)
    judged = around(values - floors, num_units, config)
    return Line(
        section, name, unit, around(values, num_units, config), around(floors, num_units, config),
        judged, tolerance, False, f"floor + {number(tolerance)}",
        verdict_of(judged, tolerance, higher_is_better=False), _why(judged),
        chance_of(judged, tolerance, config, higher_is_better=False),
    )  # fmt: skip


def about_zero(
    section: str,
    name: str,
    unit: str,
    measured: Statistic,
    num_units: int,
    limit: float,
    config: IntervalConfig,
    *,
    one_sided: bool = False,
    deciding: bool = False,
    reason: str = "",
) -> Line:
    """A line whose signed value may differ from zero by at most `limit`; on either side, or only above if `one_sided`.

    Its absolute value is compared with the limit, with the interval of the signed value: an interval of the absolute
    value would shrink at zero.
    """
    value = around(measured(weights_of(num_units, config)), num_units, config)
    judged = value
    if value.value is not None and value.value < 0.0 and not one_sided:
        low, high = (None if bound is None else -bound for bound in (value.high, value.low))
        judged = Estimate(-value.value, low, high, num_units, value.reason)
    return Line(
        section, name, unit, value, NONE, judged, limit, False,
        f"{'at most' if one_sided else 'within'} {number(limit)}",
        verdict_of(judged, limit, higher_is_better=False), _remarks(reason, judged),
        chance_of(judged, limit, config, higher_is_better=False), deciding,
    )  # fmt: skip


def against_limit(
    section: str,
    name: str,
    unit: str,
    measured: Statistic,
    num_units: int,
    limit: float,
    config: IntervalConfig,
    *,
    higher_is_better: bool = False,
    floor: Statistic | None = None,
    deciding: bool = False,
    reason: str = "",
) -> Line:
    """A line whose value must be on the right side of a limit that is the same for every log.

    Where a floor is given and real days miss the limit among themselves, a twin that misses it does not fail.
    """
    weights = weights_of(num_units, config)
    ceiling = 1.0 if higher_is_better else np.inf
    value = around(measured(weights), num_units, config, ceiling)
    noise = NONE if floor is None else around(floor(weights), num_units, config, ceiling)
    found = verdict_of(value, limit, higher_is_better=higher_is_better)
    chance = chance_of(value, limit, config, higher_is_better=higher_is_better)
    reached = noise.value is None or (noise.value >= limit if higher_is_better else noise.value <= limit)
    if not reached:
        chance = None
    if found is Verdict.FAIL and not reached:
        found, reason = Verdict.CANNOT_TELL, reason or "real days do not agree better among themselves"
    side = "at least" if higher_is_better else "at most"
    return Line(
        section, name, unit, value, noise, value, limit, higher_is_better,
        f"{side} {number(limit)}", found, _remarks(reason, value), chance, deciding,
    )  # fmt: skip


def not_applicable(section: str, name: str, reason: str) -> Line:
    """A line that does not apply to this log or this twin."""
    return Line(section, name, "", NONE, NONE, NONE, None, False, "none", Verdict.NOT_APPLICABLE, reason)


def silent(line: Line) -> bool:
    """Whether a line does not apply."""
    return line.verdict is Verdict.NOT_APPLICABLE


def verdict_of(judged: Estimate, limit: float, *, higher_is_better: bool) -> Verdict:
    """The verdict of an interval on a limit."""
    if judged.value is None or judged.low is None or judged.high is None:
        return Verdict.CANNOT_TELL
    good, bad = (
        (judged.low >= limit, judged.high < limit)
        if higher_is_better
        else (
            judged.high <= limit,
            judged.low > limit,
        )
    )
    return Verdict.PASS if good else Verdict.FAIL if bad else Verdict.CANNOT_TELL


def chance_of(
    judged: Estimate, limit: float, config: IntervalConfig, *, higher_is_better: bool
) -> float | None:
    """Probability of a value as bad or worse if the true value is at the limit; None without an interval."""
    if judged.value is None or judged.low is None or judged.high is None:
        return None
    beyond = limit - judged.value if higher_is_better else judged.value - limit
    half = judged.value - judged.low
    if half <= 0.0:
        return 0.0 if beyond > 0.0 else 1.0
    freedom = judged.num_units - 1
    return float(stdtr(freedom, -beyond / half * stdtrit(freedom, 0.5 + 0.5 * config.level)))


def around(values: np.ndarray, num_units: int, config: IntervalConfig, ceiling: float = np.inf) -> Estimate:
    """The value with an interval of Student's t times the spread of its replicates on either side.

    Replicates of n units spread less than the value itself by the square root of (n - 1) / n; `student_width` makes up
    for that. Distances between samples grow when units repeat, so the replicates are biased, and their percentiles
    (also corrected ones) would lie on one side of the value. Their standard deviation is not affected.

    Units that hold nothing of what is measured, such as a night without requests, do not count: three others among
    many of them would be taken for many, and the interval would cover 81 % instead of 95 %.

    Args:
        values: [1 + units + replicates], of a statistic on `weights_of`.
        num_units: Number of units.
        config: As the weights were drawn with.
        ceiling: Largest possible value.
    """
    value, replicates = float(values[0]), values[num_units + 1 :]
    defined = np.isfinite(replicates)
    spread = float(np.std(replicates[defined], ddof=1)) if defined.sum() > 1 else 0.0
    moved = ~(np.abs(values[1 : num_units + 1] - value) <= NOTHING * spread)  # by leaving the unit out
    num_holding = int(moved.sum()) if moved.any() and spread > 0.0 else num_units
    if (lone := without_interval(value, defined, num_holding, config)) is not None:
        return lone
    half = student_width(num_holding, config.level) * spread
    return Estimate(value, value - half, min(value + half, ceiling), num_holding)


def _why(judged: Estimate) -> str:
    if judged.value is not None and judged.low is not None:
        return ""
    return judged.reason


def _remarks(reason: str, judged: Estimate) -> str:
    """What is said of a line, and why it has no interval."""
    return "; ".join(filter(None, (reason, _why(judged))))


def combine(statistics: Sequence[Statistic], how: Callable[[np.ndarray], np.ndarray]) -> Statistic:
    """A statistic of other statistics: `how` maps [statistics, replicates] to [replicates]."""
    return lambda weights: how(np.stack([statistic(weights) for statistic in statistics]))
