"""What replays of an archive's queues gave: waits in one Parquet file, figures of every queue side by side."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.comparison.formatting import as_sentence, number
from evaluation.problems.ordering.summary import LOGGED_GAP, Summary, logged_mean_wait_s, stays, summarise
from evaluation.problems.ordering.weeks import earlier
from logs_schema.errors import ConfigError, first
from twin.ordering.pools import OUTSIDE
from twin.ordering.types import Jobs, Pool, Replayed
from twin.ordering.windows import chosen

ALL = "all pools together"
TOO_LARGE = "too_large"
CONSEQUENCES = {
    TOO_LARGE: " (larger than the pool: they never start)",
    "cancelled": " (before they started: left out)",
    "withdrawn": " (cancelled before they started: in the queue until then, in no figure)",
}
"""Explanation of counts whose names are not self-explanatory."""


@dataclass(frozen=True)
class ReplayedQueue:
    """One queue: jobs, pool, for each policy its schedule and its figures, and what makes these idle or doubtful."""

    jobs: Jobs
    pool: Pool
    schedules: dict[str, Replayed]
    summaries: dict[str, Summary]
    doubts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; None where a figure does not apply."""
        one = next(iter(self.schedules.values()))
        return self.pool.described | {
            "num_jobs": int(np.sum(stays(self.jobs))),
            "processors": self.pool.processors,
            "easy": self.pool.easy,
            "counts": dict(self.jobs.counts)
            | {TOO_LARGE: one.num_too_large, "overrunning": one.num_overrunning},
            "logged_mean_wait_s": _finite(logged_mean_wait_s(self.jobs)),
            "note": LOGGED_GAP,
            "doubts": list(self.doubts),
            "policies": {
                name: {key: _finite(value) for key, value in summary._asdict().items()}
                | {"num_backfilled": self.schedules[name].num_backfilled}
                for name, summary in self.summaries.items()
            },
        }


