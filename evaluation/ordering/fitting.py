"""Fits the twin of a queue: which days to learn from, and the product that is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evaluation.configuration import DaysConfig, RunConfig
from evaluation.ordering.config import OrderConfig
from evaluation.ordering.foreign import FIT_POOL, known_processors
from evaluation.ordering.replaying import EPOCH, queue_of
from evaluation.ordering.weeks import WeeksConfig, anchor_days, log_days, whole_days
from evaluation.shifts import parse_shifts
from logs_schema.archive import Archive
from logs_schema.errors import ConfigError
from logs_schema.layout import date_of
from logs_schema.progress import Progress
from twin.ordering.keeping import fit_queue, save_queue
from twin.ordering.pools import pool_sizes
from twin.ordering.types import Jobs
from twin.problems import KEY, ORDERING, PLACEMENT

ROOM_DAYS = 56
"""Days after training that are left for a certificate, where the log is long enough: eight weeks."""
ONE_POOL = (
    "the archive knows one pool only: nothing to place, so this is a twin of its queue (--problem ordering)"
)
SEVERAL_POOLS = "nobody chose between the archive's pools: nothing to place, so this is a twin of a queue"


class Asked(NamedTuple):
    """What the command line says of the problem; None where it says nothing."""

    problem: str | None = None
    processors: float | None = None
    pool: str | None = None


def only_ordering(archive: Archive) -> bool:
    """Whether there is nothing to place in an archive: one pool, or several between which nobody chose."""
    nodes = archive.nodes()
    if nodes.num_rows < 2:
        return nodes.num_rows == 1
    return all(nodes["virtual"].to_pylist()) and "decisions" in archive.facts.get("limits", {})


def _why_ordering(archive: Archive) -> str:
    """Why an archive is taken for one of queues; empty where it is not."""
    if not only_ordering(archive):
        return ""
    return ONE_POOL if archive.nodes().num_rows == 1 else SEVERAL_POOLS


def refuse_several_queues(archive: Archive) -> None:
    """Says that there is nothing to place in an archive of several machines between which nobody chose; ConfigError."""
    sizes = pool_sizes(archive) if only_ordering(archive) else {}
    if len(sizes) > 1:
        raise ConfigError(
            f"the log holds the queues of {len(sizes)} pools, and nobody chose between them: nothing to place",
            where=f"{archive.path}, table nodes, column node_class",
            allowed=", ".join(sizes),
            advice=f'learn the order of one queue: [order] with pool = "{next(iter(sizes))}"',
        )


def choose_problem(config: RunConfig, archive: Path, asked: Asked) -> tuple[OrderConfig | None, str]:
    """Which problem an archive's log is taken for.

    Args:
        config: a table [order] asks for ordering.
        archive: looked at where neither the command line nor the configuration says.
        asked: on the command line.

    Returns:
        The settings of the ordering problem, None where it is placement; and what to say of the choice.

    Raises:
        ConfigError: placement, and yet processors or a pool are named.
    """
    problem, told = asked.problem or (ORDERING if config.order is not None else None), ""
    if problem is None:
        told = _why_ordering(Archive(archive))
        problem = ORDERING if told else PLACEMENT
    if problem == ORDERING:
        order = config.order or OrderConfig()
        processors = order.processors if asked.processors is None else asked.processors
        return replace(order, processors=processors, pool=asked.pool or order.pool), told
    if asked.processors is not None or asked.pool is not None:
        raise ConfigError(
            "placement knows its nodes from the archive",
            where="--pool" if asked.processors is None else "--processors",
            allowed="--pool and --processors together with --problem ordering",
        )
    return None, told


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
    first_day, num_days = training_days(jobs, days, config.weeks)
    with progress.stage(f"fit on {num_days} days"):
        twin = fit_queue(jobs, pool, first_day, num_days)
        save_queue(twin, out)
    train_days = [day for day in archive.days("requests") if 0 <= (day - EPOCH).days - first_day < num_days]
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
        **pool.told,
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
        last = (days.last_day - EPOCH).days
    elif days.first_day is not None and days.num_days is not None:
        last = (days.first_day - EPOCH).days + num_days - 1
    else:
        last = max(end - room, min(begin + num_days, end - after)) - 1
    first = last + 1 - num_days if days.first_day is None else (days.first_day - EPOCH).days
    if not begin <= first <= last < end:
        raise ConfigError(
            "the training days do not lie within the log",
            where=f"{date_of(first)} to {date_of(last)}",
            allowed=f"days of the log: {whole_days(begin, end)}",
            advice=f"train on fewer days ([days] num_days, or [order.weeks] num_train_days), leave fewer than {after} "
            "for tests ([order.weeks] num_test_days, num_drain_days), or name them ([days] first_day, last_day)",
        )
    return first, last + 1 - first
