"""What a refresh does differently from problem to problem: a few functions; the job around them is one and the same."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.training_days import days_of
from evaluation.jobs.unfinished import Unfinished
from evaluation.problems.configuration import RunConfig
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from logs_schema.tables import REQUESTS

NEW, RUNNING = "new", "running"
CONTENDERS = {NEW: "the policy of this refresh", RUNNING: "the policy in use"}
"""The compared policies with their descriptions."""
REPLAY, NEWEST = "replay", "twin of the newest days"
"""Judges of a placement."""


class HistorySplit(NamedTuple):
    """How the history is divided.

    Attributes:
        days: the newest days, on which certificate and comparison look; none of training is among them.
        last_train_day: training ends with it.
    """

    days: tuple[dt.date, ...]
    last_train_day: dt.date


class Notice(NamedTuple):
    """Whether a running policy has to be trained again, with the reasons in words."""

    needed: bool
    reasons: tuple[str, ...]


Notifier = Callable[[Path, Path, tuple[dt.date, ...], float | None], Notice]
"""(history, running bundle, held-out days, threshold of the mean reward) -> notice."""


@dataclass(frozen=True)
class RefreshParts:
    """The parts of a refresh that differ between problems, besides the steps of the kit.

    Attributes:
        num_days: default number of held-out days.
        config: of the job, with the settings that a refresh changes.
        judge_code: raised when changes of the code change the comparison.
        judge_settings: settings of the comparison besides days and seeds, JSON or dataclasses.
        hold_out: (history, number of days) -> held-out days; ConfigError where too few are left for training.
        refuse_other: (bundle, twin); OtherSystemError where the bundle decides for another system than the twin's,
            ProductError where it cannot be evaluated at all.
        judge: (history, twin, held-out days, new bundle, running bundle, progress, units of this comparison, where it
            keeps any) -> comparison, paired, under shift 0; names of the policies as in `CONTENDERS`.
        table: table of the archive that the problem learns from.
        notifier: says whether training is due; None where a problem has no such test.
    """

    num_days: int
    config: RunConfig
    judge_code: int
    judge_settings: Mapping[str, Any]
    hold_out: Callable[[Archive, int], HistorySplit]
    refuse_other: Callable[[Path, Path], None]
    judge: Callable[[Path, Path, tuple[dt.date, ...], Path, Path, Progress, Unfinished], Comparison]
    table: str = REQUESTS.name
    notifier: Notifier | None = None


def newest_days(archive: Archive, num_days: int, table: str = REQUESTS.name) -> HistorySplit:
    """The newest days of a table; training ends with the last day before them that has rows, whatever gap is between.

    Raises:
        ConfigError: That leaves no day to learn from.
    """
    days = days_of(archive, table)
    if len(days) <= num_days:
        fewer = "hold out fewer days (--judge-days), or " if num_days > 1 else ""
        raise ConfigError(
            f"the history has {len(days)} days with {table}, and {num_days} of them are to be held out",
            where=str(archive.path),
            allowed="at least one day more than is held out",
            advice=f"{fewer}append later days, or begin with a longer log",
        )
    return HistorySplit(tuple(days[-num_days:]), days[-num_days - 1])
