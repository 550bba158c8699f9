"""The lines of a certificate as a family: at most one certificate in twenty fails where nothing is wrong.

Every line that can fail has a probability of what was seen, were its true value just at the limit. Holm's procedure
keeps the probability of any false failure at `FAMILY` over all of them, whatever they have in common (S. Holm, A simple
sequentially rejective multiple test procedure, 1979). To pass needs no such care: a certificate passes only if every
deciding line does, so that a system beyond one of their limits passes no oftener than that one line lets it.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from evaluation.certify.lines import Line, Verdict

FAMILY = 0.05
MAX_DAYS = 1000
ALONE = "it would fail if it stood alone; among so many lines chance may do that"


def settled(lines: Sequence[Line], num_days: int) -> list[Line]:
    """The lines with verdicts that stand in the family, and how many days would tell where none can be told.

    Args:
        lines: With verdicts of their own.
        num_days: Held-out days they rest on.
    """
    rejected = holm([np.nan if line.chance is None else line.chance for line in lines])
    found = []
    for line, fails in zip(lines, rejected, strict=True):
        if line.verdict is Verdict.FAIL and not fails:
            line = replace(line, verdict=Verdict.CANNOT_TELL, reason=line.reason or ALONE)
        if line.verdict is Verdict.CANNOT_TELL:
            line = replace(line, days=days_needed(line, num_days))
        found.append(line)
    return found


def holm(chances: Sequence[float], level: float = FAMILY) -> np.ndarray:
    """Which hypotheses Holm's procedure rejects, [hypotheses] bool; NaN stands for none."""
    chance = np.asarray(chances, float)
    known = np.flatnonzero(np.isfinite(chance))
    order = known[np.argsort(chance[known], kind="stable")]
    below = chance[order] <= level / np.arange(len(order), 0, -1)
    rejected = np.zeros(len(chance), bool)
    rejected[order[: int(np.argmin([*below, False]))]] = True
    return rejected


def days_needed(line: Line, num_days: int) -> int | None:
    """Held-out days after which the line would pass or fail, if its value stayed: its interval shrinks with the root
    of their number. None where it has no interval, or stands too near its limit for a thousand days."""
    judged, limit = line.judged, line.limit
    if limit is None or judged.value is None or judged.low is None or num_days < 1:
        return None
    away = abs(judged.value - limit)
    half = judged.value - judged.low
    if away <= 0.0 or half <= 0.0:
        return None
    days = max(ceil(num_days * (half / away) ** 2), num_days + 1)
    return days if days <= MAX_DAYS else None


def overall(lines: Sequence[Line]) -> Verdict:
    """Fails if a line fails; passes if all deciding lines that apply pass, and one does; else cannot tell.

    Where no line is marked as deciding, all are.
    """
    found = {line.verdict for line in lines}
    if Verdict.FAIL in found:
        return Verdict.FAIL
    deciding = [line for line in lines if line.deciding] or lines
    told = {line.verdict for line in deciding} - {Verdict.NOT_APPLICABLE}
    return Verdict.PASS if told == {Verdict.PASS} else Verdict.CANNOT_TELL
