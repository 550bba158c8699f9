"""The ordering problem's kit: which waiting job of a batch queue starts next."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

from evaluation.certify.certificate import Certificate, refusing
from evaluation.certify.config import CertifyConfig
from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.certify.persistence import certification_facts, certification_in
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.shifts import ShiftConfig, ShiftPlan
from evaluation.comparison.training_days import DaysConfig
from evaluation.jobs.job import Step
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_judges import UserJudge
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.configuration import OrderConfig, RunConfig
from evaluation.problems.kit import (
    Certifier,
    ExportOptions,
    Facts,
    Inputs,
    Job,
    Kit,
    ProblemOptions,
    StepPlan,
    days_shifted,
)
from evaluation.problems.ordering.certificate.certifying import certify_queue
from evaluation.problems.ordering.config import ORDER_CODE, as_settings
from evaluation.problems.ordering.fitting import build_queue_twin, days_of_last_anchor
from evaluation.problems.ordering.generated_log import DEFAULT, generate_queue_log
from evaluation.problems.ordering.judging import compare_queue
from evaluation.problems.ordering.log_gaps import left_out_in_words
from evaluation.problems.ordering.refreshing import queue_parts
from evaluation.problems.ordering.running import BUNDLE, refuse_unplayable, write_order_comparison
from evaluation.problems.ordering.same_machine import refuse_other_pool
from evaluation.problems.ordering.steps import (
    build_queue_bundle,
    build_queue_comparison,
    build_queue_policy,
    training_of,
)
from evaluation.problems.ordering.weeks_of_days import order_of, unread_in_words
from logs_schema import Archive
from logs_schema.errors import ConfigError, counted
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from twin.ordering.persistence import QueueTwin, load_queue_twin
from twin.problems import ORDERING


def configured(config: RunConfig, options: ProblemOptions) -> RunConfig:
    """The configuration with a table [order] (see `order_of`), the command line's pool and processors in it."""
    order = order_of(config)
    processors = order.processors if options.processors is None else options.processors
    return replace(config, order=replace(order, processors=processors, pool=options.pool or order.pool))


def _order(config: RunConfig) -> OrderConfig:
    return config.order or OrderConfig()


def weeks_shifted(config: RunConfig, shifts: str) -> RunConfig:
    """The configuration with other shifts, in [order.weeks] where there is a table [order]."""
    config = days_shifted(config, shifts)
    if config.order is None:
        return config
    return replace(config, order=replace(config.order, weeks=replace(config.order.weeks, shifts=shifts)))


def fit_plan(config: RunConfig, *, last_anchor: bool = False) -> StepPlan:
    """Fits the twin of a queue on the training days, or on those of the last anchor that a job trains at."""
    order = _order(config)

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        days = days_of_last_anchor(inputs["archive"], order) if last_anchor else config.days
        return build_queue_twin(out, inputs["archive"], days, order, progress)

    settings = {"problem": ORDERING, **as_settings(order, "weeks", "processors", "pool")}
    days = DaysConfig() if last_anchor else config.days
    return StepPlan(
        "twin", build, settings | {"days": days, "last_anchor": last_anchor}, code_version=ORDER_CODE
    )


def train_plan(config: RunConfig) -> StepPlan:
    """Learns orders in the twin of a queue, and chooses among them and the rules in past weeks."""
    training, weeks = training_of(config), _order(config).weeks

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        known = certification_facts(inputs)
        return build_queue_policy(out, inputs["twin"], training, progress, certification=known, weeks=weeks)

    settings = {"training": training, "num_drain_days": weeks.num_drain_days}
    return StepPlan("policy", build, settings, config.seed, ORDER_CODE)


def compare_plan(
    config: RunConfig,
    title: str,
    policies: Mapping[str, UserPolicy],
    judges: Mapping[str, UserJudge] | None = None,
) -> StepPlan:
    """Judges orders by exact replay of later weeks and in generated ones; `policies` and `judges` are the user's."""

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        policy = inputs.get("policy")
        return build_queue_comparison(
            out, inputs["archive"], inputs["twin"], policy, config, progress, title=title, users=policies,
            judges=judges,
        )  # fmt: skip

    order = None if config.order is None else as_settings(config.order)
    settings: dict[str, Any] = {"shifts": config.shifts, "order": order, "title": title}
    settings |= {"policies": sorted(policies)} if policies else {}
    settings |= {"judges": sorted(judges)} if judges else {}
    return StepPlan("comparison", build, settings, code_version=ORDER_CODE)


def judge(
    policies: Mapping[str, UserPolicy],
    twin: QueueTwin,
    archive: Archive,
    plan: ShiftPlan,
    progress: Progress,
    *,
    order: OrderConfig | None = None,
    intervals: IntervalConfig | None = None,
    judges: Mapping[str, UserJudge] | None = None,
) -> Comparison:
    """Orders in replay and in generated weeks; without `order` in whole weeks after every shift."""
    if order is not None and intervals is not None:
        order = replace(order, intervals=intervals)
    shifts = ",".join(f"{shift.shift_days}d" for shift in plan.shifts)
    config = RunConfig(shifts=ShiftConfig(shifts=shifts), order=order)
    return compare_queue(archive, twin, config, progress, users=policies, judges=judges)[0]


