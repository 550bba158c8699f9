"""Time-shifted days: train on some days, test on days 0, 1, 7 and 30 days later.

For a log, shift `k` is the day `last training day + 1 + k`. In a ground truth the last training day can be
simulated again with fresh randomness, so there shift `k` is the day `last training day + k`.
A test day with few requests is pooled with the days after it, never with training days, until there are enough requests
or the maximal width is reached; the width is part of the result. A shift that the log is too short for has a note that
states so.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from logs_schema.errors import ConfigError, first

_DAYS_OF = {"d": 1, "w": 7, "m": 30}


@dataclass(frozen=True)
class ShiftConfig:
    """The shifts, and the pooling of test days with few requests.

    Attributes:
        shifts: Days between training and test, for example "0d,1d,7d,30d"; w is 7 days, m is 30.
        min_requests: Requests that a test day, or days pooled to one, should have; >= 1.
        max_width_days: Most days pooled to one test; >= 1.
    """

    shifts: str = "0d,1d,7d,30d"
    min_requests: int = 500
    max_width_days: int = 7

    def __post_init__(self) -> None:
        parse_shifts(self.shifts)
        if self.min_requests < 1 or self.max_width_days < 1:
            raise ConfigError(
                "the pooling of thin days is misconfigured",
                where=f"min_requests={self.min_requests}, max_width_days={self.max_width_days}",
                allowed="both at least 1",
                advice="correct the configuration of the comparison",
            )


@dataclass(frozen=True)
class TestDays:
    """The test days of one shift.

    Attributes:
        shift_days: Days between training and test.
        days: Calendar days, ascending; empty where the log has none.
        num_requests: Requests on these days; None in a ground truth, which simulates any number.
        note: Why there are no days, or a remark about them.
    """

    __test__ = False  # not a test case: pytest collects classes by this name

    shift_days: int
    days: tuple[date, ...]
    num_requests: int | None
    note: str = ""

    @property
    def name(self) -> str:
        """For example "7d"."""
        return f"{self.shift_days}d"


@dataclass(frozen=True)
class ShiftPlan:
    """Training days, and the test days of every shift after them; those of two shifts may overlap."""

    train_days: tuple[date, ...]
    shifts: tuple[TestDays, ...]


def parse_shifts(text: str) -> tuple[int, ...]:
    """The shifts in days, ascending and distinct, of a list such as "0d,1d,1w,1m".

    Raises:
        ConfigError: An entry is not a number of days, weeks or months that is at least 0, or there is none.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    matches = [re.fullmatch(r"(\d{1,4})([dwm])", entry) for entry in entries]
    wrong = [entry for entry, match in zip(entries, matches, strict=True) if match is None]
    if wrong or not entries:
        raise ConfigError(
            "not a list of time shifts",
            where=f"{text!r}: {first(wrong)}" if wrong else repr(text),
            allowed='whole days (d), weeks (w) or months of 30 days (m), 0 or more, such as "0d,1d,1w,30d"',
            advice="name the unit, as in 7d; test days lie after training, never within it",
        )
    return tuple(sorted({int(match[1]) * _DAYS_OF[match[2]] for match in matches if match is not None}))


