"""The training days and the test days of an archive under a configuration."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evaluation.comparison.shifts import (
    ShiftConfig,
    ShiftPlan,
    TestDays,
    choose_train_days,
    kept_back,
    parse_shifts,
    plan_shifts,
    refuse_overlap,
    width_of_last_test,
)
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.log_days import days_astray
from logs_schema.settings import refuse_below_one
from logs_schema.tables import DEPLOYMENT_SAMPLES, REQUESTS
from twin.placement.bookkeeping import VIEWS
from twin.placement.columns import instant_s
from twin.placement.encoding import GRANULARITIES

KEPT_BACK = "days_kept_back"
"""Key in a twin's manifest: why it was fitted on fewer days than requested, where it was."""
HOURS_UNSEEN = "hours_unseen"
"""The same: hours of the day that training has nothing of, and its test days have."""
FEW_DAYS, MOST_UNSEEN = 2, 0.05
"""Training days of which it is asked whether they are whole, at most, and what share of the tests' requests may arrive
in hours without any in training."""


@dataclass(frozen=True)
class DaysConfig:
    """Training data: window of days, granularity and observation.

    Attributes:
        first_day, last_day: Bounds of the training window, inclusive; chosen to leave room for the shifts if absent.
        num_days: Length of the training window in days before and including the last.
        granularity: Whether decisions name machines ("node") or node classes ("class"); "auto" chooses by the log.
        view: What a site observes of the nodes of other sites: "full", as one scheduler for all sites does, and as a
            bundle is told of them; or "summary", their mean, where sites tell each other no more.
        num_steps: Requests per window of replayed arrivals, and steps of a training rollout.
    """

    first_day: dt.date | None = None
    last_day: dt.date | None = None
    num_days: int | None = None
    granularity: str = "auto"
    view: str = "full"
    num_steps: int = 128

    def __post_init__(self) -> None:
        refuse_below_one("[days]", num_steps=self.num_steps)
        if self.num_days is not None:
            refuse_below_one("[days]", num_days=self.num_days)
        for name, allowed in (("granularity", GRANULARITIES), ("view", VIEWS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} = {getattr(self, name)!r}", where="[days]", allowed=", ".join(allowed)
                )
        if self.first_day and self.last_day and self.first_day > self.last_day:
            raise ConfigError(
                "the last day lies before the first",
                where=f"[days] first_day {self.first_day}, last_day {self.last_day}",
                allowed="first_day up to last_day, both included",
            )


def days_with_rows(archive: Archive) -> tuple[str, list[dt.date]]:
    """The table that days are counted in, with its days: requests, or samples of deployments where there are none."""
    table = REQUESTS.name if archive.days(REQUESTS.name) else DEPLOYMENT_SAMPLES.name
    return table, days_of(archive, table)


def days_of(archive: Archive, table: str) -> list[dt.date]:
    """The days that have rows of a table, but for those astray, as misread dates are."""
    days = archive.days(table)
    astray = set(days_astray({day: archive.num_rows(table, day) for day in days}))
    return [day for day in days if day not in astray]


def train_days_of(archive: Archive, days: DaysConfig, shifts: ShiftConfig) -> tuple[dt.date, ...]:
    """The training days under a configuration; to have as many as requested, tests get no more days than they need."""
    chosen = _chosen(archive, days, shifts, shifts.max_width_days)
    if not kept_back_of(archive, chosen, days, shifts):
        return chosen
    return max(chosen, _chosen(archive, days, shifts, _width_of_last_test(archive, shifts)), key=len)


def kept_back_of(
    archive: Archive, train_days: Sequence[dt.date], days: DaysConfig, shifts: ShiftConfig
) -> str:
    """The reason why there are fewer training days than configured, as a sentence; empty where there are as many."""
    return kept_back(
        days_with_rows(archive)[1],
        train_days,
        days.num_days,
        largest_shift_days=max(parse_shifts(shifts.shifts)),
        tail_days=_width_of_last_test(archive, shifts),
    )


def _chosen(archive: Archive, days: DaysConfig, shifts: ShiftConfig, tail_days: int) -> tuple[dt.date, ...]:
    return choose_train_days(
        days_with_rows(archive)[1],
        largest_shift_days=max(parse_shifts(shifts.shifts)),
        first_day=days.first_day,
        last_day=days.last_day,
        num_days=days.num_days,
        tail_days=tail_days,
    )


def _width_of_last_test(archive: Archive, shifts: ShiftConfig) -> int:
    return width_of_last_test(_counts(archive), shifts)


def _counts(archive: Archive) -> dict[dt.date, int]:
    table, days = days_with_rows(archive)
    return {day: archive.num_rows(table, day) for day in days}


def plan_of(archive: Archive, train_days: Sequence[dt.date], shifts: ShiftConfig) -> ShiftPlan:
    """The test days that an archive has for a twin of some training days."""
    return plan_shifts(_counts(archive), train_days, shifts)


def hours_unseen_of(archive: Archive, train_days: Sequence[dt.date], plan: ShiftPlan) -> str:
    """Hours of the day (UTC) without requests in training in which those of the test days arrive, as a sentence: a log
    that begins in the evening has no morning in its first day. Empty where there are hardly any, or many days."""
    if len(train_days) > FEW_DAYS:
        return ""
    trained = _by_hour(archive, train_days)
    tested = _by_hour(archive, sorted({day for test in plan.shifts for day in test.days}))
    unseen = (trained == 0) & (tested > 0)
    share = float(tested[unseen].sum()) / max(float(tested.sum()), 1.0)
    if share <= MOST_UNSEEN:
        return ""
    count = "day that is" if len(train_days) == 1 else "days that are"
    return (
        f"no request of the {count} trained on arrived {_spans(np.flatnonzero(trained == 0))} UTC, and {share:.0%} of "
        "those of the test days do: the twin knows nothing of these hours; train on whole days ([days] last_day, "
        "num_days), or choose shorter shifts ([shifts] shifts), which leave more days to train on"
    )


def _by_hour(archive: Archive, days: Sequence[dt.date]) -> np.ndarray:
    """[24] requests that arrived in each hour of the day."""
    counts = np.zeros(24, np.int64)
    for batch in archive.scan(REQUESTS.name, days=days, columns=["arrival"]) if days else ():
        hour = instant_s(pa.Table.from_batches([batch]), "arrival") // 3600 % 24
        counts += np.bincount(hour.astype(np.int64), minlength=24)
    return counts


def _spans(hours: np.ndarray) -> str:
    """Ascending hours as spans of the clock: "from 00:00 to 07:00"."""
    spans = np.split(hours, np.flatnonzero(np.diff(hours) > 1) + 1)
    return ", ".join(f"from {one[0]:02}:00 to {one[-1] + 1:02}:00" for one in spans)


def held_out_or_first(
    archive: Archive, train_days: Sequence[dt.date], named: Sequence[dt.date] | None, most: int
) -> list[dt.date]:
    """The named held-out days, else the first `most` days with requests after training, which may be none.

    Raises:
        ConfigError: A named day was trained on.
    """
    if named is None:
        return [day for day in days_of(archive, REQUESTS.name) if day > train_days[-1]][:most]
    refuse_overlap(train_days, [TestDays(0, tuple(named), None)])
    return list(named)