@dataclass(frozen=True)
class ReplayReport:
    """All queues that were played, in order of their pools' names, and the pools that had no job to play."""

    queues: tuple[ReplayedQueue, ...]
    idle: tuple[str, ...] = ()

    @property
    def has_pools(self) -> bool:
        """Whether several pools were played, each by itself."""
        return len(self.queues) + len(self.idle) > 1

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: of one queue; of several, all together and under `pools` each by itself."""
        if not self.has_pools:
            return self.queues[0].to_json()
        each = {str(queue.pool.name): queue.to_json() for queue in self.queues}
        return together(self.queues).to_json() | {"pools": each, "pools_without_jobs": list(self.idle)}


def together(queues: Sequence[ReplayedQueue]) -> ReplayedQueue:
    """Several queues as if they were one: all jobs in order of arrival, all processors of the pools that had any.

    What the rules of `twin.ordering.pools` left out is counted once: it belongs to none of the queues.
    """
    origin_us = min(queue.jobs.origin_us for queue in queues)
    later_s = [(queue.jobs.origin_us - origin_us) / 1e6 for queue in queues]
    moved = [earlier(queue.jobs, -seconds) for queue, seconds in zip(queues, later_s, strict=True)]
    jobs = _joined(moved)
    index = np.argsort(jobs.arrival_s, kind="stable")
    jobs = chosen(jobs, index)
    pool = Pool(sum(queue.pool.processors for queue in queues), queues[0].pool.easy)
    schedules = {}
    for name in queues[0].schedules:
        done = [queue.schedules[name] for queue in queues]
        start_s = [one.start_s + seconds for one, seconds in zip(done, later_s, strict=True)]
        backfilled = [one.num_backfilled for one in done if one.num_backfilled is not None]
        schedules[name] = Replayed(
            np.concatenate(start_s)[index],
            sum(backfilled) if len(backfilled) == len(done) else None,
            sum(one.num_too_large for one in done),
            sum(one.num_overrunning for one in done),
        )
    summaries = {name: summarise(jobs, one.start_s, pool) for name, one in schedules.items()}
    return ReplayedQueue(jobs, pool, schedules, summaries)


def _joined(parts: Sequence[Jobs]) -> Jobs:
    counts = {
        rule: count if rule in OUTSIDE else sum(dict(part.counts)[rule] for part in parts)
        for rule, count in parts[0].counts
    }
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name, values in parts[0]._asdict().items()
        if isinstance(values, np.ndarray)
    }
    return parts[0]._replace(**columns, counts=tuple(counts.items()))


def write_waits(path: Path, report: ReplayReport, *, replace: bool = False) -> None:
    """Writes one row for each policy and job: policy, request_id, wait_s, start; null for jobs that never start.

    Where several pools were replayed, a column `pool` names the job's pool.

    Args:
        path: the Parquet file; it appears whole or not at all.
        report: the replays.
        replace: whether an older file may be replaced.

    Raises:
        ConfigError: there is a file already, or no folder for it.
    """
    check_out(path, replace=replace)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    tables = [
        _waits(name, queue.jobs, queue.schedules[name], queue.pool.described if report.has_pools else {})
        for name in report.queues[0].schedules
        for queue in report.queues
    ]
    try:
        pq.write_table(pa.concat_tables(tables), beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def check_out(path: Path, *, replace: bool) -> None:
    """Refuses a file that is there already (unless `replace`) or has no folder; ConfigError."""
    if path.is_dir() or (path.exists() and not replace):
        raise ConfigError(
            "there is something already",
            where=str(path),
            allowed="a new file",
            advice="choose another name, or --replace a file",
        )
    if not path.absolute().parent.is_dir():
        raise ConfigError(
            "there is no folder for the file", where=str(path), allowed="an existing folder", advice="make it"
        )


def _waits(policy: str, jobs: Jobs, schedule: Replayed, pool: Mapping[str, str]) -> pa.Table:
    wait_s = schedule.start_s - jobs.arrival_s
    never = np.isnan(wait_s)
    start_us = np.where(never, 0.0, schedule.start_s * 1e6).round().astype(np.int64) + jobs.origin_us
    columns = {
        "request_id": pa.array(jobs.request_id, pa.string()),
        "wait_s": pa.array(wait_s, mask=never),
        "start": pa.array(start_us, mask=never).cast(pa.timestamp("us", "UTC")),
        "policy": pa.array([policy] * len(wait_s), pa.string()),
    }
    named = {column: pa.array([name] * len(wait_s), pa.string()) for column, name in pool.items()}
    return pa.table(columns | named)


def as_lines(report: ReplayReport) -> str:
    """The report as a person reads it: of several pools one part each, then all together."""
    plain = report.to_json()
    parts = [_part(f"{name}: ", part, "") for name, part in plain.get("pools", {}).items()]
    if report.idle:
        parts.append(f"no job in {first(report.idle)}")
    return "\n\n".join([*parts, _part(f"{ALL}: " if parts else "", plain, f": {LOGGED_GAP}")])


def _part(name: str, plain: dict[str, Any], gap: str) -> str:
    hit = [
        f"{count:,} x {rule}{CONSEQUENCES.get(rule, '')}" for rule, count in plain["counts"].items() if count
    ]
    width = max(14, *(len(policy) + 2 for policy in plain["policies"]))
    logged_s = plain["logged_mean_wait_s"]
    lines = [
        f"{name}{plain['num_jobs']:,} jobs on {plain['processors']:,.10g} processors, "
        f"{'EASY backfilling' if plain['easy'] else 'no backfilling'}"
        + (f"; {first(hit, num_shown=len(hit))}" if hit else ""),
        "the log has no waits" if logged_s is None else f"logged mean wait {number(logged_s)} s{gap}",
        "",
        f"{'policy':<{width}}{'mean wait s':>14}{'p99 wait s':>14}{'slowdown':>12}{'utilisation':>13}{'Jain':>8}"
        f"{'backfilled':>12}",
    ]
    for policy, row in plain["policies"].items():
        lines.append(
            f"{policy:<{width}}{number(row['mean_wait_s']):>14}{number(row['p99_wait_s']):>14}"
            f"{number(row['mean_bounded_slowdown']):>12}{number(row['utilisation']):>13}"
            f"{number(row['jain_fairness']):>8}{_count(row['num_backfilled']):>12}"
        )
    for doubt in plain["doubts"]:
        lines += ["", as_sentence(doubt)]
    return "\n".join(lines)


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