def certifier(twin_path: Path, population: Path | None) -> Certifier:
    """The certificate of a queue's twin; ConfigError where a population is named: it holds its own."""
    if population is not None:
        raise ConfigError(
            "the twin of a queue holds its own population",
            where=f"--population {population}",
            allowed="no other population",
            advice="leave it out",
        )
    content_hash, twin = read_manifest(twin_path, "twin").content_hash, load_queue_twin(twin_path)

    def make(
        archive: Archive,
        days: Sequence[dt.date] | None,
        config: CertifyConfig,
        progress: Progress,
        _keep: Unfinished,
    ) -> Certificate:
        return certify_queue(twin, archive, days, config, progress, twin_hash=content_hash)

    return Certifier(make, refusing(content_hash, twin.train_days))


def export(out: Path, policy: Path, options: ExportOptions) -> Facts:
    """The bundle of an index, of a rule, or of a comparison's best order; ConfigError where a policy is named."""
    if options.policy is not None:
        raise ConfigError(
            "the orders of a queue are not named so",
            where="--policy",
            allowed="together with a policy of placement",
            advice="name a published rule by --rule, or leave it out",
        )
    return build_queue_bundle(
        out,
        policy,
        seed=options.seed,
        licence=options.licence,
        rule=options.rule,
        comparison_path=options.comparison,
        replace_old=options.replace,
    )


def generate(twin: Path, num_days: int, out: Path, progress: Progress, **options: Any) -> Any:
    """Days of jobs under a rule, by default first come first served with EASY."""
    policy = options.pop("policy") or DEFAULT
    return generate_queue_log(twin, num_days, out, progress, policy=policy, **options)


def run(job: Job) -> dict[str, Path]:
    """Fit and certify the twin of the last anchor; train at every anchor, judge by replay, hand over the best order."""
    order = _order(job.config)
    if unread := unread_in_words(job.config, order):
        job.progress.note(unread)
    refuse_unplayable(job.archive, order)
    steps = [
        fit_plan(job.config, last_anchor=True).step("twin", ("archive",), job.resolve),
        job.certificate,
        _orders_plan(order, job.title).step("comparison", ("archive", CERTIFICATE), job.resolve),
    ]
    if order.training is not None and not order.training.index_only:
        steps.append(Step("bundle", "job-bundle", _hand_over, inputs=("comparison",)))
    return job.make(steps)


def _orders_plan(order: OrderConfig, title: str) -> StepPlan:
    """Trains orders at every anchor and judges them; the bundle lies beside the report."""

    def build(out: Path, inputs: Inputs, progress: Progress) -> Facts:
        found = certification_in(inputs[CERTIFICATE])
        return write_order_comparison(
            out, inputs["archive"], order, progress, title=title, certification=found.facts()
        )

    return StepPlan("comparison", build, as_settings(order) | {"title": title}, code_version=ORDER_CODE)


def _hand_over(out: Path, inputs: Inputs, _: Progress) -> None:
    """The bundle that the comparison chose, where every job has its bundle."""
    copytree(inputs["comparison"] / BUNDLE, out / BUNDLE)


def fitted(facts: Facts) -> list[str]:
    """Lines for the terminal on a fit."""
    queue = f"the queue of {facts['pool']}" if "pool" in facts else "a queue"
    too_large = facts["num_too_large"]
    never = f", {too_large:,} of them larger than the pool: they never start" if too_large else ""
    return [
        f"twin of {queue} on {facts['processors']:g} processors, {facts['first_day']} to {facts['last_day']}: "
        f"{counted(facts['num_jobs'], 'job')} of {counted(facts['num_users'], 'user')}{never}",
        *left_out_in_words(facts["counts"]),
    ]


def trained(facts: Facts) -> list[str]:
    """Lines for the terminal on a training."""
    lines = [
        f"index of seed {seed}: cross-entropy {loss:.3f} nats on held-out training jobs"
        for seed, loss in zip(facts["seeds"], facts["losses"], strict=True)
    ]
    chosen = facts["ladder"]
    return [*lines, *([] if chosen is None else [f"ladder: {chosen['words']}"]), *facts["notes"]]


def compared(comparison: Comparison) -> list[str]:
    """Lines for the terminal below the table: the twin's ranking against replay's, and the notes."""
    ranks = [
        f"ranks of {one.num_policies} policies, twin against replay, {one.shift_days}d: {one.rank_correlation:.2f}"
        for one in comparison.trust
        if one.rank_correlation is not None
    ]
    return [*ranks, *(f"note: {note}" for note in comparison.notes)]


ORDERING_KIT = Kit(
    name=ORDERING,
    decides="which waiting job of a queue starts next",
    needs="jobs with arrivals, processors and run times (table requests) of a pool whose size is known (table nodes)",
    lacking=lambda archive: "" if archive.num_rows("requests") else "the archive holds no jobs",
    claims=lambda config: config.order is not None,
    ranks_in_job=True,
    configured=configured,
    refuse_other_system=refuse_other_pool,
    fit=fit_plan,
    train=train_plan,
    compare=compare_plan,
    export=export,
    certifier=certifier,
    generate=generate,
    refresh=queue_parts,
    run=run,
    fitted=fitted,
    trained=trained,
    compared=compared,
    twin=QueueTwin,
    judge=judge,
    takes_judges=True,
    shifted=weeks_shifted,
    uncertified=lambda found: f"chosen by exact replay; its twin's certificate: {found.verdict}",
)
