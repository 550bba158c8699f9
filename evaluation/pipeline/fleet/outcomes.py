"""What became of a cluster's refreshes, and when the next one is due: two small files in WORK/fleet.

    attempt.json    when the last refresh began
    outcome.json    what the last one that ended came to

A refresh that was killed has begun later than the last one that ended; it is due at once. Whoever refreshes the cluster
holds the folder's lock, so one that is under way can be told from one that died.
"""

import datetime as dt
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from evaluation.pipeline.fleet.config import ClusterConfig
from evaluation.pipeline.refresh.deciding import EXIT_STATUS, Result
from logs_schema.atomic_folders import try_lock
from logs_schema.disk import write_aside
from logs_schema.errors import SchemaError
from logs_schema.records import from_plain, to_plain

FOLDER = "fleet"
ATTEMPT, OUTCOME, LOG = "attempt.json", "outcome.json", "refresh.log"
MOMENT_S = 0.2
"""Longer than whoever only looks at a cluster holds its lock."""
ERROR, UNEXPECTED = "error", "unexpected error"
DONE, FAILURE, USER_ERROR, OVERDUE = 0, 1, 2, 13
"""Exit statuses beside those of `schedtwin refresh`: nothing amiss, an unexpected error, an error with advice, and a
refresh that has not come."""
BY_SEVERITY = (
    DONE,
    EXIT_STATUS[Result.KEPT],
    EXIT_STATUS[Result.CANNOT_TELL],
    EXIT_STATUS[Result.FAILED],
    OVERDUE,
    USER_ERROR,
    FAILURE,
)
"""Exit statuses, the worst one last."""


@dataclass(frozen=True)
class AspectDrift:
    """How far the newest days are from the days that the running policy was trained on, in one aspect of a survey.

    Attributes:
        aspect: Its name.
        unit: "share" or "decades".
        distance: Median over pairs of a training day and a newest day, less the noise.
        limit: Distances above it count as a difference.
    """

    aspect: str
    unit: str
    distance: float
    limit: float

    @property
    def has_drifted(self) -> bool:
        """Whether the distance is above the limit."""
        return self.distance > self.limit


@dataclass(frozen=True)
class LogDrift:
    """The drift of a cluster's log since the running policy was trained.

    Attributes:
        aspects: Those that the log has.
        note: Why nothing was compared; empty otherwise.
        newest_day: ISO date; empty if nothing was compared.
    """

    aspects: tuple[AspectDrift, ...]
    note: str
    newest_day: str


@dataclass(frozen=True)
class RefreshOutcome:
    """A refresh that ended.

    Attributes:
        begun, ended: ISO times, in UTC.
        status: Exit status, as of `schedtwin refresh`; 1 for an unexpected error.
        result: The result of the decision, "error" or "unexpected error".
        reason: The decision's reason, or the error with where it is, what is allowed and what to do.
        drift: None where the refresh did not get that far.
    """

    begun: str
    ended: str
    status: int
    result: str
    reason: str
    drift: LogDrift | None

    @property
    def is_error(self) -> bool:
        """Whether there is no decision."""
        return self.result in (ERROR, UNEXPECTED)


def worst(statuses: list[int]) -> int:
    """The worst of exit statuses; 0 of none."""
    return max(statuses, key=BY_SEVERITY.index, default=DONE)


def now() -> dt.datetime:
    """The present time, in UTC, to the second."""
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def read_outcome(work: Path) -> RefreshOutcome | None:
    """The last outcome; None if there is none, or it was written by another version."""
    try:
        found = from_plain(RefreshOutcome, json.loads((work / FOLDER / OUTCOME).read_text(encoding="utf-8")))
        times = [dt.datetime.fromisoformat(time) for time in (found.begun, found.ended)]
    except (OSError, ValueError, TypeError, SchemaError):
        return None
    is_known = found.status in BY_SEVERITY and all(time.tzinfo is not None for time in times)
    return found if is_known else None


def write_outcome(work: Path, outcome: RefreshOutcome) -> None:
    """Replaces the last outcome."""
    write_aside(work / FOLDER / OUTCOME, json.dumps(to_plain(outcome), indent=1) + "\n")


def read_attempt(work: Path) -> str:
    """When the last refresh began, as an ISO time; empty if none did."""
    try:
        content = json.loads((work / FOLDER / ATTEMPT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(content.get("begun", "")) if isinstance(content, dict) else ""


def write_attempt(work: Path, begun: str) -> None:
    """Writes down that a refresh begins."""
    write_aside(work / FOLDER / ATTEMPT, json.dumps({"begun": begun}) + "\n")


def is_under_way(work: Path) -> bool:
    """Whether a process refreshes the cluster now."""
    folder = work / FOLDER
    if not folder.is_dir():
        return False
    lock = try_lock(folder)
    if lock is not None:
        os.close(lock)
    return lock is None


def lock_of(work: Path) -> int | None:
    """Locks a cluster's records, which is to be closed; None where a process refreshes it now. Whoever only looks, as
    `is_under_way` does, holds the lock for less than `MOMENT_S`."""
    folder, until_s = work / FOLDER, monotonic() + MOMENT_S
    folder.mkdir(parents=True, exist_ok=True)
    while (lock := try_lock(folder)) is None and monotonic() < until_s:
        sleep(0.01)
    return lock


def slot_of(settings: ClusterConfig, time: dt.datetime) -> dt.datetime:
    """When the period that a time is in began; periods are counted from `at_h` o'clock of the first of January 1970."""
    origin = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=settings.at_h)
    period = dt.timedelta(hours=settings.every_h)
    return origin + math.floor((time - origin) / period) * period


def due_at(settings: ClusterConfig, work: Path, time: dt.datetime) -> dt.datetime | None:
    """When the next refresh is due: None at once, because there was none yet, or the last one was interrupted.

    Where the last one is said to have begun later than it is now, the clock was ahead: when it really began is not
    known, so the next one is due at once.
    """
    outcome, attempt = read_outcome(work), read_attempt(work)
    if outcome is None or attempt > outcome.begun or dt.datetime.fromisoformat(outcome.begun) > time:
        return None
    if outcome.is_error:
        ended = dt.datetime.fromisoformat(outcome.ended)
        return None if ended > time else ended + dt.timedelta(hours=settings.retry_h)
    begun = dt.datetime.fromisoformat(outcome.begun)
    return slot_of(settings, begun) + dt.timedelta(hours=settings.every_h)


def is_overdue(settings: ClusterConfig, work: Path, time: dt.datetime) -> bool:
    """Whether no refresh has ended yet, or none within a whole period after the last one was due.

    Nor does one count that began more than a period later than it is now, by a clock that was ahead.
    """
    outcome = read_outcome(work)
    if outcome is None:
        return True
    begun = dt.datetime.fromisoformat(outcome.begun)
    return abs(slot_of(settings, time) - slot_of(settings, begun)) > dt.timedelta(hours=settings.every_h)
