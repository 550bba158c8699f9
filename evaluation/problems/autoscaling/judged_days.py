"""Days after those of training that a log of an application holds, for autoscalers to be judged on."""

import datetime as dt
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from evaluation.comparison.shifts import ShiftConfig, TestDays, plan_shifts
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.tables import GATEWAY
from twin.autoscaling.scaling_log import TABLE


def judged_days(
    archive: Archive, train_days: Sequence[dt.date], test: TestDays
) -> tuple[dt.date, list[dt.date]]:
    """The day of a shift, and the days of it that the log has."""
    date, present = train_days[-1] + dt.timedelta(days=1 + test.shift_days), archive.days(TABLE)
    dates = [day for day in test.days or (date,) if day in present]
    return dates[0] if dates else date, dates


def without_days(archive: Archive, train_days: Sequence[dt.date], notes: Iterable[str]) -> ConfigError:
    """The error of a log that holds none of them, with what is missing of each."""
    advice = (
        "train on fewer or earlier days ([days] num_days, last_day; --judge-days of a refresh), or ask for shorter "
        "shifts"
    )
    if len(archive.days(TABLE)) < 2:  # of the calendar, in UTC
        advice = (
            "bring a log of two days at least; fit makes a twin of one, and certify holds it against others"
        )
    return ConfigError(
        "no shift has test days in this log",
        where=f"{archive.path}: {'; '.join(notes)}",
        allowed=f"days after the last training day, {train_days[-1]}",
        advice=advice,
    )


def refuse_without_days(archive: Archive, train_days: Sequence[dt.date], shifts: ShiftConfig) -> None:
    """ConfigError, before anything is learned, for a log that holds no day to judge on and has no truth behind it."""
    if archive.facts.get("ground_truth"):
        return
    plan = plan_shifts(requests_by_day(archive), train_days, shifts)
    found = [judged_days(archive, train_days, test) for test in plan.shifts]
    if not any(dates for _, dates in found):
        raise without_days(archive, train_days, (f"the log has no samples of {date}" for date, _ in found))


def requests_by_day(archive: Archive) -> dict[dt.date, int]:
    """Day of the samples -> requests of users; one at least, of a day whose rates are not known."""
    found = {}
    for day in archive.days(TABLE):
        table = archive.read(TABLE, columns=["interval_s", "deployment", "request_rate_per_s"], days=[day])
        users = table.filter(pc.equal(table["deployment"].cast(pa.string()), GATEWAY))
        number = pc.sum(pc.multiply(users["request_rate_per_s"], users["interval_s"])).as_py()
        found[day] = max(round(number or 0.0), 1)
    return found
