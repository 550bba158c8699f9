"""Test weeks of a batch queue: anchors, time shifts, and the state of the machine in which each week begins.

An *anchor* is the end of a stretch of training days. Shift `k` is judged on the days from `anchor + k` on. A week is
replayed from its running and waiting jobs at the beginning, and arrivals continue for some days after its end, so that
the queue is not emptied without load; only jobs that arrive within the week count.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evaluation.comparison.shifts import parse_shifts
from evaluation.problems.configuration import WeeksConfig
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError, first
from logs_schema.layout import date_of
from twin.ordering.population import day_of
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS
from twin.ordering.types import Jobs, Pool, WarmStart
from twin.ordering.windows import running_at, window

RARE, RARE_DAYS = 0.005, 3
"""Share of the jobs at either end of a log that may be stragglers; days with jobs at its end that may be theirs."""


class TestWeek(NamedTuple):
    """One stretch to replay.

    Attributes:
        label: unlike that of any other week.
        calendar: weeks of one calendar share what happened on its days: all weeks of the log; a generated week has its
            own.
        anchor: number of the anchor.
        shift_days: days between training and this test.
        first_day: days since 1970 (UTC) of the first day that counts.
        num_days: days that count.
        jobs: those that wait at the beginning, those of the week, and those of the days after; second 0 is the
            midnight at which the week begins, so those that wait have arrived before 0.
        place: [jobs] their places in `whole`.
        warm: what runs at second 0.
        counted: [jobs] bool: arrived within the week, and not larger than the pool.
        whole: all jobs, those before the week too: the users' history.
        schedule_s: [all jobs] when each started, on the clock of `whole`; what was still to come when the week
            began is not to be looked at.
        span_s: beginning of the week and end of its last arrivals, on the clock of `whole`.
    """

    label: str
    calendar: int
    anchor: int
    shift_days: int
    first_day: int
    num_days: int
    jobs: Jobs
    place: np.ndarray
    warm: WarmStart
    counted: np.ndarray
    whole: Jobs
    schedule_s: np.ndarray
    span_s: tuple[float, float]


class WeekPlan(NamedTuple):
    """The weeks of every anchor and shift.

    Attributes:
        anchors: days since 1970 (UTC): the first day after each stretch of training days.
        weeks: by anchor, then by shift.
        num_put_back: jobs that the log had running beyond the pool's size when a week began; they wait instead.
        idle: labels and first days of weeks that are left out, as no job waits or arrives in them or after them.
    """

    anchors: tuple[int, ...]
    weeks: tuple[TestWeek, ...]
    num_put_back: int
    idle: tuple[str, ...] = ()


def plan_weeks(jobs: Jobs, pool: Pool, config: WeeksConfig, anchors: Sequence[int] | None = None) -> WeekPlan:
    """Cuts a log into test weeks.

    Args:
        jobs: of the archive.
        pool: for the size of the machine.
        config: which weeks.
        anchors: days since 1970 (UTC) in place of those that `config` spreads over the log.

    Raises:
        ConfigError: the log is too short for one anchor, or for a given one, with its largest shift, or has no job in
            any of the weeks.
    """
    shifts = parse_shifts(config.shifts)
    if anchors is None:
        anchors = anchor_days(jobs, config)
    else:
        _latest_anchor(jobs, config, max(anchors))
    start_s = begin_schedule(jobs, pool, config.warm)
    weeks, idle, num_put_back = list[TestWeek](), list[str](), 0
    for number, anchor in enumerate(anchors):
        for shift in shifts:
            week, put_back = cut_week(jobs, pool, start_s, anchor + shift, config)
            label = f"anchor {number}, shift {shift}d"
            num_put_back += put_back
            if len(week.jobs.arrival_s):
                weeks.append(week._replace(label=label, anchor=number, shift_days=shift))
            else:
                idle.append(f"{label} (from {date_of(week.first_day)} on)")
    if not weeks:
        raise ConfigError(
            "no job arrives on the days to judge on",
            where=first(idle),
            allowed="one job or more",
            advice="choose other days or shifts, or take the log that the twin was fitted on",
        )
    return WeekPlan(tuple(anchors), tuple(weeks), num_put_back, tuple(idle))


def anchor_days(jobs: Jobs, config: WeeksConfig) -> list[int]:
    """The anchors that `config` spreads over a log, as days since 1970 (UTC); a single one is the latest.

    Raises:
        ConfigError: the log is too short for one anchor with its largest shift.
    """
    earliest, span = log_days(jobs)[0] + config.num_train_days, config.span()
    if span is not None:
        earliest = max(earliest, span[0])
    spread = np.linspace(_latest_anchor(jobs, config, earliest), earliest, config.num_anchors).round()
    return list(dict.fromkeys(int(day) for day in spread[::-1]))


def _latest_anchor(jobs: Jobs, config: WeeksConfig, wanted: int) -> int:
    """The last day that can be an anchor; ConfigError where that is before the one wanted."""
    largest = parse_shifts(config.shifts)[-1]
    first_day, end_day = log_days(jobs)
    span = config.span()
    if span is not None:
        end_day = min(end_day, span[1] + 1)
    latest = end_day - largest - config.num_test_days
    if latest < wanted:
        needed = config.num_train_days + largest + config.num_test_days + 2
        raise ConfigError(
            f"the log spans {end_day - first_day + 2} days, too few for one anchor",
            where=f"{config.num_train_days} training days, shift {largest} days, {config.num_test_days} test days",
            allowed=f"at least {needed} days",
            advice="train on fewer or earlier days, choose shorter shifts, or dates further apart (--days, --shifts, "
            "--between; in a job's configuration num_train_days, shifts, between in [order.weeks])",
        )
    return latest


def log_days(jobs: Jobs) -> tuple[int, int]:
    """The log's whole days: the first, and the first one after them, as days since 1970 (UTC).

    The first and the last half percent of jobs do not count: many logs begin with stragglers. At the end, where the
    newest days are, these are the jobs of `RARE_DAYS` days at most: of ten years half a percent is weeks.
    """
    last = len(jobs.arrival_s) - 1
    days = day_of(jobs, jobs.arrival_s)
    newest = np.unique(days)[-1 - RARE_DAYS :]
    return int(days[int(RARE * last)]) + 1, int(max(days[int((1 - RARE) * last)], newest[0]))


def whole_days(begin: int, end: int) -> str:
    """The days of a log (see `log_days`) in words."""
    if end <= begin:
        return "no whole day"
    return " to ".join(dict.fromkeys((date_of(begin).isoformat(), date_of(end - 1).isoformat())))


def cut_week(
    jobs: Jobs, pool: Pool, start_s: np.ndarray, first_day: int, config: WeeksConfig
) -> tuple[TestWeek, int]:
    """One week from a given day on.

    Args:
        jobs: in order of arrival.
        pool: for the size of the machine.
        start_s: [jobs] the schedule that defines running and waiting jobs at the beginning; NaN for jobs not in it.
        first_day: days since 1970 (UTC).
        config: lengths.

    Returns:
        The week, and how many jobs of the schedule did not fit the pool and wait instead.
    """
    begin_s = first_day * DAY_S - jobs.origin_us / 1e6
    end_s = begin_s + config.num_test_days * DAY_S
    last_s = end_s + config.num_drain_days * DAY_S
    start_s, num_put_back = _fitting(jobs, pool, start_s, begin_s)
    part, place, warm = window(jobs, start_s, begin_s, last_s)
    counted = (part.arrival_s >= begin_s) & (part.arrival_s < end_s) & (part.processors <= pool.processors)
    warm = warm_earlier(warm, begin_s)
    week = TestWeek(
        "", 0, 0, 0, first_day, config.num_test_days, earlier(part, begin_s), place, warm, counted,
        jobs, start_s, (begin_s, last_s),
    )  # fmt: skip
    return week, num_put_back


def begin_schedule(jobs: Jobs, pool: Pool, warm: str) -> np.ndarray:
    """[jobs] the starts that define running and waiting jobs at the beginning of a week; see `WeeksConfig.warm`."""
    if warm == "empty":
        return np.full(len(jobs.arrival_s), np.nan)
    if warm == "logged":
        return jobs.logged_start_s
    return replay(jobs, Pool(pool.processors, easy=True), FCFS).start_s


def _fitting(jobs: Jobs, pool: Pool, start_s: np.ndarray, begin_s: float) -> tuple[np.ndarray, int]:
    """The schedule with those that exceed the pool at the beginning put back to wait, the last to start first.

    Jobs larger than the pool run nowhere, so they take no place from the others.
    """
    runs = running_at(jobs, start_s, begin_s)
    too_large = jobs.processors[runs] > pool.processors
    fitting = runs[~too_large]
    beyond = fitting[np.cumsum(jobs.processors[fitting]) > pool.processors]
    if not len(beyond) and not too_large.any():
        return start_s, 0
    changed = start_s.copy()
    changed[beyond] = changed[runs[too_large]] = begin_s
    return changed, len(beyond)


def earlier(jobs: Jobs, seconds: float) -> Jobs:
    """The same jobs on a clock whose second 0 lies `seconds` later: all instants are that much earlier."""
    withdrawn_s = jobs.withdrawn_s
    return jobs._replace(
        arrival_s=jobs.arrival_s - seconds,
        logged_start_s=jobs.logged_start_s - seconds,
        origin_us=jobs.origin_us + round(seconds * 1e6),
        withdrawn_s=None if withdrawn_s is None else withdrawn_s - seconds,
    )


def warm_earlier(warm: WarmStart, seconds: float) -> WarmStart:
    """The same of a warm start."""
    return WarmStart(
        warm.begin_s - seconds, warm.processors, warm.end_s - seconds, warm.expected_end_s - seconds
    )
