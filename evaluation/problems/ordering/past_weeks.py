"""The weeks before an anchor in which orders are held against each other, and what came of an order in them.

A week with hardly any waits is not informative about higher load; so every week is played twice: as it was, and with
its jobs arriving in less time, such that they offer `BUSY_LOAD` of the pool. A week that offers that much already is
played once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.playing import BLOCK_DAYS
from evaluation.problems.ordering.weeks import TestWeek, cut_week, log_days
from logs_schema.calendar import DAY_S, DAYS_A_WEEK
from twin.ordering.population_cutoff import known_by
from twin.ordering.slowdown import bounded_slowdown
from twin.ordering.types import Jobs, Pool
from twin.records import at_rows

MOST_WEEKS = 12
"""Whole weeks before an anchor in which orders are held against each other, where the log has them."""
LEAST_DAYS = 14
"""Days of the log before the first of them: what an index is learned from."""
BUSY_LOAD = 0.85
"""Share of the pool that the jobs of a week request when it is played faster."""
LEAST_PACE = 0.3
"""Least part of its time in which a week's jobs arrive."""

Play = Callable[[TestWeek], np.ndarray]
"""A week -> [jobs] the start of every job on the week's clock."""


class OrderOutcome(NamedTuple):
    """What came of an order in past weeks; leaves [jobs that count, at every pace]."""

    slowdown: np.ndarray
    wait_s: np.ndarray
    block: np.ndarray  # half weeks by the calendar, as the jobs really arrived
    agent: np.ndarray
    is_faster: np.ndarray  # bool: in a week that was played faster
    week: np.ndarray  # first day of the week, in days since 1970 (UTC)

    def at(self, is_faster: bool) -> "OrderOutcome":
        """The part of one pace."""
        return at_rows(self, self.is_faster == is_faster)


def known_at(jobs: Jobs, anchor: int) -> Jobs:
    """The jobs as they were known at the midnight before a day, in days since 1970 (UTC)."""
    return known_by(jobs, anchor * DAY_S - jobs.origin_us / 1e6)


def past_weeks(known: Jobs, pool: Pool, anchor: int, num_days: int, config: WeeksConfig) -> list[TestWeek]:
    """The whole weeks of some days before an anchor; weeks without jobs are left out.

    Args:
        known: the jobs as they were known at the anchor (`known_at`).
        pool: the processors.
        anchor: days since 1970 (UTC).
        num_days: days before it.
        config: for how weeks begin and drain.
    """
    firsts = range(anchor - num_days // DAYS_A_WEEK * DAYS_A_WEEK, anchor, DAYS_A_WEEK)
    settings = WeeksConfig(num_test_days=DAYS_A_WEEK, num_drain_days=config.num_drain_days)
    weeks = [cut_week(known, pool, known.logged_start_s, first, settings)[0] for first in firsts]
    return [week for week in weeks if week.counted.any()]


def num_refereed_days(known: Jobs, anchor: int) -> int:
    """Days of the whole weeks in which orders are held against each other; 0 where the log begins too late."""
    before = anchor - log_days(known)[0] - LEAST_DAYS
    return DAYS_A_WEEK * min(MOST_WEEKS, max(before, 0) // DAYS_A_WEEK)


def busy_pace(week: TestWeek, pool: Pool) -> float:
    """The part of its time in which a week's jobs arrive when they offer `BUSY_LOAD`; 1 where they do already."""
    work = float(np.sum((week.jobs.processors * week.jobs.run_s)[week.counted]))
    load = work / (pool.processors * week.num_days * DAY_S)
    return float(np.clip(load / BUSY_LOAD, LEAST_PACE, 1.0))


def hastened(week: TestWeek, pace: float) -> TestWeek:
    """The week with its arrivals in a part of their time; waiting and running jobs at its beginning are unchanged."""
    arrival_s = week.jobs.arrival_s
    return week._replace(
        jobs=week.jobs._replace(arrival_s=np.where(arrival_s > 0.0, pace * arrival_s, arrival_s))
    )


def seen_in(weeks: Sequence[TestWeek], play: Play, pool: Pool | None = None) -> OrderOutcome:
    """What comes of an order in some weeks; a job that never starts counts as waiting until the week's end.

    Args:
        weeks: at least one.
        play: the order.
        pool: the processors; None plays the weeks as they were alone.
    """
    parts = [_outcome(week, week, play) for week in weeks]
    if pool is not None:
        paces = [(week, busy_pace(week, pool)) for week in weeks]
        parts += [_outcome(week, hastened(week, pace), play, True) for week, pace in paces if pace < 1.0]
    return together(parts)


def together(parts: Sequence[OrderOutcome]) -> OrderOutcome:
    """Outcomes of several weeks as one."""
    return OrderOutcome(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))


def _outcome(week: TestWeek, played: TestWeek, play: Play, is_faster: bool = False) -> OrderOutcome:
    start_s, rows, jobs = play(played), np.flatnonzero(week.counted), played.jobs
    begun_s = np.where(np.isnan(start_s[rows]), week.span_s[1] - week.span_s[0], start_s[rows])
    wait_s = np.maximum(begun_s - jobs.arrival_s[rows], 0.0)
    block = (week.first_day * DAY_S + week.jobs.arrival_s[rows]) // (BLOCK_DAYS * DAY_S)
    slowdown = bounded_slowdown(wait_s, jobs.run_s[rows])
    return OrderOutcome(
        slowdown,
        wait_s,
        block,
        jobs.agent[rows],
        np.full(len(rows), is_faster),
        np.full(len(rows), week.first_day),
    )
