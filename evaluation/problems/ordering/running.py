"""The job of a queue on one archive: train on the days before each anchor, judge on the weeks after it, report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.products import NO_CERTIFICATE, archive_facts
from evaluation.jobs.unfinished import Unfinished
from evaluation.problems.configuration import OrderConfig, WeeksConfig
from evaluation.problems.ordering.comparing import compare_orders
from evaluation.problems.ordering.config import ORDER_CODE, as_settings
from evaluation.problems.ordering.exported_order import Winner, winner_of, with_exported_last
from evaluation.problems.ordering.exporting import QueueBundle, best_index, export_order, export_rule
from evaluation.problems.ordering.feature_ranges import Ranges, logged_ranges
from evaluation.problems.ordering.fixed_orders import fixed_order
from evaluation.problems.ordering.generated import generated_weeks
from evaluation.problems.ordering.ladder import CHOOSING, IndexOf, Ladder, choices_at, rules_and_ladder
from evaluation.problems.ordering.learned_orders import Learned, index_policy, learned_policies
from evaluation.problems.ordering.log_gaps import head_in_words, lacking_in_words
from evaluation.problems.ordering.order_candidates import learned_index
from evaluation.problems.ordering.replaying import queue_of
from evaluation.problems.ordering.reporting import write_order_report
from evaluation.problems.ordering.waits_with_room import waits_in_words
from evaluation.problems.ordering.weeks import anchor_days, plan_weeks
from logs_schema.archive import Archive
from logs_schema.layout import date_of
from logs_schema.progress import Progress, Stage
from offline_rl.ordering.index import Index, some_index
from offline_rl.ordering.index_scorer import scorer_of
from offline_rl.ordering.learning import (
    AnchorData,
    TrainedOrder,
    anchor_data,
    clone_log,
    learn_index,
    samples_before,
    train_order,
)
from offline_rl.ordering.predicting import RunTimeSamples
from offline_rl.ordering.programs import OrderTrainingConfig, Programs, judged_config, programs_for
from offline_rl.ordering.tables import with_tables
from twin.arrays import save_arrays
from twin.contracts import PyTree
from twin.ordering.job_windows import fitting_tick_s
from twin.ordering.population import JobPopulation, fit_population
from twin.ordering.population_check import check_population
from twin.ordering.types import Jobs, Pool

BUNDLE = "bundle"
TWIN_SEED = 500
"""Of the first generated week in which policies are judged."""
BY_REPLAY = "What is exported is chosen by exact replay, not by the twin."
FIXED = "arrivals and run times are fixed: no user reacts to a better or worse schedule"


def order_archive(
    path: Path,
    config: OrderConfig,
    progress: Progress,
    *,
    out: Path | None = None,
    certification: Mapping[str, Any] | None = None,
) -> Comparison:
    """Trains, judges and compares.

    Args:
        path: the archive.
        config: configuration of the problem.
        progress: progress display.
        out: folder for every anchor's parameters and for the bundle of the last one's best index, or of the rule that
            is better; None writes neither.
        certification: state of the certificate of the last anchor's twin, for the bundle.

    Raises:
        ArchiveError: there is no archive.
        ConfigError: the log is too short, settings do not go together, or one of several pools must be named.
        OrderingError: no job is usable, or no pool is known.
    """
    archive = Archive(path)
    jobs, pool = queue_of(archive, config)
    plan = plan_weeks(jobs, pool, config.weeks)
    training = _training_of(config, jobs, pool)
    keep = _unfinished(out, archive, config, progress)
    num_days = config.weeks.num_train_days
    lacking = [*lacking_in_words(jobs, pool), *waits_in_words(archive, jobs, pool)]

    def ladder_with(index_of: IndexOf, seed: int) -> Ladder:
        with progress.stage(CHOOSING):
            return rules_and_ladder(
                pool, choices_at(jobs, pool, plan.anchors, config.weeks, seed, keep), index_of
            )

    if training is not None and training.index_only:
        by_anchor = _indices(jobs, plan.anchors, pool, training.seeds, num_days, progress, keep)
        best = [indices[int(np.argmin(losses))] for indices, losses in by_anchor]
        policies, chosen, last = ladder_with(best.__getitem__, training.seeds[0])
        index = index_policy([indices for indices, _ in by_anchor], pool)
        return compare_orders(
            plan, (), [*policies, index], pool, config.weeks, progress, facts=queue_facts(archive, jobs, pool) | last,
            notes=[FIXED, *lacking, *chosen], intervals=config.intervals, keep=keep,
        )  # fmt: skip
    populations = [fit_population(jobs, anchor - num_days, num_days) for anchor in plan.anchors]
    seeds = range(TWIN_SEED, TWIN_SEED + config.num_twin_weeks)
    with progress.stage("generate weeks"):
        twin_weeks = generated_weeks(jobs, populations, plan.anchors, pool, seeds, config.weeks)
    notes = population_notes(jobs, populations, plan.anchors, pool, config.weeks)
    if training is None:
        index_at = partial(learned_index, jobs, pool, num_days=num_days, seed=0)
        policies, chosen, last = ladder_with(lambda number: index_at(plan.anchors[number]), 0)
    else:
        programs, learned, losses, about_training = train_anchors(
            jobs, populations, plan.anchors, pool, training, num_days, progress, out, keep
        )
        with progress.stage("play learned orders"):
            weeks = [*plan.weeks, *twin_weeks]
            more, num_late = learned_policies(programs, learned, weeks, pool, training, keep)
        best = [one.indices[int(np.argmin(loss))] for one, loss in zip(learned, losses, strict=True)]
        policies, chosen, last = ladder_with(best.__getitem__, training.seeds[0])
        policies += more
        notes += [*about_training, *late_notes(num_late)]
    comparison = compare_orders(
        plan, twin_weeks, policies, pool, config.weeks, progress, facts=queue_facts(archive, jobs, pool) | last,
        notes=[FIXED, *lacking, *chosen, *notes], intervals=config.intervals, keep=keep,
    )  # fmt: skip
    if training is None:
        return comparison
    winner = winner_of(comparison)
    if out is not None:
        _export(
            out / BUNDLE, winner, learned[-1], losses[-1], plan.anchors[-1], pool, training, archive, num_days,
            certification or {}, logged_ranges(jobs, pool, judged_config(training), plan.anchors[-1], num_days),
        )  # fmt: skip
    verb = "exported" if out is not None else "recommended for export"
    return with_exported_last(replace(comparison, notes=(*comparison.notes, f"{verb}: {winner.words}")))


def refuse_unplayable(path: Path, config: OrderConfig) -> None:
    """Raises before the training if an archive's queue cannot be trained on and evaluated as configured.

    Raises:
        ArchiveError, ConfigError, OrderingError: as `order_archive`.
    """
    jobs, pool = queue_of(Archive(path), config)
    anchor_days(jobs, config.weeks)
    _training_of(config, jobs, pool)


def _training_of(config: OrderConfig, jobs: Jobs, pool: Pool) -> OrderTrainingConfig | None:
    """How to train, with ticks and tables that fit the log."""
    if config.training is None or config.training.index_only:
        return config.training
    return with_tables(replace(config.training, tick_s=fitting_tick_s(jobs)), jobs, pool)


def _unfinished(
    out: Path | None, archive: Archive, config: OrderConfig, progress: Progress | None = None
) -> Unfinished:
    """What is done already of the comparison that is written into `out`."""
    if out is None:
        return Unfinished()
    settings = as_settings(config) | {"code": ORDER_CODE}
    return Unfinished.beside(out, "orders", {"archive": archive.content_hash}, settings, progress=progress)


def _indices(
    jobs: Jobs,
    anchors: Sequence[int],
    pool: Pool,
    seeds: Sequence[int],
    num_days: int,
    progress: Progress,
    keep: Unfinished,
) -> list[tuple[list[Index], list[float]]]:
    """Every anchor's indices, one a seed, and their losses on held-out jobs."""
    by_anchor = []
    with progress.stage("learn", total=len(anchors), unit="anchors") as stage:
        for done, anchor in enumerate(anchors):
            stage(done)
            samples = cache(partial(samples_before, jobs, pool, anchor, num_days))
            found = [kept_index(keep, done, seed, samples) for seed in seeds]
            by_anchor.append(([index for index, _ in found], [loss for _, loss in found]))
        stage(len(anchors))
    return by_anchor


