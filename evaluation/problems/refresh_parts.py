"""What a refresh does differently from problem to problem: a few functions; the job around them is one and the same."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.comparison.comparison import Comparison
from evaluation.configuration import RunConfig
from logs_schema import Archive
from logs_schema.progress import Progress

NEW, RUNNING = "new", "running"
CONTENDERS = {NEW: "the policy of this refresh", RUNNING: "the policy in use"}
"""The policies that are compared, and what they are."""
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


@dataclass(frozen=True)
class RefreshParts:
    """The refresh of one problem, besides what its kit says of every step.

    Attributes:
        num_days: days that are held out where nobody says how many.
        config: of the job, with what a refresh does otherwise than `run`.
        judge_code: raised when code changes what the comparison makes.
        judge_settings: what the comparison depends on besides days and seeds, JSON or dataclasses.
        hold_out: (history, how many days) -> held-out days; ConfigError where that leaves too little to learn from.
        refuse_other: (bundle, twin); OtherSystemError where the bundle decides for another system than the twin's,
            ProductError where it cannot be judged at all.
        judge: (history, twin, held-out days, new bundle, running bundle, progress) -> comparison, paired, under shift
            0; the policies are called as in `CONTENDERS`.
    """

    num_days: int
    config: RunConfig
    judge_code: int
    judge_settings: Mapping[str, Any]
    hold_out: Callable[[Archive, int], HistorySplit]
    refuse_other: Callable[[Path, Path], None]
    judge: Callable[[Path, Path, tuple[dt.date, ...], Path, Path, Progress], Comparison]
