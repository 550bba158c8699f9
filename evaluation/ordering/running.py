"""The whole question for one archive: train on the days before each anchor, judge on the weeks after it, report."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evaluation.bootstrap import BootstrapConfig
from evaluation.comparison import Comparison
from evaluation.ordering.comparing import compare_orders
from evaluation.ordering.generated import generated_weeks
from evaluation.ordering.learned import Learned, learned_policies
from evaluation.ordering.learning import clone_log, ground_of, teach_scorer, train_order
from evaluation.ordering.playing import rule_policies
from evaluation.ordering.predicting import WEIGHTS
from evaluation.ordering.programs import OrderTrainingConfig, Programs, programs_for
from evaluation.ordering.replaying import pool_size
from evaluation.ordering.weeks import WeeksConfig, plan_weeks
from evaluation.pipeline import archive_facts
from evaluation.progress import Progress
from evaluation.records import to_plain
from evaluation.report import Report, write_report
from logs_schema.archive import Archive
from twin.arrays import save_arrays
from twin.ordering.jobs import read_jobs
from twin.ordering.population import Population, fit_population
from twin.ordering.population_check import check_population
from twin.ordering.types import Jobs, Pool

LIMITS = (
    "Replay is of an idealised machine: what held jobs back in the log besides a lack of processors (hours of "
    "operation, partitions, failures) is not in it. The gap to the logged waits is in the notes.",
    "The judge called training twin is a model of the users of the training days; against it stands replay, here the "
    "truth of this problem, in the table of the judges.",
)
FIXED = "arrivals and run times are fixed: no user reacts to a better or worse schedule"


@dataclass(frozen=True)
class OrderConfig:
    """What to do.

    Attributes:
        processors: of the pool; those of the archive's nodes by default.
        weeks: which weeks to judge.
        training: how to train; None judges the published rules alone.
        num_twin_weeks: generated weeks for each anchor in which all policies are played too.
        intervals: of the bootstrap.
    """

    processors: float | None = None
    weeks: WeeksConfig = field(default_factory=WeeksConfig)
    training: OrderTrainingConfig | None = field(default_factory=OrderTrainingConfig)
    num_twin_weeks: int = 6
    intervals: BootstrapConfig = field(default_factory=BootstrapConfig)


def quick(config: OrderConfig) -> OrderConfig:
    """The same with little training: to see that everything works, not to find out who is better."""
    training = config.training and replace(
        config.training, seeds=config.training.seeds[:1], num_updates=2, look_every=1, num_streams=8, num_steps=32,
        num_episodes=2, num_held_out=1, clone_updates=5,
    )  # fmt: skip
    return replace(config, training=training, num_twin_weeks=2)


def order_archive(
    path: Path, config: OrderConfig, progress: Progress, *, out: Path | None = None
) -> Comparison:
    """Trains, judges and compares.

    Args:
        path: the archive.
        config: what to do.
        progress: where to show how far it is.
        out: folder for every anchor's parameters, if they are to be kept.

    Raises:
        ArchiveError: there is no archive.
        ConfigError: the log is too short, or settings do not go together.
        OrderingError: no job is usable, or no pool is known.
    """
    archive = Archive(path)
    pool = Pool(pool_size(archive) if config.processors is None else config.processors)
    jobs = read_jobs(archive)
    plan = plan_weeks(jobs, pool, config.weeks)
    num_days = config.weeks.num_train_days
    populations = [fit_population(jobs, anchor - num_days, num_days) for anchor in plan.anchors]
    seeds = range(500, 500 + config.num_twin_weeks)
    with progress.stage("generate weeks"):
        twin_weeks = generated_weeks(jobs, populations, plan.anchors, pool, seeds, config.weeks)
    policies = rule_policies(pool)
    notes = [FIXED, *_population_notes(jobs, populations, plan.anchors, pool, config.weeks)]
    if config.training is not None:
        programs, learned, said = _train(
            jobs, populations, plan.anchors, pool, config.training, num_days, progress, out
        )
        with progress.stage("play learned orders"):
            more, num_late = learned_policies(
                programs, learned, [*plan.weeks, *twin_weeks], pool, config.training
            )
        policies += more
        notes += said
        if num_late:
            notes.append(
                f"{num_late} arrivals of learned orders found the queue's table full and waited outside"
            )
    facts = archive_facts(archive) | {"processors": pool.processors, "num_jobs": len(jobs.arrival_s)}
    return compare_orders(
        plan, twin_weeks, policies, pool, config.weeks, progress,
        facts=facts | dict(jobs.counts),
        notes=notes, intervals=config.intervals,
    )  # fmt: skip


def write_order_comparison(
    out: Path, path: Path, config: OrderConfig, progress: Progress, *, title: str
) -> dict[str, Any]:
    """Trains, judges and compares; writes `comparison.json`, `report.html`, `report.json` and parameters into `out`."""
    comparison = order_archive(path, config, progress, out=out)
    (out / "comparison.json").write_text(json.dumps(comparison.to_json(), indent=1, allow_nan=False))
    report = Report(
        title=title,
        comparison=comparison,
        configuration=to_plain(asdict(config)),
        hashes={"archive": Archive(path).content_hash},
        limits=LIMITS,
    )
    write_report(report, out)
    return {"main_metric": comparison.main_metric}


def _train(
    jobs: Jobs,
    populations: list[Population],
    anchors: tuple[int, ...],
    pool: Pool,
    config: OrderTrainingConfig,
    num_days: int,
    progress: Progress,
    out: Path | None,
) -> tuple[Programs, list[Learned], list[str]]:
    """Every anchor's policies, and notes on what the twin said of them."""
    learned, notes = [], []
    programs: Programs | None = None
    total = config.num_updates * len(config.seeds) * len(anchors)
    with progress.stage("train", total=total, unit="updates") as stage:
        for number, (population, anchor) in enumerate(zip(populations, anchors, strict=True)):
            done = number * config.num_updates * len(config.seeds)
            stage(done, text=f"anchor {number}: generate and predict")
            ground = ground_of(jobs, population, pool, anchor, config, num_days)
            programs = programs or programs_for(pool, ground.train, config)
            stage(done, text=f"anchor {number}: clone")
            clone, agreement = clone_log(anchor, programs, ground)
            index = teach_scorer(programs, ground, pool)
            trained = []
            for place, seed in enumerate(config.seeds):
                behind = done + place * config.num_updates
                trained.append(train_order(seed, programs, ground, index, config, stage, behind))
            one = Learned(clone, jax.tree.map(np.asarray, index), tuple(each.params for each in trained))
            learned.append(one)
            weights = WEIGHTS[int(np.argmin(ground.slowdown))]
            looks = ", ".join(f"{each.slowdown[0]:.2f} to {each.slowdown.min():.2f}" for each in trained)
            notes.append(
                f"anchor {number}: the clone of the logged order agrees with it in {agreement:.2f} of decisions; "
                f"exponents {weights}; mean bounded slowdown in held-out generated weeks, index to PPO: {looks}"
            )
            if out is not None:
                save_arrays(out / f"anchor-{number}.npz", one)
        stage(total)
    if programs is None:
        raise RuntimeError("a plan without anchors")
    return programs, learned, notes


def _population_notes(
    jobs: Jobs, populations: list[Population], anchors: tuple[int, ...], pool: Pool, weeks: WeeksConfig
) -> list[str]:
    """Which figures of the first test week lie outside what the twin generates."""
    notes = []
    for number, (population, anchor) in enumerate(zip(populations, anchors, strict=True)):
        check = check_population(
            population, jobs, anchor, weeks.num_test_days, pool.processors, num_generated=40
        )
        outside = check.outside()
        named = ", ".join(outside) if outside else "none"
        notes.append(
            f"anchor {number}: figures of the following week outside 90 % of generated weeks: {named} "
            f"(of {len(check.held_out)})"
        )
    return notes
