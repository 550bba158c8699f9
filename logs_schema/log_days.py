"""The days of a log: how many rows each has, which are missing or thin, and which stretch is dense.

A day is thin if it has less than a tenth of the median day's rows: the tail of a log that begins before its
machine was busy, or a day of maintenance. A time shift of k days needs a test day k + 1 days after the last
training day (the project's definition), so a stretch of d dense days leaves d - k - 1 days to train on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from statistics import median

THIN_SHARE = 0.1
ASTRAY_SHARE, ASTRAY_DAYS = 0.01, 365
"""Days are astray that hold less than this share of a log's rows, farther from all others than the log is long, and
than so many days: misread dates, such as 1970 and 2099."""
SHIFTS_DAYS = {"0 days": 0, "1 day": 1, "1 week": 7, "1 month": 30}


@dataclass(frozen=True)
class LogDays:
    """The days on which requests arrived.

    Attributes:
        rows: Rows per day that has any, ascending.
        missing: Days without rows between the first and the last.
        thin: Days with few rows.
        dense: First and last day of the longest stretch without missing or thin days; None for no rows.
    """

    rows: Mapping[date, int]
    missing: tuple[date, ...]
    thin: tuple[date, ...]
    dense: tuple[date, date] | None

    @property
    def num_dense_days(self) -> int:
        """Length of the dense stretch."""
        return 0 if self.dense is None else (self.dense[1] - self.dense[0]).days + 1

    def training_days(self, shift_days: int) -> int:
        """The most days of the dense stretch to train on that leave a test day `shift_days` later."""
        return max(self.num_dense_days - shift_days - 1, 0)


def log_days(rows: Mapping[date, int]) -> LogDays:
    """Finds missing and thin days and the dense stretch."""
    rows = {day: rows[day] for day in sorted(rows) if rows[day]}
    if not rows:
        return LogDays({}, (), (), None)
    first, last = min(rows), max(rows)
    calendar = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    few = THIN_SHARE * median(rows.values())
    thin = tuple(day for day, num_rows in rows.items() if num_rows < few)
    missing = tuple(day for day in calendar if day not in rows)
    return LogDays(rows, missing, thin, _longest_stretch(sorted(set(rows) - set(thin))))


def _longest_stretch(days: list[date]) -> tuple[date, date]:
    best = current = (days[0], days[0])
    for day in days[1:]:
        current = (current[0], day) if day - current[1] == timedelta(days=1) else (day, day)
        if current[1] - current[0] > best[1] - best[0]:
            best = current
    return best


def days_astray(rows: Mapping[date, int]) -> tuple[date, ...]:
    """Days that are no part of a log, ascending (see `ASTRAY_SHARE`)."""
    days = sorted(rows)
    runs = [days[:1]]
    for before, day in pairwise(days):
        if (day - before).days > ASTRAY_DAYS:
            runs.append([])
        runs[-1].append(day)
    log = max(runs, key=lambda run: sum(rows[day] for day in run))
    few = ASTRAY_SHARE * sum(rows.values())
    found: list[date] = []
    for run in runs:
        if run is log or sum(rows[day] for day in run) >= few:
            continue
        if max((run[0] - log[-1]).days, (log[0] - run[-1]).days) > (log[-1] - log[0]).days:
            found += run
    return tuple(found)
