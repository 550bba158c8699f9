"""The state of a fleet in Prometheus' text format, for the textfile collector of its node exporter.

Only facts that do not age by themselves are written: of times the time, not how long ago it was. So a file that is no
longer renewed shows what it showed, and `schedtwin_fleet_timestamp_seconds` shows since when.
"""

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.certify.lines import Verdict
from evaluation.pipeline.fleet.states import ClusterState, FleetState, Phase
from logs_schema.disk import write_aside

VERDICTS = tuple(one.value for one in (Verdict.PASS, Verdict.FAIL, Verdict.CANNOT_TELL))
PREFIX = "schedtwin_"


@dataclass
class Family:
    """A metric: its name without the prefix, its help, and its samples as (labels, value)."""

    name: str
    help: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str) -> None:
        """Adds a sample, unless the value is not known."""
        if value is not None:
            self.samples.append((labels, value))


def write_metrics(state: FleetState, path: Path) -> None:
    """Writes the metrics aside and renames them into place, as the collector needs it."""
    write_aside(path, as_metrics(state))


def as_metrics(state: FleetState) -> str:
    """The metrics of a fleet as text; all are gauges."""
    fleet = [
        Family("fleet_timestamp_seconds", "When this state was read.", [({}, _seconds(state.time) or 0.0)]),
        Family("fleet_clusters", "Clusters of the fleet.", [({}, float(len(state.clusters)))]),
        Family("fleet_exit_status", "Worst exit status of the clusters.", [({}, float(state.exit_status))]),
    ]
    return "".join(map(_family_text, [*fleet, *_cluster_families(state.clusters)]))


def _cluster_families(clusters: Iterable[ClusterState]) -> list[Family]:
    status = Family(
        "cluster_exit_status", "Worst of last refresh, data and overdue refresh; 0 and 10 are in order."
    )
    phase = Family("refresh_phase", "1 for the phase that the cluster's refreshes are in.")
    overdue = Family("refresh_overdue", "1 if no refresh has come for more than a whole period.")
    due = Family("refresh_due_timestamp_seconds", "When the next refresh is due.")
    refreshed = Family(
        "refresh_exit_status",
        "Exit status of the last refresh: 0 exported, 10 kept, 11 certificate "
        "failed, 12 cannot tell, 2 error, 1 unexpected error.",
    )
    begun = Family("refresh_begun_timestamp_seconds", "When the last refresh that ended began.")
    ended = Family("refresh_ended_timestamp_seconds", "When the last refresh ended.")
    verdict = Family("certificate_verdict", "1 for the verdict of the newest twin's certificate.")
    certified = Family("certificate_timestamp_seconds", "When the newest twin was certified.")
    failed = Family("certificate_failed_lines", "Lines of the certificate that failed.")
    trained = Family(
        "twin_last_day_timestamp_seconds", "End of the last day that the newest twin was trained on."
    )
    bundle = Family("bundle_info", "1; the labels name the running bundle.")
    exported = Family("bundle_timestamp_seconds", "When the running bundle was exported.")
    learned = Family(
        "bundle_last_day_timestamp_seconds", "End of the last day that the running bundle was trained on."
    )
    passed = Family(
        "bundle_certified", "1 if the running bundle was trained in a twin that passed its certificate."
    )
    drift = Family(
        "drift_ratio", "Distance of the newest days from the running bundle's training days, in limits."
    )
    for one in clusters:
        name = {"cluster": one.name}
        status.add(one.exit_status, **name)
        for each in Phase:
            phase.add(float(one.phase is each), **name, phase=each.value)
        overdue.add(float(one.is_overdue), **name)
        due.add(_seconds(one.due), **name)
        if one.outcome is not None:
            refreshed.add(one.outcome.status, **name)
            begun.add(_seconds(one.outcome.begun), **name)
            ended.add(_seconds(one.outcome.ended), **name)
        if one.twin is not None:
            for word in VERDICTS:
                verdict.add(float(one.twin.verdict == word), **name, verdict=word)
            certified.add(_seconds(one.twin.created), **name)
            failed.add(len(one.twin.failed), **name)
            trained.add(_seconds(one.twin.last_day), **name)
        if one.running is not None:
            bundle.add(1.0, **name, content_hash=one.running.content_hash, problem=one.running.problem)
            exported.add(_seconds(one.running.created), **name)
            learned.add(_seconds(one.running.last_day), **name)
            passed.add(float(one.running.certificate is not None), **name)
        for aspect in one.drift.aspects if one.drift is not None else ():
            drift.add(aspect.distance / aspect.limit, **name, aspect=aspect.aspect)
    return [
        status, phase, overdue, due, refreshed, begun, ended, verdict, certified, failed, trained, bundle, exported,
        learned, passed, drift,
    ]  # fmt: skip


def _seconds(time: str) -> float | None:
    """Seconds since 1970 of an ISO time, or of the end of an ISO date; None of an empty text."""
    if not time:
        return None
    found = dt.datetime.fromisoformat(time)
    if found.tzinfo is None:
        found = found.replace(tzinfo=dt.UTC) + dt.timedelta(days=1)
    return found.timestamp()


def _family_text(family: Family) -> str:
    """A family in the text format; nothing where it has no samples."""
    if not family.samples:
        return ""
    name = f"{PREFIX}{family.name}"
    lines = [f"# HELP {name} {_escaped(family.help, quotes=False)}", f"# TYPE {name} gauge"]
    for labels, value in family.samples:
        listed = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{listed}}} {_number(value)}" if listed else f"{name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(float(value)) if value != int(value) else str(int(value))
