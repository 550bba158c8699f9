"""Formatting of numbers, intervals and shifts, the same in the terminal and in the report."""

import math
from collections.abc import Mapping
from typing import Any

from evaluation.comparison.bootstrap import Estimate

NO_VALUE = "n/a"
FAR_MARK = "\N{DAGGER}"
"""Mark of a judge's value of a policy that left the support of the judge's log."""
GUESS = (
    "a guess: the policy's decisions met longer queues than those in the twin's log, or are choices that the replayed "
    "log hardly ever took, or for which a few requests lend their outcomes again and again"
)
_DECIMALS = ((1e-12, 3), (0.1, 4), (10.0, 3), (100.0, 2), (1000.0, 1))


def as_sentence(text: str) -> str:
    """A text with its capital, and its full stop if it does not end with a question."""
    return text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")


def number(value: float | None, *, signed: bool = False) -> str:
    """Four decimals below .1, fewer above, thousands separated; "n/a" where there is none."""
    if value is None or not math.isfinite(value):
        return NO_VALUE
    size = abs(value)
    decimals = next((count for bound, count in _DECIMALS if size < bound), 0)
    rounded = round(value, decimals) + 0.0  # no minus before a zero
    return f"{rounded:{'+' if signed else ''},.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def interval(estimate: Estimate, *, signed: bool = False) -> str:
    """For example "[0.812, 0.844]"; "no interval" where there is none."""
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"[{number(estimate.low, signed=signed)}, {number(estimate.high, signed=signed)}]"


def with_interval(estimate: Estimate, *, signed: bool = False) -> str:
    """For example "0.828 [0.812, 0.844]"; "n/a" where there is no value."""
    if estimate.value is None:
        return NO_VALUE
    return f"{number(estimate.value, signed=signed)} {interval(estimate, signed=signed)}"


def cell(row: Mapping[str, Any], name: str, *, signed: bool = False) -> str:
    """A value of a row with its interval, where it has one: the columns are called as by `seeds.named`."""
    low, high = (row[f"{name}_{side}"] for side in ("low", "high"))
    text = number(row[name], signed=signed)
    return text if low is None else f"{text} [{number(low, signed=signed)}, {number(high, signed=signed)}]"


def share_in_words(part: int, whole: int) -> str:
    """For example "8,388 of 3,030,304 requests (0.28 %)"."""
    percent = 100.0 * part / whole
    return f"{part:,} of {whole:,} requests ({percent:{'.2g' if percent < 99.0 else '.1f'}} %)"


def shift_label(shift_days: int) -> str:
    """For example "0 days", "1 day", "1 week", "1 month", "10 days"."""
    named = {1: "1 day", 7: "1 week", 30: "1 month"}
    return named.get(shift_days, f"{shift_days} days")
