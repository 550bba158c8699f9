"""Units of instants that are written as numbers since 1970, and which one is likely where the named one is not."""

from collections.abc import Mapping
from datetime import UTC, datetime

from logs_schema.casting import float_of

INSTANT_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Unit -> seconds."""
YEAR_S = 365.25 * 86400.0
_USUAL_S = 9e8, 2.2e9
"""Instants of logs usually lie between 1998 and 2039."""


def likely_unit(number: float, unit: str) -> str:
    """The unit in which a number is an instant of a usual year; empty where the named unit is right, or none is."""
    if not _is_usual(number * INSTANT_UNITS[unit]):
        for other, seconds in INSTANT_UNITS.items():
            if _is_usual(number * seconds):
                return other
    return ""


def unit_notice(text: str, unit: str, where: str, key: str) -> str:
    """That an instant is likely of another unit than the named one, in words; empty where it is not, or no number."""
    try:
        number = float_of(text)
    except ValueError:
        return ""
    likely = likely_unit(number, unit)
    if not likely:
        return ""
    meant = datetime.fromtimestamp(number * INSTANT_UNITS[likely], UTC)
    return (
        f"{where}: {text[:40]} is read in {unit} since 1970; in {likely} it would be {meant:%Y-%m-%d %H:%M} UTC: "
        f'is {key} = "{likely}" meant in the mapping?'
    )


def duration_notice(text: str, where: str, unit_s: float) -> str:
    """That a duration is likely an instant, in words; empty where it is not, or no number.

    Args:
        text: The number.
        where: What it is, for the notice.
        unit_s: Seconds that its unit has.
    """
    try:
        seconds = float_of(text) * unit_s
    except ValueError:
        return ""
    if not seconds >= _USUAL_S[0]:
        return ""
    return (
        f"{where}: {text[:40]} would last {seconds / YEAR_S:,.0f} years: a duration is meant, in its unit; "
        "of an instant subtract the arrival first"
    )


def _is_usual(seconds: float) -> bool:
    low_s, high_s = _USUAL_S
    return low_s <= seconds <= high_s
