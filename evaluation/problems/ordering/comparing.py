"""Evaluates orders of a queue by exact replay of later weeks, and in the twin that the trained ones were trained in."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison, compare
from evaluation.comparison.decisions import concatenate
from evaluation.comparison.entries import JudgeFacts, JudgeTrust, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.metrics import (
    BOUNDED_SLOWDOWN,
    BOUNDED_SLOWDOWN_P99,
    JAIN_FAIRNESS,
    MEAN_LOG_SLOWDOWN,
    MEAN_WAIT,
    UTILISATION,
    WAIT_P99,
)
from evaluation.comparison.rank_correlation import known_rank_correlation
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.descriptions import USERS
from evaluation.judges.trust import known_values
from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.playing import (
    BEST_RULE,
    BLOCKS,
    EASY_PREDICTED,
    LADDER,
    OrderPolicy,
    played,
)
from evaluation.problems.ordering.summary import LOGGED_GAP, logged_mean_wait_s
from evaluation.problems.ordering.weeks import TestWeek, WeekPlan
from logs_schema.errors import first
from logs_schema.layout import date_of
from logs_schema.progress import Progress
from twin.ordering.types import Pool
from twin.ordering.windows import chosen

REPLAY, TWIN = "replay", "training twin"
REFERENCES = (
    "sjf+easy",
    BEST_RULE,
    LADDER,
    "fcfs+easy",
    "saf+easy",
    "wfp3+easy",
    "unicef+easy",
    "f1+easy",
    "ljf+easy",
    EASY_PREDICTED,
    "logged_order+easy",
    "bc_greedy",
)
JUDGES = (
    JudgeFacts(
        REPLAY,
        "later weeks of the log: arrivals and run times fixed, on an idealised machine that begins each week with its "
        "running and waiting jobs. Exact for every policy, if users submit the same jobs.",
    ),
    JudgeFacts(
        TWIN,
        "weeks drawn from the population of the training days, unlike those that training saw; shown under 0 days: "
        "the trained policy's in-model value.",
    ),
)
MIN_RANKED = 4
METRICS = (
    BOUNDED_SLOWDOWN,
    BOUNDED_SLOWDOWN_P99,
    MEAN_LOG_SLOWDOWN,
    MEAN_WAIT,
    WAIT_P99,
    UTILISATION,
    JAIN_FAIRNESS,
)


def compare_orders(
    plan: WeekPlan,
    twin_weeks: Sequence[TestWeek],
    policies: Sequence[OrderPolicy],
    pool: Pool,
    config: WeeksConfig,
    progress: Progress,
    *,
    facts: Mapping[str, Any],
    notes: Sequence[str] = (),
    intervals: IntervalConfig | None = None,
    references: Sequence[str] = REFERENCES,
    keep: Unfinished | None = None,
) -> Comparison:
    """Simulates all policies in all weeks.

    Args:
        plan: weeks of the log.
        twin_weeks: weeks that the training twins generated.
        policies: the policies.
        pool: the processors.
        config: of the weeks, for the report.
        progress: progress display.
        facts: about the archive, for the report.
        notes: further remarks for readers.
        intervals: of the bootstrap.
        references: policies to take paired differences to, where they were evaluated; table, plots and command line
            refer to the first.
        keep: saves the starts of every judge, shift, policy and seed, but for the user's: the name of a function does
            not identify its code.
    """
    shifts = sorted({week.shift_days for week in plan.weeks})
    runs = []
    with progress.stage("judge", total=len(policies), unit="policies") as stage:
        for done, policy in enumerate(policies):
            stage(done, text=policy.name)
            for shift in shifts:
                weeks = [week for week in plan.weeks if week.shift_days == shift]
                runs.append(_run(REPLAY, shift, policy, weeks, pool, keep))
            if twin_weeks and policy.kind != "history":  # generated weeks have no logged order
                runs.append(_run(TWIN, 0, policy, twin_weeks, pool, keep))
        stage(len(policies))
    return compare(
        runs,
        archive=facts,
        train_days=_train_days(plan, config),
        unit_kind=BLOCKS,
        policies=[PolicyFacts(policy.name, policy.kind, policy.description) for policy in policies],
        judges=[judge for judge in JUDGES if judge.name in {run.judge for run in runs}],
        shifts=[_shift_facts(plan, shift) for shift in shifts],
        metrics=METRICS,
        references=references,
        main_metric=BOUNDED_SLOWDOWN.name,
        trust=ranking(runs),
        notes=[*_gaps(plan, runs), *_seeds(runs), *_cancelled(facts), *notes],
        lead_reference=references[0],
        config=intervals,
    )


def ranking(runs: Sequence[Run]) -> list[JudgeTrust]:
    """How the twin's mean bounded slowdowns of the policies stand to those of replay, at every shift."""
    others = (BEST_RULE, LADDER)  # others' orders under another name
    values = known_values([run for run in runs if run.policy not in others], BOUNDED_SLOWDOWN)
    in_twin = values.get((TWIN, 0), {})
    trust = []
    for (judge, shift), found in values.items():
        both = sorted(in_twin.keys() & found.keys())
        if judge == REPLAY and len(both) >= MIN_RANKED:
            ours, theirs = (np.array([of[name] for name in both]) for of in (in_twin, found))
            rank = known_rank_correlation(ours, theirs)
            gap = ours - theirs
            trust.append(
                JudgeTrust(
                    TWIN, shift, None, None, float(np.abs(gap).mean()), float(gap.mean()), rank, len(both)
                )
            )
    return trust


