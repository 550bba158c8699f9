"""Which days of an archive a configuration learns from, and which it judges on."""

import datetime as dt
from collections.abc import Sequence

from evaluation.comparison.shifts import (
    ShiftConfig,
    ShiftPlan,
    choose_train_days,
    kept_back,
    parse_shifts,
    plan_shifts,
)
from evaluation.configuration import DaysConfig
from logs_schema import Archive

KEPT_BACK = "days_kept_back"
"""In a twin's manifest: why it learned from fewer days than were asked for, where it did."""


def train_days_of(archive: Archive, days: DaysConfig, shifts: ShiftConfig) -> tuple[dt.date, ...]:
    """The training days that a configuration asks for."""
    return choose_train_days(
        archive.days("requests"),
        largest_shift_days=max(parse_shifts(shifts.shifts)),
        first_day=days.first_day,
        last_day=days.last_day,
        num_days=days.num_days,
        tail_days=shifts.max_width_days,
    )


def kept_back_of(
    archive: Archive, train_days: Sequence[dt.date], days: DaysConfig, shifts: ShiftConfig
) -> str:
    """Why there are fewer training days than a configuration asks for, in words; empty where there are as many."""
    return kept_back(
        archive.days("requests"), train_days, days.num_days,
        largest_shift_days=max(parse_shifts(shifts.shifts)), tail_days=shifts.max_width_days,
    )  # fmt: skip


def plan_of(archive: Archive, train_days: Sequence[dt.date], shifts: ShiftConfig) -> ShiftPlan:
    """The test days that an archive has for a twin of some training days."""
    counts = {day: archive.num_rows("requests", day) for day in archive.days("requests")}
    return plan_shifts(counts, train_days, shifts)
