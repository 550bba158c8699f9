"""Fits the twin of a queue: which days to learn from, and the product that is written."""

from pathlib import Path
from typing import Any

import numpy as np

from evaluation.comparison.shifts import parse_shifts
from evaluation.comparison.training_days import DaysConfig
from evaluation.problems.configuration import OrderConfig, WeeksConfig
from evaluation.problems.ordering.log_gaps import room_in_words
from evaluation.problems.ordering.replaying import queue_of
from evaluation.problems.ordering.same_machine import FIT_POOL, known_processors
from evaluation.problems.ordering.waits_with_room import waits_in_words
from evaluation.problems.ordering.weeks import anchor_days, log_days, whole_days
from logs_schema.archive import Archive
from logs_schema.calendar import EPOCH_DATE
from logs_schema.errors import ConfigError
from logs_schema.layout import date_of
from logs_schema.progress import Progress
from twin.ordering.persistence import fit_queue, save_queue
from twin.ordering.types import Jobs
from twin.problems import KEY, ORDERING

ROOM_DAYS = 56
"""Days after training that are left for a certificate, where the log is long enough: eight weeks."""


def build_queue_twin(
    out: Path, archive_path: Path, days: DaysConfig, config: OrderConfig, progress: Progress
) -> dict[str, Any]:
    """Fits a twin on the training days of an archive and writes it into `out`.

    Args:
        out: folder to write into.
        archive_path: of the archive.
        days: bounds of the training days; by default `config.weeks.num_train_days`, so long before the log's end that
            all shifts can be judged and a certificate has eight weeks.
        config: pool, processors and weeks.
        progress: where to show how far it is.

    Returns:
        Facts for the manifest.

    Raises:
        ArchiveError: there is no archive.
        ConfigError: the log does not hold these days, or one of several pools must be named.
        OrderingError: no job is usable, no pool is known, or the days hold no job.
    """
    archive = Archive(archive_path)
    with progress.stage("read"):
        jobs, pool = queue_of(archive, config)
    for sentence in (*room_in_words(jobs, pool), *waits_in_words(archive, jobs, pool)):
        progress.note(sentence)
    first_day, num_days = training_days(jobs, days, config.weeks)
    with progress.stage(f"fit on {num_days} days"):
        twin = fit_queue(jobs, pool, first_day, num_days)
        save_queue(twin, out)
    train_days = [
        day for day in archive.days("requests") if 0 <= (day - EPOCH_DATE).days - first_day < num_days
    ]
    return {
        KEY: ORDERING,
        "processors": pool.processors,
        FIT_POOL: known_processors(archive, pool.name),
        "archive": archive.content_hash,
        "train_days_hash": archive.days_hash("requests", train_days),
        "first_day": date_of(first_day).isoformat(),
        "last_day": date_of(first_day + num_days - 1).isoformat(),
        "train_days": [day.isoformat() for day in train_days],
        "num_jobs": len(twin.population.run_s),
        "num_users": len(twin.population.user_agent),
        "num_too_large": int(np.sum(twin.population.processors > pool.processors)),
        "counts": dict(jobs.counts),
        **pool.described,
    }


def days_of_last_anchor(archive_path: Path, config: OrderConfig) -> DaysConfig:
    """The training days of the last anchor that `schedtwin order` would train at.

    Raises:
        ConfigError: the log is too short for one anchor, or one of several pools must be named.
    """
    jobs, _ = queue_of(Archive(archive_path), config)
    anchor = anchor_days(jobs, config.weeks)[-1]
    return DaysConfig(last_day=date_of(anchor - 1), num_days=config.weeks.num_train_days)


def training_days(jobs: Jobs, days: DaysConfig, weeks: WeeksConfig) -> tuple[int, int]:
    """First training day (days since 1970, UTC) and how many.

    Raises:
        ConfigError: the log does not hold them.
    """
    begin, end = log_days(jobs)
    num_days = weeks.num_train_days if days.num_days is None else days.num_days
    after = weeks.num_test_days + weeks.num_drain_days
    room = max(ROOM_DAYS + weeks.num_drain_days, max(parse_shifts(weeks.shifts)) + after)
    if days.last_day is not None:
        last = (days.last_day - EPOCH_DATE).days
    elif days.first_day is not None and days.num_days is not None:
        last = (days.first_day - EPOCH_DATE).days + num_days - 1
    else:
        last = max(end - room, min(begin + num_days, end - after)) - 1
    first = last + 1 - num_days if days.first_day is None else (days.first_day - EPOCH_DATE).days
    if not begin <= first <= last < end:
        is_named = days.first_day is not None or days.last_day is not None
        raise ConfigError(
            "the training days do not lie within the log"
            if is_named
            else f"{max(end - begin, 0)} whole days of log are too few for {num_days} of training and {after} of tests",
            where=f"{date_of(first)} to {date_of(last)}" if is_named else "[days] num_days, [order.weeks]",
            allowed=f"days of the log: {whole_days(begin, end)}",
            advice=f"train on fewer days ([days] num_days, or [order.weeks] num_train_days), leave fewer than {after} "
            "for tests ([order.weeks] num_test_days, num_drain_days), or name them ([days] first_day, last_day)",
        )
    return first, last + 1 - first