def _run(
    judge: str,
    shift: int,
    policy: OrderPolicy,
    weeks: Sequence[TestWeek],
    pool: Pool,
    keep: Unfinished | None,
) -> Run:
    by_seed = played(policy, weeks, pool, None if policy.kind == USERS else keep, f"{judge}, {shift}d")
    together = by_seed[0] if len(by_seed) == 1 else concatenate(by_seed)
    return Run(judge, shift, policy.name, together, by_seed=tuple(by_seed) if len(by_seed) > 1 else ())


def _train_days(plan: WeekPlan, config: WeeksConfig) -> list[str]:
    """All days that any anchor trained on."""
    days = {anchor - back for anchor in plan.anchors for back in range(1, config.num_train_days + 1)}
    return [date_of(day).isoformat() for day in sorted(days)]


def _shift_facts(plan: WeekPlan, shift: int) -> ShiftFacts:
    weeks = [week for week in plan.weeks if week.shift_days == shift]
    days = {date_of(week.first_day + offset).isoformat() for week in weeks for offset in range(week.num_days)}
    return ShiftFacts(shift, tuple(sorted(days)), sum(int(week.counted.sum()) for week in weeks))


def _gaps(plan: WeekPlan, runs: Sequence[Run]) -> list[str]:
    """The log's own mean wait beside those of replay, shift by shift."""
    notes = []
    for run in runs:
        if run.judge == REPLAY and run.policy == "logged_order+easy":
            weeks = [week for week in plan.weeks if week.shift_days == run.shift_days]
            logged_s = [logged_mean_wait_s(chosen(week.jobs, np.flatnonzero(week.counted))) for week in weeks]
            counts = [int(week.counted.sum()) for week in weeks]
            if not np.isfinite(logged_s).all():
                continue
            replayed_s = float(np.mean(run.decisions.wait_s[run.decisions.started]))
            notes.append(
                f"shift {run.shift_days}d: the log's mean wait is {np.average(logged_s, weights=counts):,.0f} s, "
                f"that of its order replayed with EASY {replayed_s:,.0f} s; {LOGGED_GAP}"
            )
    if plan.idle:
        notes.append(f"left out, as no job waits or arrives: {first(plan.idle)}")
    if plan.num_put_back:
        notes.append(
            f"{plan.num_put_back} jobs ran beyond the pool's size in the log when a week began; they wait instead"
        )
    return notes


def _cancelled(facts: Mapping[str, Any]) -> list[str]:
    """Notes on jobs that cannot be evaluated."""
    num_jobs = facts.get("cancelled", 0)
    return [f"{num_jobs:,} jobs of the log were cancelled before they started: left out"] if num_jobs else []


def _seeds(runs: Sequence[Run]) -> list[str]:
    notes = []
    for run in runs:
        if run.by_seed:
            values = [BOUNDED_SLOWDOWN.compute(one) for one in run.by_seed]
            known = [value for value in values if isinstance(value, float)]
            notes.append(
                f"{run.policy}, {run.judge}, shift {run.shift_days}d: {BOUNDED_SLOWDOWN.name} from {min(known):.2f} to "
                f"{max(known):.2f} over {len(known)} seeds"
            )
    return notes
