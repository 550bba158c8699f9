"""Replay of an archive's jobs under several rules: waits in one Parquet file, figures side by side."""

import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.formatting import number
from evaluation.ordering.summary import Summary, summarise
from evaluation.ordering.weeks import WeeksConfig, begin_schedule, cut_week, earlier, warm_earlier
from evaluation.progress import Progress
from logs_schema.archive import Archive
from logs_schema.errors import ConfigError, first
from twin.ordering.jobs import clairvoyant, read_jobs
from twin.ordering.replay import replay
from twin.ordering.rules import RULES, Rule
from twin.ordering.types import Jobs, OrderingError, Pool, Replayed, WarmStart

EPOCH = date(1970, 1, 1)
LOGGED_GAP = (
    "the log's own waits hold what this idealised machine leaves out: compare policies with each other, "
    "never with the log"
)


@dataclass(frozen=True)
class ReplayConfig:
    """What to replay.

    Attributes:
        policies: names of rules.
        easy: whether to backfill.
        processors: of the pool; those of the archive's nodes by default.
        backfill: name of the rule that orders backfilling; each policy's own by default.
        clairvoyant: whether requests are replaced by the true run times.
        days: first and last day of arrival to replay; all days by default.
        warm: with days: what runs and waits when the first one begins, one of `weeks.WARM_STARTS`.
    """

    policies: tuple[str, ...] = ("fcfs",)
    easy: bool = False
    processors: float | None = None
    backfill: str | None = None
    clairvoyant: bool = False
    days: tuple[date, date] | None = None
    warm: str = "logged"

    def __post_init__(self) -> None:
        if self.backfill is not None and not self.easy:
            raise ConfigError(
                "an order of backfilling without backfilling",
                where="backfill",
                allowed="an order only together with easy",
                advice="add --easy, or leave --backfill out",
            )
        if self.days is not None and self.days[0] > self.days[1]:
            raise ConfigError(
                "the last day lies before the first",
                where=f"days {self.days[0]} to {self.days[1]}",
                allowed="FIRST..LAST, both included",
            )


@dataclass(frozen=True)
class ReplayReport:
    """What the replays gave: jobs, pool, and for each policy its schedule and its figures."""

    jobs: Jobs
    pool: Pool
    schedules: dict[str, Replayed]
    summaries: dict[str, Summary]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; None where a figure does not apply."""
        one = next(iter(self.schedules.values()))
        return {
            "num_jobs": len(self.jobs.arrival_s),
            "processors": self.pool.processors,
            "easy": self.pool.easy,
            "counts": dict(self.jobs.counts)
            | {"too_large": one.num_too_large, "overrunning": one.num_overrunning},
            "logged_mean_wait_s": _finite(logged_mean_wait_s(self.jobs)),
            "note": LOGGED_GAP,
            "policies": {
                name: {key: _finite(value) for key, value in summary._asdict().items()}
                | {"num_backfilled": self.schedules[name].num_backfilled}
                for name, summary in self.summaries.items()
            },
        }


def replay_archive(path: Path, config: ReplayConfig, progress: Progress) -> ReplayReport:
    """Replays all jobs of an archive under each policy.

    Args:
        path: the archive.
        config: what to replay.
        progress: where to show how far it is.

    Raises:
        ArchiveError: there is no archive.
        ConfigError: no such rule.
        OrderingError: nothing to replay, or no pool to replay it on.
    """
    rules = [find_rule(name) for name in config.policies]
    backfill = None if config.backfill is None else find_rule(config.backfill)
    archive = Archive(path)
    pool = pool_of(archive, config.processors, easy=config.easy)
    jobs = read_jobs(archive)
    jobs = clairvoyant(jobs) if config.clairvoyant else jobs
    jobs, warm = (jobs, None) if config.days is None else _part(jobs, pool, config.days, config.warm)
    schedules, summaries = {}, {}
    with progress.stage("replay", total=len(rules), unit="policies") as stage:
        for num_done, rule in enumerate(rules):
            stage(num_done, text=rule.name)
            schedules[rule.name] = _from_first(jobs, pool, rule, backfill, warm)
            summaries[rule.name] = summarise(jobs, schedules[rule.name].start_s, pool)
        stage(len(rules))
    return ReplayReport(jobs, pool, schedules, summaries)


def _part(jobs: Jobs, pool: Pool, days: tuple[date, date], warm: str) -> tuple[Jobs, WarmStart]:
    """The jobs of some days, second 0 at their first midnight, and what runs then."""
    first_day, num_days = (days[0] - EPOCH).days, (days[1] - days[0]).days + 1
    config = WeeksConfig(num_test_days=num_days, num_drain_days=0, warm=warm)
    week, _ = cut_week(jobs, pool, begin_schedule(jobs, pool, warm), first_day, config)
    if not len(week.jobs.arrival_s):
        raise OrderingError(
            "no job arrives or waits in these days",
            where=f"{days[0]} to {days[1]}",
            advice="see which days the archive holds with schedtwin check",
        )
    return week.jobs, week.warm


def _from_first(
    jobs: Jobs, pool: Pool, rule: Rule, backfill: Rule | None, warm: WarmStart | None
) -> Replayed:
    """The replay on a clock that begins with the first job, as rules with arrivals in their formula expect."""
    if warm is None:
        return replay(jobs, pool, rule, backfill=backfill)
    first_s = min(jobs.arrival_s[0], 0.0)
    done = replay(earlier(jobs, first_s), pool, rule, backfill=backfill, warm=warm_earlier(warm, first_s))
    return done._replace(start_s=done.start_s + first_s)


def find_rule(name: str) -> Rule:
    """The rule of a name; ConfigError if there is none."""
    for rule in RULES:
        if rule.name == name:
            return rule
    raise ConfigError(
        f"there is no rule {name!r}",
        where="policy",
        allowed=", ".join(rule.name for rule in RULES),
        advice="choose one of these",
    )


def pool_of(archive: Archive, processors: float | None, *, easy: bool = False) -> Pool:
    """The pool asked for, else all processors of the archive's nodes; OrderingError if it knows none."""
    if processors is None:
        processors = float(np.sum(archive.nodes()["cpu_cores"].to_numpy()))
        if not processors > 0.0:
            raise OrderingError(
                "the archive does not say how large the machine is",
                where=f"{archive.path}, table nodes",
                allowed="at least one node",
                advice="give --processors",
            )
    return Pool(processors, easy)


