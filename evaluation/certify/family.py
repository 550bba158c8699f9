"""Multiple testing over the lines of a certificate: at most one certificate in twenty fails for a correct twin.

Every line that can fail has a p-value: the probability of the observed value, or a worse one, if the true value is at
the limit. Holm's procedure bounds the probability of any false failure by `FAMILY` over all lines, under any dependence
(S. Holm, A simple sequentially rejective multiple test procedure, 1979). Passing needs no correction: a certificate
passes only if every deciding line does, so a system beyond one limit passes at most as often as that line alone.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from evaluation.certify.lines import Line, Verdict
from evaluation.comparison.bootstrap import IntervalConfig

FAMILY = 0.05
MAX_DAYS = 1000
ALONE = "it would fail on its own; among this many lines it may be chance"


def settled(lines: Sequence[Line], num_days: int) -> list[Line]:
    """The lines with verdicts corrected for their number, and the days needed where the verdict is cannot tell."""
    rejected = holm([np.nan if line.chance is None else line.chance for line in lines])
    found = []
    for line, fails in zip(lines, rejected, strict=True):
        if line.verdict is Verdict.FAIL and not fails:
            line = replace(line.with_remark(ALONE), verdict=Verdict.CANNOT_TELL)
        if line.verdict is Verdict.CANNOT_TELL:
            line = replace(line, days=days_needed(line, num_days))
        found.append(line)
    return found


def holm(chances: Sequence[float]) -> np.ndarray:
    """Which hypotheses Holm's procedure rejects, [hypotheses] bool; NaN stands for none."""
    chance = np.asarray(chances, float)
    known = np.flatnonzero(np.isfinite(chance))
    order = known[np.argsort(chance[known], kind="stable")]
    below = chance[order] <= FAMILY / np.arange(len(order), 0, -1)
    rejected = np.zeros(len(chance), bool)
    rejected[order[: int(np.argmin([*below, False]))]] = True
    return rejected


def days_needed(line: Line, num_days: int) -> int | None:
    """Held-out days after which the line passes or fails if its value stays the same: its interval shrinks with the
    square root of their number. Of too few units for an interval those days that have enough. None where neither is
    known, or where it takes more than `MAX_DAYS`."""
    judged, limit = line.judged, line.limit
    if limit is None or judged.value is None or num_days < 1:
        return None
    least = IntervalConfig().min_units
    if judged.low is None and 0 < judged.num_units < least:
        return ceil(num_days * least / judged.num_units)
    if judged.low is None:
        return None
    away = abs(judged.value - limit)
    half = judged.value - judged.low
    if away <= 0.0 or half <= 0.0:
        return None
    days = max(ceil(num_days * (half / away) ** 2), num_days + 1)
    return days if days <= MAX_DAYS else None


def overall(lines: Sequence[Line], *, but_for: Collection[str] = ()) -> Verdict:
    """The overall verdict: fail if a line fails; pass if all applicable deciding lines pass, and there is one; else
    cannot tell. Where no line is marked as deciding, all are. Lines of the sections `but_for` do not count.
    """
    counting, deciding = _counting(lines, but_for)
    if Verdict.FAIL in {line.verdict for line in counting}:
        return Verdict.FAIL
    verdicts = {line.verdict for line in deciding} - {Verdict.NOT_APPLICABLE}
    return Verdict.PASS if verdicts == {Verdict.PASS} else Verdict.CANNOT_TELL


def withholding(lines: Sequence[Line], *, but_for: Collection[str] = ()) -> list[Line]:
    """The lines that keep `overall` from pass: those that fail, or, where none does, the deciding ones that cannot
    tell."""
    counting, deciding = _counting(lines, but_for)
    failed = [line for line in counting if line.verdict is Verdict.FAIL]
    return failed or [line for line in deciding if line.verdict is Verdict.CANNOT_TELL]


def _counting(lines: Sequence[Line], but_for: Collection[str]) -> tuple[list[Line], list[Line]]:
    """The lines that count, and those of them that decide."""
    counting = [line for line in lines if line.section not in but_for]
    some_decide = any(line.deciding for line in lines)
    return counting, [line for line in counting if line.deciding or not some_decide]
