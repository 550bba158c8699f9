"""Replay of an archive's jobs under several rules, every pool of it by itself."""

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evaluation.problems.configuration import WARM_STARTS, WeeksConfig
from evaluation.problems.ordering.fixed_orders import fixed_order, is_by_predictions
from evaluation.problems.ordering.log_gaps import room_in_words
from evaluation.problems.ordering.online import ONLINE, OrderAt, online_starts
from evaluation.problems.ordering.other_waits import name_of_waits, read_waits
from evaluation.problems.ordering.replay_report import ReplayedQueue, ReplayReport
from evaluation.problems.ordering.summary import summarise
from evaluation.problems.ordering.waits_with_room import waits_in_words
from evaluation.problems.ordering.weeks import begin_schedule, cut_week, earlier, warm_earlier
from logs_schema.archive import Archive
from logs_schema.calendar import EPOCH_DATE
from logs_schema.errors import ConfigError, first
from logs_schema.progress import Progress
from twin.ordering.jobs import clairvoyant, read_jobs
from twin.ordering.pools import pool_of, pools_of
from twin.ordering.predicted import PredictedOrder, replay_predicted
from twin.ordering.replay import replay
from twin.ordering.rules import RULES, Rule
from twin.ordering.types import Jobs, NoJobsError, Pool, Replayed, WarmStart

if TYPE_CHECKING:
    from evaluation.problems.configuration import OrderConfig


@dataclass(frozen=True)
class ReplayConfig:
    """Configuration of a replay.

    Attributes:
        policies: names of rules; with easy also of the weighted family (`fixed_orders`) and of orders that learn on
            the way (`online`).
        easy: backfill behind the head (EASY).
        processors: size of the one pool; without it that of the archive's nodes.
        backfill: order of backfilling; without it the policy's own.
        clairvoyant: use the true run times instead of the requested ones.
        days: first and last day of arrival to replay; all days by default.
        warm: with days: running and waiting jobs at the beginning: as logged, as under fcfs with EASY, or nothing.
        pool: class of the queue's nodes; without it all pools, each by itself.
        withdraw: let jobs that were cancelled before their start wait until then; else they are left out.
        waits: SWF files of the same jobs with another scheduler's waits.
    """

    policies: tuple[str, ...] = ("fcfs",)
    easy: bool = False
    processors: float | None = None
    backfill: str | None = field(default=None, metadata={"choices": tuple(rule.name for rule in RULES)})
    clairvoyant: bool = False
    days: tuple[date, date] | None = None
    warm: str = field(default=WARM_STARTS[0], metadata={"choices": WARM_STARTS})
    pool: str | None = None
    withdraw: bool = False
    waits: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.backfill is not None and not self.easy:
            raise ConfigError(
                "an order of backfilling without backfilling",
                where="backfill",
                allowed="an order only together with easy",
                advice="add --easy, or leave --backfill out",
            )
        if self.warm != WARM_STARTS[0] and self.days is None:
            raise ConfigError(
                f"a replay of the whole log begins with nothing, not with jobs {self.warm}",
                where="warm",
                allowed="together with days",
                advice="name the days (--days), or leave --warm out",
            )
        if self.days is not None and self.days[0] > self.days[1]:
            raise ConfigError(
                "the last day lies before the first",
                where=f"days {self.days[0]} to {self.days[1]}",
                allowed="FIRST..LAST, both included",
            )


def replay_archive(path: Path, config: ReplayConfig, progress: Progress) -> ReplayReport:
    """Replays all jobs of an archive, or of one of its pools, under each policy.

    Raises:
        ArchiveError: there is no archive.
        ConfigError: no such rule, no such pool, or one size for several pools.
        OrderingError: nothing to replay, or no pool to replay it on.
    """
    for name in config.policies:
        _order_of(name)
    _refuse_impossible(config)
    backfill = None if config.backfill is None else find_rule(config.backfill)
    archive = Archive(path)
    pools = _pools(archive, config)
    queues: list[ReplayedQueue] = []
    idle: list[str] = []
    with progress.stage("replay", total=len(config.policies) * len(pools), unit="policies") as stage:
        for number, pool in enumerate(pools):
            try:
                jobs, warm = _jobs(archive, pool, config)
            except NoJobsError:
                if number + 1 == len(pools) and not queues:
                    raise
                idle.extend(pool.described.values())
                continue
            schedules: dict[str, Replayed] = {}
            for name in config.policies:
                done = number * len(config.policies) + len(schedules)
                stage(done, text=" ".join((name, *pool.described.values())))
                schedules[name] = _played(name, jobs, pool, backfill, warm)
            schedules |= {name_of_waits(path): read_waits(path, jobs) for path in config.waits}
            summaries = {name: summarise(jobs, done.start_s, pool) for name, done in schedules.items()}
            doubts = _doubts(archive, jobs, pool, config)
            queues.append(ReplayedQueue(jobs, pool, schedules, summaries, doubts))
        stage(len(config.policies) * len(pools))
    return ReplayReport(tuple(queues), tuple(idle))