def choose_train_days(
    days: Iterable[date],
    *,
    largest_shift_days: int,
    first_day: date | None = None,
    last_day: date | None = None,
    num_days: int | None = None,
    tail_days: int = 1,
) -> tuple[date, ...]:
    """Training days: those requested, or as many as leave room for the largest shift.

    Args:
        days: Days of the archive that have requests.
        largest_shift_days: Where `last_day` is not given, training ends this much before the last day of the
            archive (or, in an archive too short for that, at half of its span), on the latest day until then
            after which there are requests to test on, at once and after the largest shift, if there is one.
        first_day, last_day: Bounds, inclusive; None leaves them to the other arguments.
        num_days: Calendar days of training before and including the last; None takes all from `first_day`.
        tail_days: Days to leave for the test itself after the largest shift.

    Returns:
        The archive's days within the window, ascending.

    Raises:
        ConfigError: A bound lies outside the archive's days, or the archive has no day in the window.
    """
    present = sorted(set(days))
    if not present:
        raise ConfigError("the archive has no day with requests", advice="import a log with arrivals")
    outside = [
        f"{name} = {day}"
        for name, day in (("first_day", first_day), ("last_day", last_day))
        if day is not None and not present[0] <= day <= present[-1]
    ]
    if outside:
        raise ConfigError(
            "the training window does not lie within the log",
            where=f"[days] {', '.join(outside)}",
            allowed=f"days between {present[0]} and {present[-1]}",
            advice="name days of the archive, or leave the bound out",
        )
    if last_day is None:
        last_day = _last_train_day(present, first_day, largest_shift_days, tail_days)
    if num_days is not None:
        first_day = last_day - timedelta(days=num_days - 1)
    chosen = tuple(day for day in present if (first_day is None or day >= first_day) and day <= last_day)
    if not chosen:
        raise ConfigError(
            "no day of the archive lies in the training window",
            where=f"window {first_day or present[0]} to {last_day}",
            allowed=f"days between {present[0]} and {present[-1]}",
            advice="name days that have requests ([days] first_day, last_day), or more of them ([days] num_days)",
        )
    return chosen


def _last_train_day(
    present: Sequence[date], first_day: date | None, largest_shift_days: int, tail_days: int
) -> date:
    """Where training ends by default; logs have gaps, and a window that ends in one may hold nothing."""
    latest = present[-1] - timedelta(days=largest_shift_days + tail_days)
    if latest < present[0]:
        latest = present[0] + (present[-1] - present[0]) // 2
    known, until = set(present), [day for day in present if (first_day or day) <= day <= latest]

    def is_tested(day: date) -> bool:
        tests = [
            [day + timedelta(days=1 + shift + n) for n in range(tail_days)]
            for shift in (0, largest_shift_days)
        ]
        return all(not known.isdisjoint(days) for days in tests)

    return next((day for day in reversed(until) if is_tested(day)), until[-1] if until else latest)


def kept_back(
    days: Iterable[date],
    train_days: Sequence[date],
    num_days: int | None,
    *,
    largest_shift_days: int,
    tail_days: int,
) -> str:
    """The reason why training has fewer days than requested, as a sentence; empty where it has as many.

    Args:
        days: Days of the archive that have requests.
        train_days: The training days, as `choose_train_days` found them.
        num_days: Calendar days requested, or None.
        largest_shift_days, tail_days: As of `choose_train_days`.
    """
    present = sorted(set(days))
    width_days = (train_days[-1] - present[0]).days + 1
    if num_days is None or width_days >= num_days:
        return ""
    shortage = f"{width_days} of the {num_days} requested days are trained on: the log begins on {present[0]}"
    if train_days[-1] == present[-1]:
        return f"{shortage} and ends on {present[-1]}"
    first_kept, num_kept = train_days[-1] + timedelta(days=1), (present[-1] - train_days[-1]).days
    return (
        f"{shortage}, and {first_kept} to {present[-1]} ({num_kept} days) are kept back to test on, since the largest "
        f"shift is {largest_shift_days} days and its test takes {tail_days}; choose shorter shifts ([shifts] "
        "shifts), or name the days ([days] last_day)"
    )


def plan_shifts(
    num_requests: Mapping[date, int], train_days: Iterable[date], config: ShiftConfig, *, truth: bool = False
) -> ShiftPlan:
    """The test days of every shift.

    Args:
        num_requests: Requests of every day of the archive.
        train_days: The training days.
        config: Shifts and pooling.
        truth: The days are simulated in a ground truth, which can simulate any day: nothing is pooled or missing.

    Returns:
        The plan; a shift without test days in the log has a note with the reason.

    Raises:
        ConfigError: There are no training days.
    """
    trained = tuple(sorted(set(train_days)))
    if not trained:
        raise ConfigError("there are no training days", advice="choose at least one day of the archive")
    shifts = parse_shifts(config.shifts)
    if truth:
        simulated = [TestDays(shift, (trained[-1] + timedelta(days=shift),), None) for shift in shifts]
        return ShiftPlan(trained, tuple(simulated))
    pooled: list[TestDays] = []
    for shift in shifts:
        test_day = trained[-1] + timedelta(days=1 + shift)
        pooled.append(_with_overlap(_pool(num_requests, shift, test_day, config), pooled))
    plan = ShiftPlan(trained, tuple(pooled))
    refuse_overlap(plan.train_days, plan.shifts)
    return plan


