"""The lines of a certificate: what was measured, against which noise floor, and what that lets one say.

A line passes if its whole interval is on the right side of the threshold, fails if the whole interval is on the wrong
side, and cannot tell otherwise; so a line that passes by chance is as rare as the interval's level says, and more
held-out days turn "cannot tell" into one of the two. What stands among many lines: `family`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.special import stdtr, stdtrit

from evaluation.comparison.bootstrap import MAX_UNDEFINED, Estimate, IntervalConfig, Statistic, weights_of
from evaluation.comparison.formatting import number

NONE = Estimate(None, None, None, 0, "not measured")


class Verdict(Enum):
    """What a line, or a whole certificate, says."""

    PASS = "pass"
    FAIL = "fail"
    CANNOT_TELL = "cannot tell"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Line:
    """One line of a certificate.

    Attributes:
        section: Where it stands.
        name: What was measured.
        unit: Of the value.
        value: Twin against the held-out days.
        floor: One real day against another; without a value where the ideal is known.
        judged: What is held against the limit: value less floor, or the value.
        limit: Largest good value of `judged`, or the least one where `higher_is_better`.
        higher_is_better: Which way the value points; then it is a correlation, 1 at most.
        threshold: The limit in words.
        verdict: What follows.
        reason: Why there is nothing better to say; empty for a plain verdict.
        chance: Probability of a value as bad or worse, were the true one just at the limit; None where it cannot fail.
        deciding: Whether a certificate passes only if this line does.
        days: Held-out days that would tell, where the line cannot.
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


def against_floor(
    section: str,
    name: str,
    unit: str,
    measured: Statistic,
    floor: Statistic,
    num_units: int,
    tolerance: float,
    config: IntervalConfig,
    *,
    reason: str = "",
) -> Line:
    """A line whose value may exceed the noise floor by at most `tolerance`.

    Args:
        section, name, unit: Of the line.
        measured: Distance of the twin from the held-out days, as a function of the units' weights.
        floor: The same distance of one real day from another, of the same units.
        num_units: Units of both.
        tolerance: Largest good difference of the two.
        config: Of the intervals; twin and floor are drawn together, so what is common cancels.
        reason: What to know about it.

    Returns:
        The line.
    """
    weights = weights_of(num_units, config)
    values, floors = measured(weights), floor(weights)
    judged = around(values - floors, num_units, config)
    return Line(
        section, name, unit, around(values, num_units, config), around(floors, num_units, config),
        judged, tolerance, False, f"floor + {number(tolerance)}",
        verdict_of(judged, tolerance, higher_is_better=False), reason or _why(judged),
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
    """A line whose signed value may lie at most `limit` from zero; on either side, or above alone if `one_sided`.

    What is judged is its size, with the interval of the signed value: that of the size itself would shrink at zero.
    """
    value = around(measured(weights_of(num_units, config)), num_units, config)
    judged = value
    if value.value is not None and value.value < 0.0 and not one_sided:
        low, high = (None if bound is None else -bound for bound in (value.high, value.low))
        judged = Estimate(-value.value, low, high, num_units, value.reason)
    return Line(
        section, name, unit, value, NONE, judged, limit, False,
        f"{'at most' if one_sided else 'within'} {number(limit)}",
        verdict_of(judged, limit, higher_is_better=False), reason or _why(judged),
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
    """A line whose value must lie on the right side of a limit that is the same for every log.

    Where a floor is given and real days do not reach the limit among themselves, a twin that misses it is not failed.
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
        found, reason = Verdict.CANNOT_TELL, reason or "real days do not agree that well among themselves"
    side = "at least" if higher_is_better else "at most"
    return Line(
        section, name, unit, value, noise, value, limit, higher_is_better,
        f"{side} {number(limit)}", found, reason or _why(value), chance, deciding,
    )  # fmt: skip


def not_applicable(section: str, name: str, reason: str) -> Line:
    """A line that this log or this twin has nothing to say to."""
    return Line(
        section, name, "", NONE, NONE, NONE, None, False, "none", Verdict.NOT_APPLICABLE, reason
    )  # fmt: skip


def silent(line: Line) -> bool:
    """Whether a line does not apply."""
    return line.verdict is Verdict.NOT_APPLICABLE


def verdict_of(judged: Estimate, limit: float, *, higher_is_better: bool) -> Verdict:
    """What an interval says about a limit."""
    if judged.value is None or judged.low is None or judged.high is None:
        return Verdict.CANNOT_TELL
    good, bad = (judged.low >= limit, judged.high < limit) if higher_is_better else (
        judged.high <= limit, judged.low > limit,
    )  # fmt: skip
    return Verdict.PASS if good else Verdict.FAIL if bad else Verdict.CANNOT_TELL


def chance_of(
    judged: Estimate, limit: float, config: IntervalConfig, *, higher_is_better: bool
) -> float | None:
    """Probability of a value as bad or worse, were the true one at the limit; None without an interval."""
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

    Distances between samples grow when units repeat, so the replicates lie off the value, and percentiles of them (also
    corrected ones) would shrink to one side of it or miss it. Their spread is not disturbed.

    Args:
        values: [1 + units + replicates], of a statistic on `weights_of`.
        num_units: Number of units.
        config: As the weights were drawn with.
        ceiling: Largest value there can be.
    """
    value, replicates = float(values[0]), values[num_units + 1 :]
    if not np.isfinite(value):
        return Estimate(None, None, None, num_units, "undefined: no row says anything about it")
    if num_units < config.min_units:
        units = "1 unit is" if num_units == 1 else f"{num_units} units are"
        return Estimate(value, None, None, num_units, f"no interval: {units} fewer than {config.min_units}")
    defined = np.isfinite(replicates)
    if np.mean(~defined) > MAX_UNDEFINED:
        return Estimate(value, None, None, num_units, "no interval: too few units say anything about it")
    half = float(stdtrit(num_units - 1, 0.5 + 0.5 * config.level) * np.std(replicates[defined], ddof=1))
    return Estimate(value, value - half, min(value + half, ceiling), num_units)


def _why(judged: Estimate) -> str:
    if judged.value is not None and judged.low is not None:
        return ""
    return judged.reason


def combine(statistics: Sequence[Statistic], how: Callable[[np.ndarray], np.ndarray]) -> Statistic:
    """A statistic made of others: `how` takes [statistics, replicates] to [replicates]."""
    return lambda weights: how(np.stack([statistic(weights) for statistic in statistics]))
