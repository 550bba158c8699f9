"""The whole question for one archive: train on the days before each anchor, judge on the weeks after it, report."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.comparison import Comparison
from evaluation.ordering.comparing import compare_orders
from evaluation.ordering.config import OrderConfig
from evaluation.ordering.exporting import best_index, export_order
from evaluation.ordering.generated import generated_weeks
from evaluation.ordering.learned import Learned, learned_policies
from evaluation.ordering.learning import Trained, clone_log, ground_of, search_index, train_order
from evaluation.ordering.playing import rule_policies
from evaluation.ordering.predicting import scorer_of
from evaluation.ordering.programs import OrderTrainingConfig, Programs, programs_for
from evaluation.ordering.replaying import pool_size
from evaluation.ordering.searching import Found
from evaluation.ordering.weeks import WeeksConfig, plan_weeks
from evaluation.pipeline import archive_facts
from evaluation.progress import Progress
from evaluation.records import to_plain
from evaluation.report import Report, write_report
from logs_schema.archive import Archive
from twin.arrays import save_arrays
from twin.ordering.job_windows import fitting_tick_s
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
BUNDLE = "bundle"
FIXED = "arrivals and run times are fixed: no user reacts to a better or worse schedule"


def order_archive(
    path: Path, config: OrderConfig, progress: Progress, *, out: Path | None = None
) -> Comparison:
    """Trains, judges and compares.

    Args:
        path: the archive.
        config: what to do.
        progress: where to show how far it is.
        out: folder for every anchor's parameters and for the bundle of the last one's best index, if they are wanted.

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
        training = replace(config.training, tick_s=fitting_tick_s(jobs))
        programs, learned, found, said = _train(
            jobs, populations, plan.anchors, pool, training, num_days, progress, out
        )
        if out is not None:
            _export(out / BUNDLE, learned[-1], found[-1], plan.anchors[-1], pool, training, archive, num_days)
        with progress.stage("play learned orders"):
            more, num_late = learned_policies(programs, learned, [*plan.weeks, *twin_weeks], pool, training)
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
) -> tuple[Programs, list[Learned], list[tuple[Found, ...]], list[str]]:
    """Every anchor's policies, what their searches found, and notes on what the twin said of them."""
    learned, searches, notes = [], [], []
    programs: Programs | None = None
    total = config.num_updates * len(config.seeds) * len(anchors)
    with progress.stage("train", total=total, unit="updates") as stage:
        for number, (population, anchor) in enumerate(zip(populations, anchors, strict=True)):
            done = number * config.num_updates * len(config.seeds)
            stage(done, text=f"anchor {number}: generate")
            ground = ground_of(jobs, population, pool, anchor, config, num_days)
            programs = programs or programs_for(pool, ground.train, config)
            stage(done, text=f"anchor {number}: clone")
            clone, agreement = clone_log(anchor, programs, ground)
            found, trained = [], []
            for place, seed in enumerate(config.seeds):
                behind = done + place * config.num_updates
                stage(behind, text=f"anchor {number}, seed {seed}: search")
                found.append(search_index(seed, ground, pool, config))
                if place < config.num_ppo_seeds:
                    first = scorer_of(found[-1][0], pool)
                    trained.append(train_order(seed, programs, ground, first, config, stage, behind))
            one = Learned(clone, tuple(index for index, _ in found), tuple(each.params for each in trained))
            learned.append(one)
            searches.append(tuple(each for _, each in found))
            notes.append(_said(number, agreement, [each for _, each in found], trained))
            if out is not None:
                save_arrays(out / f"anchor-{number}.npz", one)
        stage(total)
    if programs is None:
        raise RuntimeError("a plan without anchors")
    return programs, learned, searches, notes


def _export(
    out: Path,
    learned: Learned,
    found: tuple[Found, ...],
    anchor: int,
    pool: Pool,
    config: OrderTrainingConfig,
    archive: Archive,
    num_days: int,
) -> None:
    """The bundle of an anchor's best index."""
    place, params = best_index(learned, found, pool)
    days = [str(np.datetime64(day, "D")) for day in (anchor - num_days, anchor - 1)]
    trained_on = {"first_day": days[0], "last_day": days[1], "num_days": num_days}
    export_order(
        params, out, pool, config,
        trained_on=trained_on, made_from={"archive": archive.content_hash}, seed=config.seeds[place],
    )  # fmt: skip


def _said(number: int, agreement: float, found: Sequence[Found], trained: Sequence[Trained]) -> str:
    """What an anchor's training said of itself."""
    exponents = "; ".join(" ".join(f"{value:.2f}" for value in one.exponents) for one in found)
    told = ", ".join(f"{one.slowdown:.2f}" for one in found)
    known = ", ".join(f"{value:.2f}" for value in np.mean([one.of_known for one in found], axis=0))
    looks = ", ".join(f"{one.slowdown[0]:.2f} to {one.slowdown.min():.2f}" for one in trained)
    return (
        f"anchor {number}: the clone of the logged order agrees with it in {agreement:.2f} of decisions; exponents of "
        f"the indices: {exponents}; their slowdown in the months they were searched in: {told}, that of smallest area, "
        f"shortest request and smallest expected area first there: {known}; in held-out generated weeks, before and "
        f"after PPO: {looks or 'not trained'}"
    )


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
