"""The refresh of an order: which waiting job of a queue starts next.

No model is needed to evaluate an order: exact replay of the newest weeks gives its value, with arrivals and run times
as logged. The index fitted on the training days is exported, so neither clone nor PPO is trained.
"""

import datetime as dt
from dataclasses import replace
from pathlib import Path

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import number
from evaluation.comparison.metrics import BOUNDED_SLOWDOWN, JAIN_FAIRNESS, WAIT_P99
from evaluation.comparison.training_days import DaysConfig
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.judges.bundle_policies import OtherSystemError
from evaluation.problems.configuration import OrderConfig, RunConfig
from evaluation.problems.ordering.comparing import REFERENCES, REPLAY, compare_orders
from evaluation.problems.ordering.config import ORDER_CODE, as_settings
from evaluation.problems.ordering.exporting import policy_of_bundle
from evaluation.problems.ordering.fixed_orders import published_policies
from evaluation.problems.ordering.replaying import queue_of
from evaluation.problems.ordering.running import queue_facts
from evaluation.problems.ordering.steps import training_of
from evaluation.problems.ordering.weeks import log_days, plan_weeks, whole_days
from evaluation.problems.refresh_parts import CONTENDERS, NEW, RUNNING, HistorySplit, RefreshParts
from logs_schema import Archive
from logs_schema.calendar import EPOCH_DATE
from logs_schema.errors import ConfigError
from logs_schema.layout import date_of
from logs_schema.progress import Progress
from offline_rl.contract import read_contract
from twin.ordering.jobs import read_jobs
from twin.ordering.persistence import load_queue_twin
from twin.ordering.types import Pool

JUDGE_DAYS = 28
"""Four weeks: eight half weeks, the units of the intervals."""
BESIDE = (BOUNDED_SLOWDOWN, WAIT_P99, JAIN_FAIRNESS)


def queue_parts(config: RunConfig) -> RefreshParts:
    """The parts; only indices are trained.

    Raises:
        ConfigError: The configuration trains nothing, for rules only.
    """
    order = config.order or OrderConfig()
    indices = replace(order, training=order.training and replace(order.training, index_only=True))
    config = replace(config, order=indices)
    training_of(config)

    def hold_out(archive: Archive, num_days: int) -> HistorySplit:
        return newest_weeks(archive, num_days, config.days, order)

    def judge(
        archive: Path,
        twin: Path,
        days: tuple[dt.date, ...],
        new: Path,
        running: Path,
        progress: Progress,
        keep: Unfinished,
    ) -> Comparison:
        return judge_orders(Archive(archive), twin, days, new, running, order, progress, keep)

    return RefreshParts(
        num_days=JUDGE_DAYS,
        config=config,
        judge_code=ORDER_CODE,
        judge_settings=as_settings(order, "weeks", "intervals"),
        hold_out=hold_out,
        refuse_other=refuse_other,
        judge=judge,
    )


def newest_weeks(archive: Archive, num_days: int, days: DaysConfig, order: OrderConfig) -> HistorySplit:
    """The newest days whose jobs are counted; on the days after them jobs only keep arriving.

    Raises:
        ConfigError: Too few days are left for training.
    """
    begin, end = log_days(queue_of(archive, order)[0])
    last = end - order.weeks.num_drain_days
    first, needed = last - num_days, days.num_days or order.weeks.num_train_days
    if first - needed < begin:
        raise ConfigError(
            f"the history has {max(end - begin, 0)} whole days: too few to learn from {needed} and judge on "
            f"{num_days}, with {order.weeks.num_drain_days} days of arrivals behind them",
            where=f"{archive.path}: {whole_days(begin, end)}",
            allowed=f"at least {needed + num_days + order.weeks.num_drain_days} days",
            advice="hold out fewer days (--judge-days), learn from fewer ([order.weeks] num_train_days), or begin with "
            "a longer log",
        )
    return HistorySplit(tuple(date_of(day) for day in range(first, last)), date_of(first - 1))


def refuse_other(bundle: Path, twin_path: Path) -> None:
    """Makes sure that a bundle orders the queue of a twin.

    Raises:
        OtherSystemError: It orders another pool.
        ProductError: It is neither index nor rule, so the replay cannot play it.
    """
    pool = load_queue_twin(twin_path).pool
    _, own = policy_of_bundle(bundle)
    if (own.processors, own.name) != (pool.processors, pool.name):
        raise OtherSystemError(
            "the bundle was trained for another pool",
            where=f"{bundle}: {_named(own)}",
            allowed=_named(pool),
            advice="train and export a policy for this system",
        )


def judge_orders(
    archive: Archive,
    twin_path: Path,
    days: tuple[dt.date, ...],
    new: Path,
    running: Path,
    order: OrderConfig,
    progress: Progress,
    keep: Unfinished = NOTHING_KEPT,
) -> Comparison:
    """Both orders and the rules with EASY, in exact replay of the same days, from the running jobs of the log.

    Args:
        archive: The history.
        twin_path: The twin of the days before.
        days: Held-out days, one after another.
        new, running: Bundles.
        order: Lengths, and configuration of the intervals.
        progress: Progress display.
        keep: What of their starts is known already.
    """
    twin = load_queue_twin(twin_path)
    jobs = read_jobs(archive, pool=twin.pool.name)
    weeks = replace(
        order.weeks, num_train_days=twin.num_days, num_anchors=1, num_test_days=len(days), shifts="0d"
    )
    plan = plan_weeks(jobs, twin.pool, weeks, [(days[0] - EPOCH_DATE).days])
    policies = [
        policy_of_bundle(bundle)[0]._replace(name=name, description=CONTENDERS[name], kind="trained")
        for name, bundle in ((NEW, new), (RUNNING, running))
    ]
    rules = [rule for rule in published_policies(twin.pool) if rule.name in REFERENCES]
    comparison = compare_orders(
        plan, (), [*policies, *rules], twin.pool, weeks, progress,
        facts=queue_facts(archive, jobs, twin.pool), notes=_notes(running, days, weeks.num_drain_days),
        intervals=order.intervals, references=(RUNNING, *REFERENCES), keep=keep,
    )  # fmt: skip
    return replace(comparison, notes=(*comparison.notes, *_beside(comparison)))


def _notes(running: Path, days: tuple[dt.date, ...], num_drain_days: int) -> list[str]:
    """Notes on the days."""
    notes = [f"jobs of the {num_drain_days} days after the judged ones arrive too, and do not count"]
    last = read_contract(running).trained_on.get("last_day", "")
    if last >= days[0].isoformat():
        notes.append(
            f"the running policy was trained on days up to {last}, including test days: it may profit"
        )
    return notes


def _beside(comparison: Comparison) -> list[str]:
    """Notes with further metrics, and the values of the rules on the same days."""
    notes = []
    for metric in BESIDE:
        values = [
            f"{policy.name} {number(cell.value)}"
            for policy in comparison.policies
            if (cell := comparison.cell(REPLAY, 0, policy.name, metric.name)) is not None
        ]
        notes.append(f"{metric.name}: {', '.join(values)}")
    return notes


def _named(pool: Pool) -> str:
    """A pool in words."""
    return " ".join([f"{pool.processors:g} processors", *(f"of {name}" for name in pool.described.values())])