def write_order_comparison(
    out: Path,
    path: Path,
    config: OrderConfig,
    progress: Progress,
    *,
    title: str,
    certification: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains, judges and compares; writes `comparison.json`, `report.html`, `report.json` and parameters into `out`.

    Report and bundle state the certificate of the last anchor's twin. Finished parts are saved beside `out` until all
    are done, so that a killed comparison is resumed.
    """
    comparison = order_archive(path, config, progress, out=out, certification=certification)
    archive = Archive(path)
    hashes = {"archive": archive.content_hash}
    words = (certification or {}).get("certification", NO_CERTIFICATE)
    is_trained = config.training is not None and not config.training.index_only
    about_twin = [f"The orders of the last anchor were {words}."] if is_trained else []
    passed = bool((certification or {}).get("certificate"))
    warnings = head_in_words(comparison.notes)
    warnings += [] if passed or certification is None else [f"{one} {BY_REPLAY}" for one in about_twin]
    facts = write_order_report(
        out, archive, comparison, title, as_settings(config), hashes, about_twin, warnings
    )
    _unfinished(out, archive, config).remove()
    return facts


def train_anchors(
    jobs: Jobs,
    populations: list[JobPopulation],
    anchors: tuple[int, ...],
    pool: Pool,
    config: OrderTrainingConfig,
    num_days: int,
    progress: Progress,
    out: Path | None,
    keep: Unfinished,
) -> tuple[Programs, list[Learned], list[tuple[float, ...]], list[str]]:
    """Every anchor's policies, the losses of their indices on held-out jobs, and notes on the training.

    Clones, indices and orders are saved as they are done; training data is generated only where one is missing.
    """
    learned, losses, notes = [], [], []
    anchors_data = [
        cache(partial(anchor_data, jobs, population, pool, anchor, config, num_days))
        for population, anchor in zip(populations, anchors, strict=True)
    ]
    programs = cache(lambda: programs_for(pool, anchors_data[0]().train, config))
    num_updates = config.num_updates * len(config.seeds)
    with progress.stage("train", total=num_updates * len(anchors), unit="updates") as stage:
        for number, (anchor, data) in enumerate(zip(anchors, anchors_data, strict=True)):
            case = _Anchor(number, anchor, pool, config, programs, data, keep)
            one, loss, note = _train_anchor(case, stage, number * num_updates)
            data.cache_clear()  # one anchor's windows at a time
            learned.append(one)
            losses.append(loss)
            notes.append(note)
            if out is not None:
                save_arrays(out / f"anchor-{number}.npz", one)
        stage(num_updates * len(anchors))
    return programs(), learned, losses, notes


class _Anchor(NamedTuple):
    """What the policies of one anchor are trained with; programs and data are made when they are called for."""

    number: int
    day: int
    pool: Pool
    config: OrderTrainingConfig
    programs: Callable[[], Programs]
    data: Callable[[], AnchorData]
    keep: Unfinished


def _train_anchor(case: _Anchor, stage: Stage, done: int) -> tuple[Learned, tuple[float, ...], str]:
    """An anchor's policies, the losses of their indices, and notes of the training."""
    config, number, keep = case.config, case.number, case.keep
    stage(done, text=f"anchor {number}: clone")
    clone, agreement = keep.tree(
        f"anchor {number}, clone",
        lambda: clone_log(case.day, case.programs(), case.data()),
        lambda: (scorer_of(some_index(), case.pool), 0.0),
    )
    indices, losses, trained = [], [], []
    for place, seed in enumerate(config.seeds):
        behind = done + place * config.num_updates
        stage(behind, text=f"anchor {number}, seed {seed}: learn")
        index, loss = kept_index(keep, number, seed, lambda: case.data().samples)
        indices.append(index)
        losses.append(loss)
        if place < config.num_ppo_seeds:
            trained.append(_kept_order(case, seed, scorer_of(index, case.pool), stage, behind))
    note = _training_in_words(number, float(agreement), losses, trained)
    return Learned(clone, tuple(indices), tuple(each.params for each in trained)), tuple(losses), note


def _kept_order(case: _Anchor, seed: int, first: PyTree, stage: Stage, done: int) -> TrainedOrder:
    """The order that PPO trains from a scorer (see `train_order`): loaded, or trained and saved."""
    folder = case.keep.folder
    on_the_way = folder and folder / f"anchor-{case.number}-order-{seed}-on-the-way.npz"
    kept: TrainedOrder = case.keep.tree(
        f"anchor {case.number}, order {seed}",
        lambda: train_order(seed, case.programs(), case.data(), first, case.config, stage, done, on_the_way),
        lambda: TrainedOrder(first, np.zeros(0), np.zeros(0)),
    )
    return kept


def kept_index(
    keep: Unfinished, number: int, seed: int, samples: Callable[[], RunTimeSamples]
) -> tuple[Index, float]:
    """The index of an anchor and seed, and its loss (see `learn_index`): loaded, or trained and saved."""
    index, loss = keep.tree(
        f"anchor {number}, index {seed}", lambda: learn_index(seed, samples()), lambda: (some_index(), 0.0)
    )
    return index, float(loss)


def _export(
    out: Path,
    winner: Winner,
    learned: Learned,
    losses: tuple[float, ...],
    anchor: int,
    pool: Pool,
    config: OrderTrainingConfig,
    archive: Archive,
    num_days: int,
    certification: Mapping[str, Any],
    ranges: Ranges | None,
) -> None:
    """The bundle of the best order: an anchor's best index, with the ladder's exponents, or a fixed order."""
    days = [date_of(day).isoformat() for day in (anchor - num_days, anchor - 1)]
    trained_on: dict[str, Any] = {"first_day": days[0], "last_day": days[1], "num_days": num_days}
    trained_on |= {"chosen": winner.words, **pool.described}
    trained_on["certification"] = certification.get("certification", NO_CERTIFICATE)
    stand_in = None if winner.fallback is None else fixed_order(winner.fallback)
    bundle = QueueBundle(
        pool, config, trained_on, {"archive": archive.content_hash}, ranges=ranges, fallback=stand_in
    )
    if winner.rule is not None:
        export_rule(fixed_order(winner.rule), out, bundle)
        return
    place, params = best_index(learned, losses, pool, winner.exponents)
    export_order(params, out, bundle, seed=config.seeds[place], certificate=certification.get("certificate"))


def _training_in_words(
    number: int, agreement: float, losses: Sequence[float], trained: Sequence[TrainedOrder]
) -> str:
    """Note on an anchor's training."""
    all_losses = ", ".join(f"{loss:.3f}" for loss in losses)
    looks = ", ".join(f"{one.slowdown[0]:.2f} to {one.slowdown.min():.2f}" for one in trained)
    return (
        f"anchor {number}: the clone of the logged order agrees with it in {agreement:.2f} of decisions; cross-entropy "
        f"of the indices' predictions of held-out jobs: {all_losses} nats; mean bounded slowdown in held-out generated "
        f"weeks, before and after PPO: {looks or 'not trained'}"
    )


def queue_facts(archive: Archive, jobs: Jobs, pool: Pool) -> dict[str, Any]:
    """Facts of a queue's archive for reports."""
    facts = archive_facts(archive) | {"processors": pool.processors, "num_jobs": len(jobs.arrival_s)}
    return facts | dict(jobs.counts) | pool.described


def late_notes(num_late: int) -> list[str]:
    """Notes where learned orders met a full queue."""
    if not num_late:
        return []
    return [f"{num_late} arrivals of learned orders found the queue's table full and waited outside"]


def population_notes(
    jobs: Jobs, populations: list[JobPopulation], anchors: tuple[int, ...], pool: Pool, weeks: WeeksConfig
) -> list[str]:
    """Notes on figures of the first test week outside the range of the twin's weeks."""
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
