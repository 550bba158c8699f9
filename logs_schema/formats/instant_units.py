"""Units of instants that are written as numbers since 1970, and which one is likely where the named one is not."""

from collections.abc import Mapping
from datetime import UTC, datetime

from logs_schema.calendar import DAY_S, HOUR_S
from logs_schema.casting import float_of

INSTANT_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Unit -> seconds."""
LONG_UNITS: Mapping[str, float] = {**INSTANT_UNITS, "min": 60.0, "h": HOUR_S, "d": DAY_S}
"""The same with those of durations, and of instants that count from a hidden zero."""
LOOKS_LIKE_EPOCH_S = 5e8
"""A first instant above this is read as seconds since 1970: from a start it would be 16 years."""
YEAR_S = 365.25 * DAY_S
_USUAL_S = 9e8, 2.2e9
"""Instants of logs usually lie between 1998 and 2039."""
USUAL_YEARS = 1990, 2039
DATES_AS_NUMBERS: Mapping[int, str] = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Number of digits -> the form of a date that is written without signs between them."""


def likely_unit(number: float, unit: str) -> str:
    """The unit in which a number is an instant of a usual year; empty where the named unit is right, or none is."""
    if not _is_usual(number * LONG_UNITS[unit]):
        for other, seconds in INSTANT_UNITS.items():
            if _is_usual(number * seconds):
                return other
    return ""


def date_meant(number: float) -> tuple[str, str]:
    """The date that a number such as 20240301 or 202403011200 writes, and its form for `strptime`; empty for none."""
    digits = f"{number:.0f}" if float(number).is_integer() else ""
    layout = DATES_AS_NUMBERS.get(len(digits), "")
    try:
        meant = datetime.strptime(digits, layout) if layout else None
    except ValueError:
        meant = None
    if meant is None or not USUAL_YEARS[0] <= meant.year <= USUAL_YEARS[1]:
        return "", ""
    return f"{meant:%Y-%m-%d}" if len(digits) == 8 else f"{meant:%Y-%m-%dT%H:%M:%S}", layout


def unit_notice(text: str, unit: str, where: str, key: str) -> str:
    """That an instant is likely of another unit than the named one, in words; empty where it is not, or no number."""
    try:
        number = float_of(text)
    except ValueError:
        return ""
    likely, (date, layout) = likely_unit(number, unit), date_meant(number)
    if date:
        form = f'name its form, time_format = "{layout}", in the mapping'
        advice = form if key == "unit" else "write it so"
        return f"{where}: {text[:40]} is read in {unit} since 1970; if the date {date} is meant, {advice}"
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
