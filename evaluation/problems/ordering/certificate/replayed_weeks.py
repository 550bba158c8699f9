"""Weeks replayed under fixed rules: held-out ones, other real ones, and generated ones, all by exact replay.

All begin in the state under first come first served with EASY: a real week since the beginning of the log, a generated
one since the beginning of generated days (`evaluation.problems.ordering.generated.LEAD_DAYS`). So differences are due
to the workload, not to the machine: causes of logged waits that the idealised machine lacks are in neither.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.certificate.held_out import HeldOutWeeks
from evaluation.problems.ordering.playing import OrderPolicy, rule_policies
from evaluation.problems.ordering.weeks import TestWeek, cut_week
from logs_schema.calendar import DAY_S, DAYS_A_WEEK
from logs_schema.progress import Progress
from twin.ordering.generated import AS_THEY_WERE, LEAD_DAYS, generated_days
from twin.ordering.persistence import QueueTwin
from twin.ordering.rules import FCFS
from twin.ordering.slowdown import bounded_slowdown
from twin.ordering.types import Jobs, Pool

WEEKS = WeeksConfig(num_test_days=DAYS_A_WEEK, warm="easy")
QUEUE_RULE = "fcfs+easy"
SEEDS_PER_CERTIFICATE = 1_000_000


class ReplayedWeek(NamedTuple):
    """One week under every rule.

    Attributes:
        week: Its jobs, and those running and waiting at its beginning.
        rows: [counted] indices of the counted jobs among the week's.
        unit: [counted] the unit of each.
        starts: Rule -> [jobs] when each job began, on the week's clock; NaN where it never did.
    """

    week: TestWeek
    rows: np.ndarray
    unit: np.ndarray
    starts: dict[str, np.ndarray]

    def waits_s(self, rule: str) -> np.ndarray:
        """[counted] seconds; NaN where a job never began."""
        return np.asarray((self.starts[rule] - self.week.jobs.arrival_s)[self.rows])

    def slowdowns(self, rule: str) -> np.ndarray:
        """[counted] bounded slowdowns; NaN where a job never began."""
        return bounded_slowdown(self.waits_s(rule), self.week.jobs.run_s[self.rows])


def fixed_rules(pool: Pool, *, rankings: bool) -> list[OrderPolicy]:
    """All published rules with and without EASY, but the logged order, which no generated week has; or the queue's."""
    rules = [policy for policy in rule_policies(pool) if policy.kind != "history"]
    return rules if rankings else [policy for policy in rules if policy.name == QUEUE_RULE]


class ReplayedWeeks(NamedTuple):
    """Held-out weeks and the weeks they are compared with, all under the same rules.

    Attributes:
        chosen: The held-out weeks and their partners.
        real, other: Held-out weeks and their partners.
        copies: Generated weeks, several for each.
    """

    chosen: HeldOutWeeks
    real: list[ReplayedWeek]
    other: list[ReplayedWeek]
    copies: list[list[ReplayedWeek]]


def replay_weeks(
    jobs: Jobs,
    start_s: np.ndarray,
    twin: QueueTwin,
    rules: Sequence[OrderPolicy],
    chosen: HeldOutWeeks,
    num_copies: int,
    seed: int,
    progress: Progress,
) -> ReplayedWeeks:
    """Simulates rules in held-out weeks, their partners and generated ones.

    Args:
        jobs: Jobs of the log.
        start_s: [jobs] the schedule that defines running and waiting jobs at the beginning of real weeks.
        twin: Generates the jobs of generated weeks.
        rules: The rules.
        chosen: The held-out weeks and their partners.
        num_copies: Generated weeks for each.
        seed: Seed of the certificate.
        progress: Progress display.
    """
    with progress.stage("play real weeks"):
        both = [
            real_weeks(jobs, start_s, rules, twin.pool, days, chosen)
            for days in (chosen.weeks, chosen.partners)
        ]
    with progress.stage("generate weeks", total=num_copies, unit="copies") as stage:
        copies = []
        for copy in range(num_copies):
            stage(copy, text=f"{len(rules)} rules")
            copies.append(twin_weeks(twin, rules, chosen, seed, copy))
        stage(num_copies)
    return ReplayedWeeks(chosen, both[0], both[1], copies)


def real_weeks(
    jobs: Jobs,
    start_s: np.ndarray,
    rules: Sequence[OrderPolicy],
    pool: Pool,
    days: Sequence[int],
    chosen: HeldOutWeeks,
) -> list[ReplayedWeek]:
    """Weeks of the log from some days on, one for each held-out week, begun under a schedule, under some rules."""
    return [
        _replay_week(cut_week(jobs, pool, start_s, day, WEEKS)[0], rules, number, chosen)
        for number, day in enumerate(days)
    ]


def twin_weeks(
    twin: QueueTwin, rules: Sequence[OrderPolicy], chosen: HeldOutWeeks, seed: int, copy: int
) -> list[ReplayedWeek]:
    """One generated week for each held-out week, from the same weekday on, without data after the training.

    Args:
        twin: Generates the jobs.
        rules: The rules.
        chosen: The held-out weeks.
        seed: Seed of the certificate.
        copy: Number of the copy; each has other weeks.
    """
    weeks = []
    for number, day in enumerate(chosen.weeks):
        begin = twin.anchor - (twin.anchor - day) % DAYS_A_WEEK
        drawn = SEEDS_PER_CERTIFICATE * seed + len(chosen.weeks) * copy + number
        num_days = LEAD_DAYS + DAYS_A_WEEK + WEEKS.num_drain_days
        whole, start_s = generated_days(
            twin.past, twin.population, twin.pool, drawn, begin, num_days, AS_THEY_WERE, rule=FCFS
        )
        week, _ = cut_week(whole, twin.pool, start_s, begin + LEAD_DAYS, WEEKS)
        weeks.append(_replay_week(week, rules, number, chosen))
    return weeks


def _replay_week(
    week: TestWeek, rules: Sequence[OrderPolicy], number: int, chosen: HeldOutWeeks
) -> ReplayedWeek:
    rows = np.flatnonzero(week.counted)
    part = (week.jobs.arrival_s[rows] // (chosen.unit_days * DAY_S)).astype(int)
    starts = {policy.name: policy.plays[0]([week])[0] for policy in rules}
    return ReplayedWeek(week, rows, number * chosen.units_per_week + part, starts)
