"""The configuration of a whole job; every table and key but the log is optional."""

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.certify.config import CertifyConfig
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.shifts import ShiftConfig, parse_shifts
from evaluation.comparison.training_days import DaysConfig
from evaluation.jobs.engine.config import EngineConfig
from evaluation.judges.config import JudgeConfig
from logs_schema.calendar import EPOCH_DATE
from logs_schema.errors import ConfigError
from logs_schema.settings import load_settings, refuse_below_one
from offline_rl.assignment.config import AssignConfig
from offline_rl.autoscaling.config import ScaleConfig
from offline_rl.orchestration.config import TrainingBudget
from offline_rl.ordering.programs import OrderTrainingConfig
from offline_rl.recipes.config import TrainingConfig
from twin.imitation.config import GameConfig
from twin.placement.learned import AnswerConfig
from twin.population import PopulationConfig

WARM_STARTS = ("logged", "easy", "empty")


@dataclass(frozen=True)
class LogConfig:
    """Source of the log: a raw log to import, or a log to simulate from the ground truth.

    Attributes:
        format: Name of a log format, for example "wagap"; empty for a simulated log.
        paths: Files or folders of the raw log, relative to the configuration file; not needed by single steps.
        origin: Date of the log's time zero, for logs without dates.
        capacity: Cores of the machine ("786432") or of its pools ("batch=4096"), for logs without them.
        preset: Preset of the ground truth, a cluster or an application; empty for a real log.
        world: File that declares the ground truth instead of a preset, relative to the configuration file.
        days: Days to simulate.
        behaviour: Name of the policy that decides in the simulated log; an application's is "operator" unless another
            is named.
        seed: Seed of the simulated log.
        world_seed: Seed of what is fixed in the simulated cluster (agents, affinities, preferences); 0 is the preset's
            own.
    """

    format: str = ""
    paths: tuple[str, ...] = ()
    origin: dt.date | None = None
    capacity: tuple[str, ...] = ()
    preset: str = ""
    days: int = 40
    behaviour: str = "mix"
    seed: int = 0
    world: str = ""
    world_seed: int = 0

    def __post_init__(self) -> None:
        if self.world_seed < 0:
            raise ConfigError(f"world_seed = {self.world_seed}", where="[log]", allowed="0 or more")
        if sum(map(bool, (self.format, self.preset, self.world))) != 1:
            raise ConfigError(
                "the table [log] must name a format, a preset or a world, and only one of them",
                where=f"format = {self.format!r}, preset = {self.preset!r}, world = {self.world!r}",
                advice='for a real log: format = "wagap", paths = ["folder"]',
            )


@dataclass(frozen=True)
class WeeksConfig:
    """The weeks of a queue's log that orders are evaluated on.

    Attributes:
        num_train_days: training days before each anchor.
        num_test_days: days that are evaluated.
        shifts: days between training and test.
        num_anchors: anchors, spread evenly over the log; a single one is the latest.
        num_drain_days: days after a test during which jobs keep arriving.
        warm: what runs and waits when a week begins: as logged, as under fcfs with EASY, or nothing (empty).
        between: dates in which anchors and the days that are evaluated lie; all of the log if empty.
            Training days and past weeks may lie before.
    """

    num_train_days: int = 28
    num_test_days: int = 7
    shifts: str = field(default="0d,1d,7d,30d", metadata={"metavar": "LIST"})
    num_anchors: int = 5
    num_drain_days: int = 3
    warm: str = field(default="logged", metadata={"choices": WARM_STARTS})
    between: str = field(default="", metadata={"metavar": "FIRST..LAST"})

    def __post_init__(self) -> None:
        parse_shifts(self.shifts)
        self.span()
        refuse_below_one(
            "[order.weeks]",
            num_train_days=self.num_train_days,
            num_test_days=self.num_test_days,
            num_anchors=self.num_anchors,
        )
        if self.num_drain_days < 0:
            raise ConfigError(
                f"num_drain_days = {self.num_drain_days}", where="[order.weeks]", allowed="0 or more"
            )
        if self.warm not in WARM_STARTS:
            raise ConfigError(
                f"there is no warm start {self.warm!r}", where="warm", allowed=", ".join(WARM_STARTS)
            )

    def span(self) -> tuple[int, int] | None:
        """The first and the last day of `between`, in days since 1970 (UTC); ConfigError where it is no range."""
        if not self.between:
            return None
        try:
            first, last = (dt.date.fromisoformat(one) for one in self.between.split(".."))
        except ValueError:
            first, last = dt.date.max, dt.date.min
        if first > last:
            raise ConfigError(
                f"{self.between!r} is no range of days",
                where="between",
                allowed="FIRST..LAST: 1997-03-10..1997-08-30",
            )
        return (first - EPOCH_DATE).days, (last - EPOCH_DATE).days


@dataclass(frozen=True)
class OrderConfig:
    """Configuration of the ordering problem.

    Attributes:
        processors: number of processors of the pool; those of the archive's nodes by default.
        weeks: weeks to evaluate.
        training: how to train; None evaluates the published rules alone.
        num_twin_weeks: generated weeks for each anchor in which all policies are played too.
        intervals: of the bootstrap.
        pool: name of the pool, the class of its nodes; required where the archive has several.
    """

    processors: float | None = None
    weeks: WeeksConfig = field(default_factory=WeeksConfig)
    training: OrderTrainingConfig | None = field(default_factory=OrderTrainingConfig)
    num_twin_weeks: int = 6
    intervals: IntervalConfig = field(default_factory=IntervalConfig)
    pool: str | None = None


@dataclass(frozen=True)
class RunConfig:
    """A whole job: import, fit, certify, train, compare, export. Single steps ignore the tables they do not need.

    A table [order] selects the ordering of a batch queue, a table [scale] the autoscaling of an application's
    deployments, a table [assign] the assignment of many requests at once, and [orchestration] dispatch by slots
    and the scaling of replicas; the steps are the same. [engine] chooses where tasks run and does not change results.
    """

    log: LogConfig | None = None
    seed: int = 0
    days: DaysConfig = field(default_factory=DaysConfig)
    twin: AnswerConfig = field(default_factory=AnswerConfig)
    imitation: GameConfig = field(default_factory=GameConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    train: TrainingConfig = field(default_factory=TrainingConfig)
    shifts: ShiftConfig = field(default_factory=ShiftConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    intervals: IntervalConfig = field(default_factory=IntervalConfig)
    certify: CertifyConfig = field(default_factory=CertifyConfig)
    order: OrderConfig | None = None
    scale: ScaleConfig | None = None
    assign: AssignConfig | None = None
    orchestration: TrainingBudget | None = None
    engine: EngineConfig = field(default_factory=EngineConfig)


def load_config(path: Path) -> RunConfig:
    """Reads a job's configuration, see `load_settings`."""
    return load_settings(RunConfig, path)
