"""Evaluates orders on the days after a queue's training days: rules, learned orders, and the user's own."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.shifts import parse_shifts
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.judges.named import refuse_taken
from evaluation.judges.user_judges import JudgedDays, UserJudge, judged_by_users
from evaluation.judges.user_policies import EnteredPolicies, UserPolicy, with_training_days
from evaluation.problems.configuration import OrderConfig, RunConfig, WeeksConfig
from evaluation.problems.ordering.comparing import JUDGES, compare_orders
from evaluation.problems.ordering.exported_order import winner_of, with_exported_last
from evaluation.problems.ordering.generated import generated_weeks
from evaluation.problems.ordering.ladder import (
    CHOOSING,
    ChosenOrder,
    Ladder,
    choice_at,
    kept_choice,
    rules_and_ladder,
)
from evaluation.problems.ordering.learned_orders import Learned, index_policy, learned_policies, windows_of
from evaluation.problems.ordering.log_gaps import lacking_in_words
from evaluation.problems.ordering.order_candidates import learned_index
from evaluation.problems.ordering.playing import OrderPolicy
from evaluation.problems.ordering.running import FIXED, TWIN_SEED, late_notes, population_notes, queue_facts
from evaluation.problems.ordering.user_orders import UserOrders, user_orders
from evaluation.problems.ordering.waits_with_room import waits_in_words
from evaluation.problems.ordering.weeks import TestWeek, WeekPlan, log_days, plan_weeks
from logs_schema.archive import Archive
from logs_schema.errors import ConfigError
from logs_schema.layout import date_of
from logs_schema.progress import Progress
from offline_rl.ordering.programs import OrderTrainingConfig, programs_for
from offline_rl.ordering.tables import widened
from twin.ordering.jobs import read_jobs
from twin.ordering.persistence import QueueTwin, tick_of
from twin.ordering.types import Jobs, Pool

MOST_WEEKS = 4


class TrainedOrders(NamedTuple):
    """The policies trained in the twin of a queue.

    Attributes:
        learned: the policies; the clone is () where only indices were trained.
        best: place of the index that predicts held-out jobs best.
        config: configuration of the training.
        pool: the processors.
        notes: notes of the training.
        chosen: what the ladder chose at the end of the training days; None where it could not.
    """

    learned: Learned
    best: int
    config: OrderTrainingConfig
    pool: Pool
    notes: tuple[str, ...]
    chosen: ChosenOrder | None = None


def compare_queue(
    archive: Archive,
    twin: QueueTwin,
    config: RunConfig,
    progress: Progress,
    *,
    policy: TrainedOrders | None = None,
    users: Mapping[str, UserPolicy] | None = None,
    judges: Mapping[str, UserJudge] | None = None,
    keep: Unfinished = NOTHING_KEPT,
) -> tuple[Comparison, WeeksConfig]:
    """All rules, and further policies, by exact replay of the shifted weeks, in generated ones and by further judges.

    Args:
        archive: Archive of the log.
        twin: Twin of its queue.
        config: Shifts, lengths and intervals.
        progress: Progress display.
        policy: The policies trained in the twin, if any.
        users: Name -> policy of the user.
        judges: Name -> judge of the user; it gets a policy as a `playing.Play`, and the weeks as `JudgedDays.history`.
        keep: What is known already: the choice among rules, and the starts of all orders but the user's.

    Returns:
        The comparison, and its weeks.

    Raises:
        ConfigError: The log ends too soon, or a name of the user's is taken by another policy or judge.
    """
    users, judges = users or {}, judges or {}
    refuse_taken(judges, [one.name for one in JUDGES], "judge")
    jobs, order = read_jobs(archive, pool=twin.pool.name), config.order or OrderConfig()
    weeks, notes = weeks_after(jobs, twin.anchor, config, twin.num_days)
    plan = plan_weeks(jobs, twin.pool, weeks, [twin.anchor])
    with progress.stage("generate weeks"):
        seeds = range(TWIN_SEED, TWIN_SEED + order.num_twin_weeks)
        made = generated_weeks(twin.past, [twin.population], plan.anchors, twin.pool, seeds, weeks)
    with progress.stage(CHOOSING):
        ladder = _ladder(twin, policy, weeks, keep)
    policies, every = ladder.policies, [*plan.weeks, *made]
    notes += ladder.notes
    if policy is not None:
        with progress.stage("play learned orders"):
            more, num_late = _policies_of(policy, jobs, every, keep)
        policies += more
        notes += [*policy.notes, *late_notes(num_late)]
    own = UserOrders([], EnteredPolicies(), 0)
    if users:
        with progress.stage("play the user's policies"):
            training = widened(OrderTrainingConfig(tick_s=tick_of(twin)), jobs, twin.pool)
            own = user_orders(users, every, twin.pool, training, [one.name for one in policies])
        policies += own.policies
        notes += late_notes(own.num_late)
    about_population = population_notes(jobs, [twin.population], plan.anchors, twin.pool, weeks)
    facts = queue_facts(archive, jobs, twin.pool) | ladder.last
    lacking = [*lacking_in_words(jobs, twin.pool), *waits_in_words(archive, jobs, twin.pool)]
    comparison = compare_orders(
        plan,
        made,
        policies,
        twin.pool,
        weeks,
        progress,
        facts=facts,
        notes=[FIXED, *lacking, *notes, *about_population],
        intervals=order.intervals,
        keep=keep,
    )
    if policy is not None:
        winner = f"recommended for export (schedtwin export --comparison): {winner_of(comparison).words}"
        comparison = with_exported_last(replace(comparison, notes=(*comparison.notes, winner)))
    comparison = with_training_days(own.entered.left_out_of(comparison), users)
    days = [
        _judged_days(archive, twin, plan, shift) for shift in sorted({one.shift_days for one in plan.weeks})
    ]
    played = {one.name: one.plays for one in policies}
    return judged_by_users(comparison, judges, played, days, order.intervals, progress), weeks


def _ladder(twin: QueueTwin, policy: TrainedOrders | None, weeks: WeeksConfig, keep: Unfinished) -> Ladder:
    """The rules, and the choice among them: that of a training, or one of its own."""
    if policy is None:
        climb = partial(choice_at, twin.past, twin.pool, twin.anchor, twin.num_days, weeks, 0)
        chosen = kept_choice(keep, twin.anchor, climb)
        index = learned_index(twin.past, twin.pool, twin.anchor, twin.num_days, 0)
    else:
        chosen, index = policy.chosen, policy.learned.indices[policy.best]
    return rules_and_ladder(twin.pool, [chosen], lambda _: index)


def _judged_days(archive: Archive, twin: QueueTwin, plan: WeekPlan, shift: int) -> JudgedDays:
    weeks = [week for week in plan.weeks if week.shift_days == shift]
    days = sorted({week.first_day + offset for week in weeks for offset in range(week.num_days)})
    key = jax.random.fold_in(jax.random.key(0), shift)
    return JudgedDays(archive, twin, shift, tuple(date_of(day) for day in days), key, lambda: weeks)


def weeks_after(
    jobs: Jobs, anchor: int, config: RunConfig, num_train_days: int
) -> tuple[WeeksConfig, list[str]]:
    """The test days after a twin's training days, and notes on them.

    The lengths are those of [order.weeks]; without it whole weeks, as many after every shift as the log holds after the
    largest one, four at most. Shifts beyond the log's end are left out.

    Raises:
        ConfigError: the log ends before a whole week.
    """
    _, end = log_days(jobs)
    given = config.order.weeks if config.order is not None else None
    lengths = given or WeeksConfig()
    shifts = parse_shifts(lengths.shifts if given is not None else config.shifts.shifts)
    kept = [shift for shift in shifts if anchor + shift + lengths.num_test_days <= end]
    if not kept:
        raise ConfigError(
            "the log ends too soon after the training days to judge anything",
            where=f"training ends on {date_of(anchor - 1)}, the log on {date_of(end)}",
            allowed=f"{lengths.num_test_days} days after the shortest shift, {shifts[0]} days",
            advice="fit the twin on earlier days (--config, [days] last_day)",
        )
    num_days = lengths.num_test_days
    if given is None:
        num_days *= min(MOST_WEEKS, (end - anchor - kept[-1]) // num_days)
    weeks = replace(
        lengths,
        num_train_days=num_train_days,
        num_anchors=1,
        num_test_days=num_days,
        shifts=",".join(f"{shift}d" for shift in kept),
    )
    left = [f"{shift}d" for shift in shifts if shift not in kept]
    return weeks, [f"the log ends too soon for the shifts {', '.join(left)}"] if left else []


def _policies_of(
    policy: TrainedOrders, jobs: Jobs, weeks: list[TestWeek], keep: Unfinished
) -> tuple[list[OrderPolicy], int]:
    """The learned orders as policies for these weeks, and the number of jobs that found the queue full."""
    if policy.config.index_only:
        return [index_policy([policy.learned.indices], policy.pool)], 0
    config = widened(policy.config, jobs, policy.pool)
    programs = programs_for(policy.pool, windows_of(weeks[:1], policy.pool, config), config)
    return learned_policies(programs, [policy.learned], weeks, policy.pool, config, keep)
