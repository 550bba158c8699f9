"""What a refresh does differently from problem to problem: a few functions; the job around them is one and the same."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.comparison import Comparison
from evaluation.configuration import DaysConfig
from logs_schema import Archive
from logs_schema.progress import Progress

NEW, RUNNING = "new", "running"
CONTENDERS = {NEW: "the policy of this refresh", RUNNING: "the policy in use"}
"""The policies that are compared, and what they are."""


class HeldOut(NamedTuple):
    """How the history is divided.

    Attributes:
        days: the newest days, on which certificate and comparison look; none of training is among them.
        last_train_day: training ends with it.
    """

    days: tuple[dt.date, ...]
    last_train_day: dt.date


@dataclass(frozen=True)
class Parts:
    """The refresh of one problem.

    Attributes:
        problem: its name.
        num_days: days that are held out where nobody says how many.
        settings: what the steps `twin`, `policy` and `judged` depend on besides days and seeds, JSON or dataclasses.
        hold_out: (history, how many days) -> held-out days; ConfigError where that leaves too little to learn from.
        fit: (out, history, training window, progress) -> facts; writes the twin into `out`.
        train: (out, twin, what is known of its certificate, progress) -> facts; writes the new policy.
        export: (out, policy) -> facts; writes its bundle.
        refuse_other: (bundle, twin); OtherSystemError where the bundle decides for another system than the twin's,
            ProductError where it cannot be judged at all.
        judge: (history, twin, held-out days, new bundle, running bundle, progress) -> comparison, paired, under shift
            0; the policies are called as in `CONTENDERS`.
    """

    problem: str
    num_days: int
    settings: Mapping[str, Any]
    hold_out: Callable[[Archive, int], HeldOut]
    fit: Callable[[Path, Path, DaysConfig, Progress], Mapping[str, Any]]
    train: Callable[[Path, Path, Mapping[str, Any], Progress], Mapping[str, Any]]
    export: Callable[[Path, Path], Mapping[str, Any]]
    refuse_other: Callable[[Path, Path], None]
    judge: Callable[[Path, Path, tuple[dt.date, ...], Path, Path, Progress], Comparison]