def logged_mean_wait_s(jobs: Jobs) -> float:
    """Mean wait that the log itself knows, of the jobs whose start it knows; NaN if it knows none."""
    wait_s = jobs.logged_start_s - jobs.arrival_s
    known = ~np.isnan(wait_s)
    return float(np.mean(wait_s[known])) if known.any() else float("nan")


def write_waits(path: Path, report: ReplayReport, *, replace: bool = False) -> None:
    """Writes one row for each policy and job: policy, request_id, wait_s, start; null for jobs that never start.

    Args:
        path: the Parquet file; it appears whole or not at all.
        report: the replays.
        replace: whether an older file may be replaced.

    Raises:
        ConfigError: there is a file already, or no folder for it.
    """
    check_out(path, replace=replace)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    tables = [_waits(name, report.jobs, one) for name, one in report.schedules.items()]
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


def _waits(policy: str, jobs: Jobs, schedule: Replayed) -> pa.Table:
    wait_s = schedule.start_s - jobs.arrival_s
    never = np.isnan(wait_s)
    start_us = np.where(never, 0.0, schedule.start_s * 1e6).round().astype(np.int64) + jobs.origin_us
    return pa.table(
        {
            "request_id": pa.array(jobs.request_id, pa.string()),
            "wait_s": pa.array(wait_s, mask=never),
            "start": pa.array(start_us, mask=never).cast(pa.timestamp("us", "UTC")),
            "policy": pa.array([policy] * len(wait_s), pa.string()),
        }
    )


def as_lines(report: ReplayReport) -> str:
    """The report as a person reads it."""
    plain = report.to_json()
    hit = [f"{count:,} x {rule}" for rule, count in plain["counts"].items() if count]
    lines = [
        f"{plain['num_jobs']:,} jobs on {plain['processors']:g} processors, "
        f"{'EASY backfilling' if plain['easy'] else 'no backfilling'}"
        + (f"; {first(hit, num_shown=len(hit))}" if hit else ""),
        f"logged mean wait {number(plain['logged_mean_wait_s'])} s: {LOGGED_GAP}",
        "",
        f"{'policy':<14}{'mean wait s':>14}{'p99 wait s':>14}{'slowdown':>12}{'utilisation':>13}{'Jain':>8}"
        f"{'backfilled':>12}",
    ]
    for name, row in plain["policies"].items():
        lines.append(
            f"{name:<14}{number(row['mean_wait_s']):>14}{number(row['p99_wait_s']):>14}"
            f"{number(row['mean_bounded_slowdown']):>12}{number(row['utilisation']):>13}"
            f"{number(row['jain_fairness']):>8}{row['num_backfilled']:>12,}"
        )
    return "\n".join(lines)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
