"""Policies of the ordering problem as the judge simulates them, with results as `Decisions` that metrics read."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from evaluation.comparison.decisions import Decisions, concatenate
from evaluation.comparison.kept_runs import load_starts, save_starts
from evaluation.jobs.unfinished import Unfinished
from evaluation.problems.ordering.weeks import TestWeek, earlier, warm_earlier
from logs_schema.calendar import DAY_S
from twin.ordering.replay import replay
from twin.ordering.rules import RULES, Rule
from twin.ordering.types import Pool
from twin.placement.types import COMPLETED

UNIX_ORDINAL = 719_163  # datetime.date(1970, 1, 1).toordinal()
BLOCK_DAYS = 3.5
BLOCKS = "half weeks of arrivals, by the calendar"
EASY = "+easy"
"""Behind the name of a rule with EASY backfilling."""
EASY_PREDICTED = "easy++"
"""First come, first served, with EASY backfilling by predicted run times (`twin.ordering.predicted`)."""
BEST_RULE, LADDER = "best_rule", "ladder"
"""What was chosen among other policies: they stand for one of those, anchor by anchor."""
CALENDAR = 1_000_000
"""More blocks than any calendar has."""

Play = Callable[[Sequence[TestWeek]], list[np.ndarray]]
"""weeks -> for each, [jobs] the start of every job on the week's clock; NaN where it never starts."""


class OrderPolicy(NamedTuple):
    """A policy that can be judged: `kind` as in `evaluation.comparison.entries.PolicyFacts`."""

    name: str
    kind: str
    description: str
    plays: tuple[Play, ...]  # one for each seed it was trained with


def rule_policies(pool: Pool) -> list[OrderPolicy]:
    """Every published rule, without and with EASY backfilling; the logged order among them."""
    return [rule_policy(rule, Pool(pool.processors, easy)) for easy in (False, True) for rule in RULES]


def rule_policy(rule: Rule, pool: Pool) -> OrderPolicy:
    """One rule on a pool."""
    name = f"{rule.name}{EASY}" if pool.easy else rule.name
    words = f"{rule.description}, {'EASY backfilling in the same order' if pool.easy else 'no backfilling'}"
    kind = "history" if rule.name == "logged_order" else "baseline"
    return OrderPolicy(name, kind, words, (partial(_play_rule, rule, pool),))


def play_rule(rule: Rule, pool: Pool, week: TestWeek) -> np.ndarray:
    """[jobs] the starts by exact replay; arrivals count from the first job, as rules with them in a formula expect."""
    first_s = min(week.jobs.arrival_s[0], 0.0)
    jobs, warm = earlier(week.jobs, first_s), warm_earlier(week.warm, first_s)
    return np.asarray(replay(jobs, pool, rule, warm=warm).start_s + first_s)


def _play_rule(rule: Rule, pool: Pool, weeks: Sequence[TestWeek]) -> list[np.ndarray]:
    return [play_rule(rule, pool, week) for week in weeks]


def decisions_of(week: TestWeek, start_s: np.ndarray, pool: Pool) -> Decisions:
    """One row for every counted job; its unit is the half week of the calendar that it arrived in.

    So test days that several anchors share are drawn together.

    Args:
        week: the replayed week.
        start_s: [jobs] on the week's clock; NaN where a job never started.
        pool: the processors.
    """
    rows = np.flatnonzero(week.counted)
    jobs, num_rows = week.jobs, len(rows)
    arrival_s, length_s = jobs.arrival_s[rows], week.num_days * DAY_S
    begun = np.where(np.isnan(start_s[rows]), np.inf, start_s[rows])
    zero = np.zeros(num_rows, np.int64)
    block = ((week.first_day * DAY_S + arrival_s) // (BLOCK_DAYS * DAY_S)).astype(np.int64)
    return Decisions(
        unit=week.calendar * CALENDAR + block,
        day=UNIX_ORDINAL + week.first_day + (arrival_s // DAY_S).astype(np.int64),
        agent=jobs.agent[rows],
        site=zero,
        node=zero,
        off_site=np.zeros(num_rows, np.bool_),
        accepted=np.ones(num_rows, np.bool_),
        arrival_s=arrival_s,
        start_s=begun,
        finish_s=begun + jobs.run_s[rows],
        status=np.full(num_rows, COMPLETED, np.int64),
        expected_run_s=jobs.requested_s[rows],
        deadline_s=np.full(num_rows, np.inf),
        demand=jobs.processors[rows][None],
        settled=np.isfinite(begun),
        span_s=np.full(num_rows, length_s / max(num_rows, 1)),
        begin_s=np.zeros(num_rows),
        end_s=np.full(num_rows, length_s),
        capacity=np.array([pool.processors]),
        missing={
            "deadlines": "no request has a deadline",
            "sites": "there is only one site",
            "answers": "jobs cannot refuse to start",
            "statuses": "a replay has no failures",
            **({} if np.any(jobs.agent[rows] >= 0) else {"agents": "the log does not name the users"}),
        },
    )


def played(
    policy: OrderPolicy,
    weeks: Sequence[TestWeek],
    pool: Pool,
    keep: Unfinished | None = None,
    where: str = "",
) -> list[Decisions]:
    """The decisions of a policy in some weeks together, once for each seed.

    Args:
        policy: the policy.
        weeks: the weeks.
        pool: the processors.
        keep: saves the starts of every seed, if given.
        where: name of the weeks, for saving.
    """
    by_seed, keep = [], keep or Unfinished()
    for seed, play in enumerate(policy.plays):
        name = f"{where}, {policy.name} {seed}"
        starts_s = keep.unit(name, partial(play, weeks), save_starts, load_starts)
        each = zip(weeks, starts_s, strict=True)
        by_seed.append(concatenate([decisions_of(week, start_s, pool) for week, start_s in each]))
    return by_seed