def _refuse_impossible(config: ReplayConfig) -> None:
    """Makes sure that options go with orders that predict run times, and with other schedulers' waits; ConfigError."""
    learned = [name for name in config.policies if name in ONLINE or is_by_predictions(name)]
    if learned and (not config.easy or config.backfill or config.days or config.withdraw):
        raise ConfigError(
            f"{', '.join(learned)}: orders that predict run times have their own backfilling and remember users",
            where="easy, backfill, days, withdraw",
            allowed="--easy, and all days of the log",
            advice="add --easy, and leave the other options out",
        )
    if config.waits and config.days:
        raise ConfigError("waits of other schedulers are of the whole log", where="days, waits")
    names = [*dict.fromkeys(config.policies), *map(name_of_waits, config.waits)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"{first(twice)}: a file of waits stands under its own name, and so does something else",
            where="waits",
            advice="rename the file",
        )


def _pools(archive: Archive, config: ReplayConfig) -> list[Pool]:
    """The pools to replay: the named one, else all."""
    if config.pool is not None or config.processors is not None:
        return [pool_of(archive, config.processors, name=config.pool, easy=config.easy)]
    return pools_of(archive, easy=config.easy)


def _jobs(archive: Archive, pool: Pool, config: ReplayConfig) -> tuple[Jobs, WarmStart | None]:
    """The jobs to replay on a pool, and those running at the beginning."""
    jobs = read_jobs(archive, pool=pool.name, withdraw=config.withdraw, counted=config.days)
    jobs = clairvoyant(jobs) if config.clairvoyant else jobs
    return (jobs, None) if config.days is None else _part(jobs, pool, config.days, config.warm)


def _doubts(archive: Archive, jobs: Jobs, pool: Pool, config: ReplayConfig) -> tuple[str, ...]:
    """What makes the figures idle or doubtful, of a log that is replayed whole; part of one does not tell."""
    if config.days is not None or config.withdraw:
        return ()
    return (*room_in_words(jobs, pool), *waits_in_words(archive, jobs, pool))


def _part(jobs: Jobs, pool: Pool, days: tuple[date, date], warm: str) -> tuple[Jobs, WarmStart]:
    """The jobs of some days, second 0 at their first midnight, and those running then."""
    first_day, num_days = (days[0] - EPOCH_DATE).days, (days[1] - days[0]).days + 1
    config = WeeksConfig(num_test_days=num_days, num_drain_days=0, warm=warm)
    week, _ = cut_week(jobs, pool, begin_schedule(jobs, pool, warm), first_day, config)
    if not len(week.jobs.arrival_s):
        raise NoJobsError(
            "no job arrives or waits in these days",
            where=f"{days[0]} to {days[1]}",
            advice="schedtwin check lists the days of the archive",
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


def _order_of(name: str) -> Rule | PredictedOrder | OrderAt:
    """The order of a name: one that learns on the way, a member of the weighted family, or a rule; ConfigError."""
    if name in ONLINE:
        return ONLINE[name]
    return fixed_order(name).rule if is_by_predictions(name) else find_rule(name)


def _played(name: str, jobs: Jobs, pool: Pool, backfill: Rule | None, warm: WarmStart | None) -> Replayed:
    """The replay of an order by its name."""
    order = _order_of(name)
    if isinstance(order, Rule):
        return _from_first(jobs, pool, order, backfill, warm)
    if isinstance(order, PredictedOrder):
        return replay_predicted(jobs, pool, order)
    too_large = int(np.sum(jobs.processors > pool.processors))
    return Replayed(
        online_starts(jobs, pool, order), None, too_large, int(np.sum(jobs.run_s > jobs.requested_s))
    )


def find_rule(name: str, *, suffix: str = "") -> Rule:
    """The rule of a name, which may end with `suffix`; ConfigError if there is none."""
    for rule in RULES:
        if rule.name == name.removesuffix(suffix):
            return rule
    raise ConfigError(
        f"there is no rule {name!r}",
        where="policy",
        allowed=", ".join(rule.name for rule in RULES)
        + (f"; each also with {suffix}, for example {RULES[0].name}{suffix}" if suffix else ""),
        advice="choose one of these",
    )


def queue_of(archive: Archive, config: "OrderConfig") -> tuple[Jobs, Pool]:
    """The jobs and the processors of the queue that a configuration names.

    Raises:
        ConfigError: no such pool, or several of which none is named.
        OrderingError: no job is usable, or the archive has no size of the pool.
    """
    pool = pool_of(archive, config.processors, name=config.pool)
    return read_jobs(archive, pool=pool.name), pool
