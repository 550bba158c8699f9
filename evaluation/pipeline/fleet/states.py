"""The state of every cluster of a fleet, read from its work folder; nothing there is changed."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from evaluation.certify.lines import Verdict
from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.certify.persistence import load_certificate
from evaluation.pipeline.fleet.config import FleetCluster, trouble_of
from evaluation.pipeline.fleet.outcomes import (
    OVERDUE,
    USER_ERROR,
    LogDrift,
    RefreshOutcome,
    due_at,
    is_overdue,
    is_under_way,
    now,
    read_attempt,
    read_outcome,
    worst,
)
from evaluation.pipeline.refresh.job import FOLDER
from logs_schema.calendar import DAY_S
from logs_schema.product import MANIFEST, read_manifest
from logs_schema.records import to_plain
from offline_rl.bundle import origin_of, read_bundle

State = TypeVar("State")


class Phase(Enum):
    """What becomes of a cluster's refreshes now."""

    WAITING = "waiting"
    DUE = "due"
    UNDER_WAY = "under way"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class TwinState:
    """The newest certificate and the twin that it is about.

    Attributes:
        verdict: "pass", "fail" or "cannot tell".
        content_hash: Of the certificate.
        created: ISO time of the certificate.
        first_day, last_day: ISO dates of the twin's training days; empty where nothing was measured.
        failed: Names of the lines that failed.
        refusal: Why nothing could be measured; empty otherwise.
    """

    verdict: str
    content_hash: str
    created: str
    first_day: str
    last_day: str
    failed: tuple[str, ...]
    refusal: str


@dataclass(frozen=True)
class RunningState:
    """The running bundle.

    Attributes:
        path: Its folder.
        problem: What it decides.
        content_hash: Of the bundle.
        created: ISO time of the export.
        first_day, last_day: ISO dates of its training days; empty where it names none.
        certificate: Content hash of the certificate that its twin passed; None without.
    """

    path: str
    problem: str
    content_hash: str
    created: str
    first_day: str
    last_day: str
    certificate: str | None


@dataclass(frozen=True)
class ClusterState:
    """The state of a cluster.

    Attributes:
        name: Its name.
        phase: Of its refreshes.
        due: ISO time of the next refresh; empty: at once.
        is_overdue: Whether a refresh has not come for more than a whole period.
        outcome: Of the last refresh that ended; None before.
        attempt: ISO time at which the last refresh began; empty before.
        twin: None before a twin was certified.
        running: None without a running policy.
        trouble: What is wrong with its data; empty if nothing is.
    """

    name: str
    phase: Phase
    due: str
    is_overdue: bool
    outcome: RefreshOutcome | None
    attempt: str
    twin: TwinState | None
    running: RunningState | None
    trouble: str

    @property
    def drift(self) -> LogDrift | None:
        """Of the last refresh."""
        return None if self.outcome is None else self.outcome.drift

    @property
    def exit_status(self) -> int:
        """The worst of: its last outcome, its data, and that its refresh has not come."""
        found = [] if self.outcome is None else [self.outcome.status]
        found += [USER_ERROR] if self.trouble else []
        found += [OVERDUE] if self.is_overdue and self.phase is not Phase.UNDER_WAY else []
        return worst(found)


@dataclass(frozen=True)
class FleetState:
    """The state of a fleet at a time (ISO, in UTC)."""

    time: str
    clusters: tuple[ClusterState, ...]

    @property
    def exit_status(self) -> int:
        """The worst of its clusters'."""
        return worst([one.exit_status for one in self.clusters])

    def age_s(self, time: str) -> float:
        """Seconds since a time or the end of a day (ISO)."""
        return age_s(time, dt.datetime.fromisoformat(self.time))


def age_s(time: str, at: dt.datetime) -> float:
    """Seconds from an ISO time, or from the end of an ISO date, to a time."""
    if len(time) == len("2024-01-05"):
        midnight = dt.datetime.combine(dt.date.fromisoformat(time), dt.time(), dt.UTC)
        return (at - midnight).total_seconds() - DAY_S
    return (at - dt.datetime.fromisoformat(time)).total_seconds()


def state_of(clusters: Sequence[FleetCluster]) -> FleetState:
    """The state of clusters now."""
    time = now()
    return FleetState(time.isoformat(), tuple(_cluster_state(one, time) for one in clusters))


def to_json(state: FleetState) -> dict[str, Any]:
    """The state as plain JSON, with ages and exit statuses."""
    clusters = [
        to_plain(one)
        | {
            "exit_status": one.exit_status,
            "certificate_age_s": None if one.twin is None else state.age_s(one.twin.created),
            "bundle_age_s": None if one.running is None else state.age_s(one.running.created),
        }
        for one in state.clusters
    ]
    return {"time": state.time, "exit_status": state.exit_status, "clusters": clusters}


def _cluster_state(cluster: FleetCluster, time: dt.datetime) -> ClusterState:
    work, outcome, attempt = cluster.work, read_outcome(cluster.work), read_attempt(cluster.work)
    due = due_at(cluster.settings, work, time)
    if is_under_way(work):
        phase = Phase.UNDER_WAY
    elif attempt > (outcome.begun if outcome is not None else ""):
        phase = Phase.INTERRUPTED
    else:
        phase = Phase.DUE if due is None or due <= time else Phase.WAITING
    troubles: list[str] = []
    if (error := trouble_of(cluster)) is not None:
        troubles.append(str(error) or type(error).__name__)
    return ClusterState(
        cluster.name,
        phase,
        "" if due is None else due.isoformat(),
        is_overdue(cluster.settings, work, time),
        outcome,
        attempt,
        _readable(lambda: _twin_state(work), troubles),
        _readable(lambda: _running_state(cluster.running), troubles),
        "\n".join(dict.fromkeys(troubles)),
    )


def _readable(read: Callable[[], State | None], troubles: list[str]) -> State | None:
    try:
        return read()
    except Exception as error:  # of one cluster: the others are shown
        troubles.append(str(error) or type(error).__name__)
        return None


def _twin_state(work: Path) -> TwinState | None:
    """Of the refresh, else of `schedtwin run` in the same folder."""
    folder = next(
        (one for one in (work / FOLDER / CERTIFICATE, work / CERTIFICATE) if (one / MANIFEST).is_file()), None
    )
    if folder is None:
        return None
    manifest, certificate = read_manifest(folder, CERTIFICATE), load_certificate(folder)
    days = certificate.train_days
    failed = tuple(line.name for line in certificate.lines if line.verdict is Verdict.FAIL)
    return TwinState(
        certificate.verdict.value,
        manifest.content_hash,
        manifest.created,
        min(days, default=""),
        max(days, default=""),
        failed,
        certificate.refusal,
    )


def _running_state(bundle: Path | None) -> RunningState | None:
    if bundle is None:
        return None
    manifest, origin = read_bundle(bundle), origin_of(bundle)
    return RunningState(
        str(bundle),
        origin.problem,
        manifest.content_hash,
        manifest.created,
        origin.first_day,
        origin.last_day,
        origin.certificate,
    )
