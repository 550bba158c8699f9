"""Checks that a queue's twin and an archive are of the same machine, before any computation."""

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.comparison.products import holds_training, refuse_other_days
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from twin.ordering.jobs import read_jobs
from twin.ordering.pools import pool_of
from twin.ordering.types import OrderingError

FIT_POOL = "archive_processors"
"""Fact of a queue's twin: `known_processors` of the archive that it was fitted on."""
MOST_LARGER = 0.01
"""Share of jobs larger than the pool, beyond the training days' own share, from which on the machine is another one."""


def known_processors(archive: Archive, pool: str | None) -> float:
    """Processors of an archive's pool (of all its nodes where it is one pool); 0 where unknown.

    Raises:
        ConfigError: It has no such pool, or several of which none is named.
    """
    try:
        return pool_of(archive, None, name=pool).processors
    except OrderingError:
        return 0.0


def refuse_other_pool(archive: Archive, twin_path: Path) -> None:
    """Makes sure that an archive is of a queue's machine, and has the days of training as they were; ConfigError."""
    refuse_other_machine(archive, twin_path, read_manifest(twin_path, "twin").extra)
    refuse_other_days(archive, twin_path)


def refuse_other_machine(archive: Archive, twin_path: Path, facts: Mapping[str, Any]) -> None:
    """Makes sure that an archive is of the machine that a queue's twin was fitted on.

    A twin fitted on another size than its archive's (`--processors`) stays usable with that archive, and with those of
    its own size, such as it generates. Where the archive holds the training days, jobs larger than the pool are left to
    the counted rule: they never start.

    Raises:
        ConfigError: The archive's nodes have another number of processors than those of the fit and than the pool, or
            its jobs do not fit the pool.
        OrderingError: No job is usable.
    """
    pool, there = float(facts["processors"]), known_processors(archive, facts.get("pool"))
    expected = float(facts.get(FIT_POOL) or pool)
    if there and there not in (expected, pool):
        raise ConfigError(
            "the twin and the archive are of different machines",
            where=f"{twin_path}: {expected:g} processors; {archive.path}: {there:g}",
            allowed="an archive of the machine that the twin was fitted on",
            advice="fit a twin on this archive",
        )
    if holds_training(archive, map(dt.date.fromisoformat, facts["train_days"])):
        return
    requested = read_jobs(archive, pool=facts.get("pool")).processors
    num_jobs, num_larger = len(requested), int(np.sum(requested > pool))
    if num_larger > (MOST_LARGER + facts["num_too_large"] / max(facts["num_jobs"], 1)) * num_jobs:
        raise ConfigError(
            "the archive's jobs do not fit the twin's pool",
            where=f"{archive.path}: {num_larger:,} of {num_jobs:,} jobs request more than {pool:g} processors, "
            f"one requests {np.max(requested):g}",
            allowed=f"{MOST_LARGER:.0%} more of them than on the training days, of which there is none here",
            advice="fit a twin on this archive",
        )
