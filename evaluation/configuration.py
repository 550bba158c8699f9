"""The configuration of a whole job, read from TOML into small frozen dataclasses that stand beside what they configure.

Every table and key is optional but the log. What is not known is refused by name, with what is allowed.
"""

import dataclasses
import datetime as dt
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from evaluation.certify.config import CertifyConfig
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.shifts import ShiftConfig
from evaluation.problems.autoscaling.config import ScaleConfig
from evaluation.problems.ordering.config import OrderConfig
from logs_schema.errors import ConfigError
from offline_rl.recipes.config import TrainingConfig
from twin.imitation.config import GameConfig
from twin.placement.bookkeeping import VIEWS
from twin.placement.encoding import GRANULARITIES
from twin.placement.learned import AnswerConfig
from twin.population import PopulationConfig

Config = TypeVar("Config")


@dataclass(frozen=True)
class LogConfig:
    """Where the log comes from: a raw log, or one that the ground truth writes.

    Attributes:
        format: Name of a log format, for example "wagap"; empty for a simulated log.
        paths: Files or folders of the raw log, relative to the configuration file; single steps do without.
        origin: Date of the log's time zero, for logs that hide it.
        capacity: Cores of the machine ("786432") or of its pools ("batch=4096"), for logs that do not tell them.
        preset: Preset of the ground truth; empty for a real log.
        world: File that declares the ground truth instead of a preset, relative to the configuration file.
        days: Days to simulate.
        behaviour: Who decides in the simulated log.
        seed: Seed of the simulated log.
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

    def __post_init__(self) -> None:
        if sum(map(bool, (self.format, self.preset, self.world))) != 1:
            raise ConfigError(
                "the table [log] must name a format, a preset or a world, and only one of them",
                where=f"format = {self.format!r}, preset = {self.preset!r}, world = {self.world!r}",
                advice='for a real log: format = "wagap", paths = ["folder"]',
            )


@dataclass(frozen=True)
class DaysConfig:
    """What to learn from.

    Attributes:
        first_day, last_day: Bounds of the training window, inclusive; chosen to leave room for the shifts if absent.
        num_days: Length of the training window in days before and including the last.
        granularity: Whether decisions name machines ("node") or node classes ("class"); "auto" looks at the log.
        view: What a site sees of the nodes of other sites: "summary", their mean, or "full", as one scheduler for all
            sites does.
        num_steps: Requests per window of replayed arrivals, and steps of a training rollout.
    """

    first_day: dt.date | None = None
    last_day: dt.date | None = None
    num_days: int | None = None
    granularity: str = "auto"
    view: str = "summary"
    num_steps: int = 128

    def __post_init__(self) -> None:
        _refuse_below_one("[days]", num_steps=self.num_steps)
        if self.num_days is not None:
            _refuse_below_one("[days]", num_days=self.num_days)
        for name, allowed in (("granularity", GRANULARITIES), ("view", VIEWS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} = {getattr(self, name)!r}", where="[days]", allowed=", ".join(allowed)
                )
        if self.first_day and self.last_day and self.first_day > self.last_day:
            raise ConfigError(
                "the last day lies before the first",
                where=f"[days] first_day {self.first_day}, last_day {self.last_day}",
                allowed="first_day up to last_day, both included",
            )


@dataclass(frozen=True)
class JudgeConfig:
    """How policies are judged.

    Attributes:
        copies: Replications of every test window in a twin; a multiple of the ensemble's members.
        num_steps: Longest stretch of requests judged in one piece; longer days are cut, each piece starting from
            the logged state.
        num_fit_steps: Gradient steps of the twins of shifted days.
        off_policy_updates: Gradient steps of the fitted off-policy estimates; 0 leaves those estimates out.
        num_true_days: Times that a day is played in the simulated truth, where the log is of one.
        seed: Of the judges' randomness.
    """

    copies: int = 10
    num_steps: int = 512
    num_fit_steps: int = 600
    off_policy_updates: int = 1000
    num_true_days: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if self.off_policy_updates < 0:
            raise ConfigError(
                f"off_policy_updates = {self.off_policy_updates}", where="[judge]", allowed="0 or more"
            )
        _refuse_below_one(
            "[judge]", copies=self.copies, num_steps=self.num_steps, num_fit_steps=self.num_fit_steps,
            num_true_days=self.num_true_days,
        )  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """A whole job: import, fit, certify, train, compare, export. Single steps leave out what they do not need.

    With a table [order] it is about the order of a batch queue instead, by the same steps; with a table [scale] about
    the deployments of an application.
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


def load_config(path: Path) -> RunConfig:
    """Reads a job's configuration.

    Raises:
        ConfigError: The file is missing or not TOML, a key is unknown, or a value is of the wrong type or range.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", where=str(path)) from error
    return build(RunConfig, content, str(path))


def build(kind: type[Config], content: Mapping[str, Any], where: str) -> Config:
    """A config of type `kind` from plain values.

    Raises:
        ConfigError: A key is unknown or missing, or a value is of the wrong type.
    """
    if not isinstance(content, Mapping):
        raise ConfigError(f"{content!r} is not a table", where=where, allowed=_names(kind))
    hints = get_type_hints(kind)
    unknown = sorted(set(content) - set(hints))
    if unknown:
        raise ConfigError(f"unknown key {', '.join(unknown)}", where=where, allowed=_names(kind))
    required = [item.name for item in dataclasses.fields(kind) if _is_required(item)]  # type: ignore[arg-type]
    missing = [name for name in required if name not in content]
    if missing:
        raise ConfigError(f"missing key {', '.join(missing)}", where=where, allowed=_names(kind))
    return kind(**{name: _value(hints[name], value, f"{where}: {name}") for name, value in content.items()})


def _value(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return build(kind, value, where)  # type: ignore[arg-type]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        lists = [argument for argument in inner if isinstance(value, list) and get_origin(argument) is tuple]
        return _value((lists or inner)[0], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(
                f"{value!r} is not a list", where=where, allowed=f"a list of {arguments[0].__name__}"
            )
        return tuple(_value(arguments[0], item, where) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is dt.date:
        return _date(value, where)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{value!r} is of the wrong type", where=where, allowed=kind.__name__)
    return value


def _date(value: Any, where: str) -> dt.date:
    """A date, also a quoted one."""
    try:
        found = dt.date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, dt.date) or isinstance(found, dt.datetime):
        raise ConfigError(
            f"{value!r} is not a date", where=where, allowed="a date without a time, such as 2024-01-05"
        )
    return found


def _refuse_below_one(table: str, **values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ConfigError(f"{name} = {value}", where=table, allowed="1 or more")


def _is_required(item: "dataclasses.Field[Any]") -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _names(kind: type) -> str:
    return ", ".join(item.name for item in dataclasses.fields(kind))