def width_of_last_test(num_requests: Mapping[date, int], config: ShiftConfig) -> int:
    """How many of the log's last days together have the requests of a test; at most `max_width_days`."""
    last_day, total = max(num_requests), 0
    for width in range(1, config.max_width_days):
        total += num_requests.get(last_day - timedelta(days=width - 1), 0)
        if total >= config.min_requests:
            return width
    return config.max_width_days


def answerable(plan: ShiftPlan) -> list[TestDays]:
    """The shifts that the log has test days for.

    Raises:
        ConfigError: There are none.
    """
    found = [shift for shift in plan.shifts if shift.days]
    if not found:
        raise ConfigError(
            "no shift has test days in this log",
            where="; ".join(f"{shift.name}: {shift.note}" for shift in plan.shifts),
            allowed=f"days after the last training day, {plan.train_days[-1]}",
            advice="train on fewer or earlier days ([days] num_days, last_day), or choose shorter shifts",
        )
    return found


def refuse_overlap(train_days: Iterable[date], tests: Iterable[TestDays]) -> None:
    """Raises unless every test day of a log lies after every training day.

    Raises:
        ConfigError: A test day is a training day, or lies before one.
    """
    last = max(train_days)
    early = [f"{test.name}: {day}" for test in tests for day in test.days if day <= last]
    if early:
        raise ConfigError(
            "test days overlap the training window",
            where=first(early),
            allowed=f"days after {last}",
            advice="end training earlier, or test later",
        )


def _pool(num_requests: Mapping[date, int], shift: int, test_day: date, config: ShiftConfig) -> TestDays:
    last_day = max((day for day, count in num_requests.items() if count > 0), default=None)
    if last_day is None or test_day > last_day:
        note = f"the log is too short: it would have to reach {test_day}, and ends on {last_day}"
        return TestDays(shift, (), 0, note)
    days: list[date] = []
    total = 0
    for offset in range(config.max_width_days):
        day = test_day + timedelta(days=offset)
        if num_requests.get(day, 0) > 0:
            days.append(day)
            total += num_requests[day]
        if total >= config.min_requests:
            break
    if not days:
        note = f"no requests in the {config.max_width_days} days from {test_day}"
        return TestDays(shift, (), 0, note)
    return TestDays(shift, tuple(days), total, _thin_note(days, total, test_day, config))


def _thin_note(days: list[date], total: int, test_day: date, config: ShiftConfig) -> str:
    if total < config.min_requests:
        return (
            f"thin: {total} requests in {config.max_width_days} day(s) from {test_day}, "
            f"fewer than min_requests = {config.min_requests}"
        )
    if days == [test_day]:
        return ""
    if len(days) == 1:
        return f"no requests from {test_day} on until {days[0]}, which is judged in their place"
    width_days = (days[-1] - test_day).days + 1
    return f"{width_days} days pooled from {test_day} to reach {config.min_requests} requests"


def _with_overlap(test: TestDays, earlier: list[TestDays]) -> TestDays:
    """The test days, with a note on smaller shifts that share days with them, since pooled windows may overlap."""
    shared = [other.name for other in earlier if set(other.days) & set(test.days)]
    if not shared:
        return test
    note = "; ".join(filter(None, [test.note, f"shares days with {', '.join(shared)}"]))
    return TestDays(test.shift_days, test.days, test.num_requests, note)
