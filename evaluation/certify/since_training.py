"""What fails on later days, held against the days of training: has the system changed since, or is the form wrong?

A line that fails on held-out days and passes on the training days was right when the twin was fitted: newer days mend
it. One that fails there as well will fail after every fit: a table of means cannot follow nodes that are shared, for
example. Only one-step lines are compared, as they need nothing but the logged states. The training days were fitted on,
so a pass there is no evidence for the twin; their last windows are taken, as many requests as were held out.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from evaluation.certify.lines import Line, Verdict
from evaluation.certify.tested_system import SystemUnderTest
from evaluation.comparison.formatting import number
from logs_schema.calendar import DAY_S
from twin.placement.windows import Windows, select

CHANGED = (
    "what one-step lines find beyond their limits is within them on the training days: the system has changed since; "
    "fit newer days"
)
WRONG_FORM = (
    "what one-step lines find beyond their limits is so on the training days too: the twin cannot represent what runs, "
    "waits or answers depend on here, or was fitted in too few steps ([twin] num_steps); newer days will not mend it"
)
OPEN = (
    "whether what one-step lines find beyond their limits was so on the training days already cannot be told"
)


def last_windows(tested: SystemUnderTest, num_requests: int) -> list[Windows]:
    """The last windows of the training days, day by day, with so many requests at most; one at least."""
    return [select(tested.windows, rows) for rows in last_rows(tested.windows, num_requests)]


def last_rows(windows: Windows, num_requests: int) -> list[np.ndarray]:
    """Indices of the last windows, day by day, see `last_windows`."""
    kept = np.flatnonzero(np.cumsum(windows.length[::-1])[::-1] <= num_requests)
    chosen = kept if len(kept) else np.array([windows.num_windows - 1])
    day = np.floor_divide(windows.origin_s[chosen], DAY_S)
    return [chosen[day == one] for one in np.unique(day)]


def key_of(line: Line) -> str:
    """What a line is known by in a certificate."""
    return f"{line.section}: {line.name}"


def held_against_training(
    lines: Sequence[Line], in_training: Callable[[], Sequence[Line]]
) -> tuple[list[Line], dict[str, Verdict]]:
    """One-step lines whose failures are held against the training days.

    Args:
        lines: Of the held-out days, each with its own verdict.
        in_training: Returns the same lines on training days; called where a line fails.

    Returns:
        The lines, those that fail with a remark on training days; and the verdicts there of these, by `key_of`: not
        applicable where the training days do not tell.
    """
    if all(line.verdict is not Verdict.FAIL for line in lines):
        return list(lines), {}
    before = {key_of(line): line for line in in_training()}
    found, verdicts = [], dict[str, Verdict]()
    for line in lines:
        if line.verdict is Verdict.FAIL:
            then = before.get(key_of(line))
            verdicts[key_of(line)] = Verdict.NOT_APPLICABLE
            if then is not None and then.judged.value is not None:
                verdicts[key_of(line)] = then.verdict
                line = line.with_remark(f"on training days {number(then.judged.value)}: {then.verdict.value}")
        found.append(line)
    return found, verdicts


def since_training(lines: Sequence[Line], in_training: Mapping[str, Verdict]) -> str:
    """What follows from the one-step lines that fail, in words; empty where none does.

    Args:
        lines: Of a certificate, their verdicts corrected for their number: one that fails on its own alone, as it may
            by chance, says nothing of the twin's form.
        in_training: The verdicts on training days, as of `held_against_training`.
    """
    failed = {key_of(line) for line in lines if line.verdict is Verdict.FAIL}
    verdicts = {verdict for name, verdict in in_training.items() if name in failed}
    if not verdicts:
        return ""
    if Verdict.FAIL in verdicts:
        return WRONG_FORM
    return CHANGED if verdicts == {Verdict.PASS} else OPEN
