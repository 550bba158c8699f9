"""The held-out weeks of a queue's certificate, and the real week that each is compared with for the noise floor."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.comparison.shifts import TestDays, refuse_overlap
from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.weeks import log_days
from logs_schema.calendar import DAYS_A_WEEK, EPOCH_DATE
from logs_schema.errors import ConfigError
from logs_schema.layout import date_of
from twin.ordering.persistence import QueueTwin
from twin.ordering.population import day_of
from twin.ordering.types import Jobs

MIN_WEEKS = 6
"""From so many held-out weeks on, whole weeks are the units, else days: fewer units give no reliable interval."""


@dataclass(frozen=True)
class HeldOutWeeks:
    """Held-out weeks and their partners, by their first days (days since 1970, UTC).

    Attributes:
        weeks: Held-out weeks, ascending.
        partners: For each of them another real week, not held out, that begins on the same weekday.
        notes: What could not be satisfied.
    """

    weeks: tuple[int, ...]
    partners: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def units_per_week(self) -> int:
        """Units that a week is drawn in: 1, or its days."""
        return 1 if len(self.weeks) >= MIN_WEEKS else DAYS_A_WEEK

    @property
    def num_units(self) -> int:
        """Units of all weeks."""
        return len(self.weeks) * self.units_per_week

    @property
    def unit_days(self) -> int:
        """Days of a unit."""
        return DAYS_A_WEEK // self.units_per_week

    @property
    def unit_name(self) -> str:
        """What a unit is called."""
        return "week" if self.units_per_week == 1 else "day"

    @property
    def about_units(self) -> str:
        """What is drawn, in words."""
        if self.units_per_week == 1:
            return f"intervals draw the {len(self.weeks)} weeks whole"
        return (
            f"intervals draw the {self.num_units} days of {len(self.weeks)} weeks one by one, as if queues did not "
            f"last over night: name {MIN_WEEKS} weeks or more (--days; --judge-days of a refresh) and weeks are "
            "drawn whole"
        )


def hold_out_weeks(
    jobs: Jobs, twin: QueueTwin, named: Sequence[dt.date] | None, config: CertifyConfig
) -> HeldOutWeeks:
    """Held-out weeks with partners for the noise floor.

    Args:
        jobs: Of the log.
        twin: For its training days.
        named: Held-out days, of which whole weeks are taken: seven consecutive days; the first weeks after training if
            None.
        config: Number of weeks where no days are named.

    Raises:
        ConfigError: There is no such week, the log has no job in it, or it is not after training.
    """
    first, end = log_days(jobs)
    notes: list[str] = []
    if named is None:
        last = end - DAYS_A_WEEK - WeeksConfig().num_drain_days
        weeks = list(range(twin.anchor, last + 1, DAYS_A_WEEK))[: config.max_weeks]
    else:
        train = twin.train_days
        refuse_overlap(train, [TestDays(0, tuple(named), None)])
        weeks, num_left = _whole_weeks([(day - EPOCH_DATE).days for day in named])
        if num_left:
            notes.append(f"{num_left} of the requested days make no whole week: left out")
    day = day_of(jobs, jobs.arrival_s)
    counts = {week: int(np.sum((day >= week) & (day < week + DAYS_A_WEEK))) for week in weeks}
    empty = [date_of(week).isoformat() for week in weeks if not counts[week]]
    if empty:
        notes.append(f"no job in the weeks from {', '.join(empty)}: left out")
    weeks = [week for week in weeks if counts[week]]
    if not weeks:
        raise ConfigError(
            "there is no whole week with jobs to hold the twin against",
            where=f"training ends on {date_of(twin.anchor - 1)}, the log on {date_of(end)}",
            allowed="seven days that follow each other, after training and within the log",
            advice="name other days (--days), or fit the twin on earlier ones (--config, [days] last_day)",
        )
    partners, on_partners = _partners(weeks, first, end, twin, day)
    return HeldOutWeeks(tuple(weeks), partners, (*notes, *on_partners))


def weeks_for_rules(
    jobs: Jobs, chosen: HeldOutWeeks, config: CertifyConfig
) -> tuple[HeldOutWeeks, int, tuple[str, ...]]:
    """The held-out weeks in which all rules are simulated: a sample where weeks have many jobs.

    Every rule is simulated in each such week, in its partner and in generated ones. Together these have at most
    `config.max_played` jobs, but at least one week; generated weeks are dropped before held-out ones.

    Args:
        jobs: Of the log.
        chosen: Held-out weeks.
        config: The number of jobs, and the number of generated weeks for each.

    Returns:
        The weeks, evenly spaced; generated weeks for each of them; and notes.
    """
    day, num_weeks = day_of(jobs, jobs.arrival_s), len(chosen.weeks)
    counts = [int(np.sum((day >= week) & (day < week + DAYS_A_WEEK))) for week in chosen.weeks]
    usual = max(1.0, float(np.mean(counts)))
    for num_copies in range(config.num_copies, 0, -1):
        num_kept = int(config.max_played / ((2 + num_copies) * usual))
        if num_kept >= num_weeks:
            break
    num_kept = min(max(num_kept, 1), num_weeks)
    if num_kept == num_weeks and num_copies == config.num_copies:
        return chosen, num_copies, ()
    places = np.linspace(0, num_weeks - 1, num_kept).round().astype(int)
    kept = HeldOutWeeks(
        tuple(chosen.weeks[place] for place in places), tuple(chosen.partners[place] for place in places), ()
    )
    note = (
        f"all rules are played in {num_kept} of the {num_weeks} held-out weeks, evenly spaced, and in {num_copies} "
        f"generated for each, since a week has {usual:,.0f} jobs ([certify] max_played); there {kept.about_units}"
    )
    return kept, num_copies, (note,)


def _whole_weeks(days: Sequence[int]) -> tuple[list[int], int]:
    """The first days of sevens of consecutive days, and how many days are left over."""
    weeks: list[int] = []
    run: list[int] = []
    for day in sorted(set(days)):
        run = [*run, day] if run and day == run[-1] + 1 else [day]
        if len(run) == DAYS_A_WEEK:
            weeks.append(run[0])
            run = []
    return weeks, len(set(days)) - DAYS_A_WEEK * len(weeks)


def _partners(
    weeks: Sequence[int], first: int, end: int, twin: QueueTwin, day: np.ndarray
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """For every held-out week the nearest other week of the log, each taken once as long as there are enough."""
    partners: list[int] = []
    notes: tuple[str, ...] = ()
    for week in weeks:
        places = range(first + (week - first) % DAYS_A_WEEK, end - DAYS_A_WEEK + 1, DAYS_A_WEEK)
        others = [
            place
            for place in places
            if all(abs(place - one) >= DAYS_A_WEEK for one in weeks)
            and np.any((day >= place) & (day < place + DAYS_A_WEEK))
        ]
        free = [one for one in others if all(abs(one - taken) >= DAYS_A_WEEK for taken in partners)]
        if not others:
            raise ConfigError(
                "the log holds no other week to measure the noise floor with",
                where=f"{date_of(first)} to {date_of(end - 1)}",
                allowed="at least one week besides the held-out ones",
                advice="name fewer days (--days)",
            )
        if not free:
            notes = ("there are fewer other weeks than held-out ones: the noise floor uses some twice",)
        trained = range(twin.first_day - DAYS_A_WEEK + 1, twin.anchor)
        distance = {one: (abs(one - week), one in trained) for one in free or others}
        partners.append(min(distance, key=lambda one: distance[one]))
    return tuple(partners), notes
