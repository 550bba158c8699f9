"""An autoscaler beside an application: reads metrics, decides, writes what it may, and logs all of it.

By default nothing is written: what runs beside it, a pod autoscaler say, goes on, and the log names both.
Replicas are written only for deployments that are named (or all), and never where a pod autoscaler rules.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np

from logs_schema.errors import ConfigError, SchedtwinError, first
from logs_schema.formats.metric_series import Samples
from logs_schema.tables import GATEWAY
from offline_rl.runner.scaling import TREND_INTERVALS, Granted, Reading
from offline_rl.serving.container_grants import RESOURCES, first_amounts, granted_in
from offline_rl.serving.kube_api import STRATEGIC_PATCH, KubeApi, KubeError
from offline_rl.serving.prometheus import Prometheus, granted_by, needed_of, reading_of
from offline_rl.serving.scaling_guard import Guard, GuardedGrants
from offline_rl.serving.scaling_journal import ScalingJournal, instant, sample_rows

STALE_INTERVALS = 4
"""Metrics of an interval that ended longer ago are stale."""
WAITING_INTERVALS, WAITING_S = 5, 300.0
"""Replicas that have not become ready for so many intervals, and seconds, are told."""


class Lead(Protocol):
    """Keeps controllers of one application apart (`offline_rl.kube_controller.leading`)."""

    @property
    def leader(self) -> str:
        """Who leads, when last looked."""

    def leads(self) -> bool:
        """Whether this controller leads now; what the cluster cannot do is a SchedtwinError."""


@dataclass
class Controller:
    """Decides once an interval.

    Attributes:
        guard: The policy within its limits.
        metrics: Monitoring.
        kube: The cluster; None where metrics tell what is granted, and nothing is written.
        namespace: Of the deployments.
        writes: Deployments whose replicas are written.
        log: Folder; None for no log.
        clock: Seconds since 1970.
        lead: What it needs before it writes; None where nobody else can.
    """

    guard: Guard
    metrics: Prometheus
    kube: KubeApi | None
    namespace: str
    writes: Collection[str]
    log: Path | None
    clock: Callable[[], float]
    lead: Lead | None = None
    journal: ScalingJournal | None = field(init=False, default=None)
    _seen: deque[tuple[float, Granted]] = field(default_factory=lambda: deque(maxlen=STALE_INTERVALS + 3))
    _written: dict[str, float] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)
    _unready: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.log is not None:
            self.journal = ScalingJournal(self.log, self.guard.policy.setting.interval_s)

    def refuse_rivals(self) -> None:
        """ConfigError where none of the deployments is there, or one to be written is ruled by a pod autoscaler."""
        names = self.guard.policy.setting.names
        if unknown := sorted(set(self.writes) - set(names)):
            raise ConfigError(
                f"the bundle does not know {', '.join(unknown)}", where="--canary", allowed=", ".join(names)
            )
        if self.kube is None:
            if self.writes:
                raise ConfigError(
                    "nothing can be written without a cluster",
                    where="--canary, --apply",
                    allowed="together with --kube",
                )
            return
        asked = self.writes or names
        # Of some, every decision says who has gone
        if not set(asked) & set(self.kube.deployments(self.namespace)):
            raise ConfigError(
                f"the namespace has no deployment {' or '.join(sorted(asked))}",
                where=f"namespace {self.namespace}",
                allowed="the namespace of the bundle's deployments",
                advice="name it with --namespace",
            )
        if not self.writes:  # a recommendation is nobody's rival
            return
        if rivals := sorted(self._ruled(self.kube) & set(self.writes)):
            raise ConfigError(
                f"a HorizontalPodAutoscaler rules {', '.join(rivals)}",
                where=f"namespace {self.namespace}",
                allowed="deployments without another autoscaler",
                advice="remove it, or recommend only",
            )

    def _ruled(self, kube: KubeApi) -> set[str]:
        """What pod autoscalers rule; KubeError where that cannot be known."""
        path = f"/apis/autoscaling/v1/namespaces/{quote(self.namespace)}/horizontalpodautoscalers"
        try:
            found = kube.get(path).get("items") or []
        except KubeError as error:
            raise KubeError(
                f"HorizontalPodAutoscalers cannot be listed: {error.what}",
                where=error.where,
                allowed="an account that may list horizontalpodautoscalers (autoscaling/v1) before it writes",
                advice="grant it, or recommend only, without --canary and --apply",
            ) from error
        with kube.read_as("a HorizontalPodAutoscaler"):
            return {one["spec"]["scaleTargetRef"]["name"] for one in found}

    def step(self) -> dict[str, Any]:
        """One decision: reads, decides, writes, logs; what came of it as JSON has it.

        Raises:
            MetricsError, KubeError: Monitoring or cluster does not answer, or no Lease can be had; nothing has been
                written, and the log says so.
        """
        now_s = self.clock()
        try:
            return self._decided(now_s)
        except SchedtwinError as error:
            if self.journal is not None:
                with suppress(OSError):  # the error itself is what has to be told
                    self.journal.decided(self._head(now_s) | {"deployments": [], "error": str(error)})
            raise

    def _decided(self, now_s: float) -> dict[str, Any]:
        setting = self.guard.policy.setting
        begin_s = now_s - (TREND_INTERVALS + STALE_INTERVALS + 4) * setting.interval_s
        begin_s = math.floor(begin_s / setting.interval_s) * setting.interval_s
        samples = self.metrics.samples(begin_s, now_s, setting.interval_s)
        finished = math.floor(now_s / setting.interval_s) - 1
        place = self._latest(samples, finished)
        granted = self._granted(samples, place)
        now, before = (
            reading_of(samples, at, setting.names, granted.replicas)
            for at in (place, place - TREND_INTERVALS)
        )
        age = finished - place
        stale = f"the latest metrics are {age} intervals old" if age > STALE_INTERVALS else ""
        partial = ""
        if self.metrics.warnings:
            warned = first(self.metrics.warnings)
            partial = f"nothing is taken away while Prometheus warns that answers are in parts ({warned})"
        elif self.metrics.refused:
            unknown = first(sorted(self.metrics.refused))
            partial = f"nothing is taken away while metrics are refused ({unknown})"
        elif age > setting.delay_intervals:
            partial = f"nothing is taken away by metrics that are {age} intervals old"
        verdict = self.guard.decide(now_s, granted, now, before, stale, partial)
        self._seen.append((now_s, granted))
        follows = self._follows()
        written, failed = ({}, {}) if follows else self._write(granted, verdict)
        record = self._record(now_s, granted, verdict, written, failed)
        for row, waits in zip(record["deployments"], self._waiting(now_s, granted, now), strict=True):
            refused = self.metrics.refused.get(row["deployment"], "")
            row["reason"] = "; ".join(filter(None, (row["reason"], refused, waits)))
        record |= {"follows": follows} if follows else {}
        if new := sorted(samples.rows.keys() - {*setting.names, GATEWAY} - self._unknown):
            self._unknown |= set(new)
            record["not_in_the_bundle"] = new
        if self.journal is not None:
            self.journal.logged_until = min(self.journal.logged_until, finished)  # a clock may be set back
            end_s = (place + 1) * setting.interval_s
            then = next((grants for seen_s, grants in self._seen if seen_s >= end_s), granted)
            changes = self._changes(granted, verdict, written)
            rows = sample_rows(setting, self.metrics.mapping, place, then, now, changes)
            try:
                self.journal.decided(record)
                self.journal.measured(record, place, rows)
            except OSError as error:  # a full disk stops the log, never a decision
                record["log_error"] = str(error)
        return record

    def _latest(self, samples: Samples, finished: int) -> int:
        """The latest interval that is over in which a deployment has all metrics that decisions need, else the use of
        processors, else any: of late metrics the others wait for the last to come."""
        names = self.guard.policy.setting.names
        needed = needed_of(self.guard.policy.setting.form)
        for columns in (needed, needed[:1], ()):
            found = (
                place
                for name in names
                for place in samples.rows.get(name, {})
                if place <= finished and set(columns) <= samples.row(place, name).keys()
            )
            if (place := max(found, default=None)) is not None:
                return place
        return finished

    def _changes(
        self, granted: Granted, verdict: GuardedGrants, written: Mapping[str, Collection[str]]
    ) -> list[list[float]]:
        """Of every deployment: what the decision added to cores, memory and replicas."""
        return [
            [
                float(new[place] - old[place]) if one in written.get(name, ()) else 0.0
                for one, new, old in zip(Granted._fields, verdict.wanted, granted, strict=True)
            ]
            for place, name in enumerate(self.guard.policy.setting.names)
        ]

    def _waiting(self, now_s: float, granted: Granted, now: Reading) -> list[str]:
        """Of every deployment: that replicas have not become ready for long, in words."""
        found = []
        least_s = max(WAITING_INTERVALS * self.guard.policy.setting.interval_s, WAITING_S)
        for place, name in enumerate(self.guard.policy.setting.names):
            ready, replicas = float(now.ready[place]), float(granted.replicas[place])
            if not ready < replicas - 0.5:  # unknown ones, too
                self._unready.pop(name, None)
            elif name not in self._unready or ready > self._unready[name][1]:
                self._unready[name] = now_s, ready
            waited_s = now_s - self._unready[name][0] if name in self._unready else 0.0
            found.append(
                f"{ready:g} of {replicas:g} replicas are ready, and no more for {waited_s / 60.0:.0f} min: has the "
                "cluster room for the others, and do they start?"
                if waited_s >= least_s
                else ""
            )
        return found

    def _follows(self) -> str:
        """Which other controller leads, so that nothing is written; empty where none does."""
        if self.lead is None or not self.writes or self.lead.leads():
            return ""
        return self.lead.leader or "another one"

    def _granted(self, samples: Samples, place: int) -> Granted:
        names = self.guard.policy.setting.names
        otherwise = granted_by(samples, place, names)
        if self.kube is None:
            return otherwise
        # Of what is written, objects alone tell
        unwritten = np.array([name not in self.writes for name in names])
        otherwise = otherwise._replace(replicas=np.where(unwritten, otherwise.replicas, math.nan))
        with self.kube.read_as("a deployment"):
            return granted_in(self.kube.deployments(self.namespace), names, otherwise)

    def _write(self, granted: Granted, verdict: GuardedGrants) -> tuple[dict[str, set[str]], dict[str, str]]:
        """Writes what changes; the grants that were written by deployment, and why others could not be."""
        written: dict[str, set[str]] = {}
        failed: dict[str, str] = {}
        if self.kube is None or not self.writes:
            return written, failed
        try:
            ruled = self._ruled(self.kube)
        except KubeError as error:
            return written, dict.fromkeys(self.writes, str(error))
        for place, name in enumerate(self.guard.policy.setting.names):
            if name not in self.writes:
                continue
            before = self._written.pop(name, math.nan)
            if not np.isfinite(granted.replicas[place]):
                failed[name] = f"namespace {self.namespace} has no such deployment now"
            elif name in ruled:
                failed[name] = "a HorizontalPodAutoscaler rules it now: remove one of the two"
            else:
                done, trouble = self._write_one(self.kube, name, place, granted, verdict.wanted, before)
                written |= {name: done} if done else {}
                failed |= {name: trouble} if trouble else {}
        return written, failed

    def _write_one(
        self, kube: KubeApi, name: str, place: int, granted: Granted, wanted: Granted, before: float
    ) -> tuple[set[str], str]:
        """Writes what changes of a deployment, to which `before` replicas were written (NaN: none); the grants that
        were written, and what went wrong."""
        done: set[str] = set()
        try:
            if wanted.replicas[place] != granted.replicas[place]:
                kube.scale(self.namespace, name, int(wanted.replicas[place]))
                self._written[name] = wanted.replicas[place]
                done.add("replicas")
            if self.guard.config.resources:
                self._write_resources(kube, name, place, granted, wanted, done)
        except SchedtwinError as error:
            return done, str(error)
        if math.isfinite(before) and before != granted.replicas[place]:
            return done, (
                f"{before:g} replicas were written and {granted.replicas[place]:g} are there: somebody else "
                "changes them, or the cluster does not take them"
            )
        return done, ""

    def _write_resources(
        self, kube: KubeApi, name: str, place: int, granted: Granted, wanted: Granted, done: set[str]
    ) -> None:
        """Writes cores and memory where they change, and adds them to what is done; ConfigError for what is unknown."""
        old, new = (
            {one: float(getattr(grants, one)[place]) for one in RESOURCES} for grants in (granted, wanted)
        )
        unknown = [one for one in RESOURCES if not math.isfinite(new[one])]
        if changed := [one for one in RESOURCES if one not in unknown and new[one] != old[one]]:
            with kube.read_as(f"deployment {name}"):  # it may have gone since it was read
                of_deployment = kube.deployments(self.namespace)[name]
                containers = of_deployment["spec"]["template"]["spec"]["containers"]
                amounts = first_amounts(name, containers, {one: new[one] for one in changed})
            first = {"name": containers[0]["name"], "resources": {"requests": amounts, "limits": amounts}}
            path = f"/apis/apps/v1/namespaces/{quote(self.namespace)}/deployments/{quote(name)}"
            kube.patch(path, {"spec": {"template": {"spec": {"containers": [first]}}}}, STRATEGIC_PATCH)
            done.update(changed)
        if unknown:
            raise ConfigError(
                f"{', '.join(unknown)} cannot be written, what is granted is not known",
                where=f"deployment {name}",
                allowed="containers with limits or requests",
                advice="set them, or leave --resources out",
            )

    def _record(
        self,
        now_s: float,
        granted: Granted,
        verdict: GuardedGrants,
        written: Collection[str],
        failed: Mapping[str, str],
    ) -> dict[str, Any]:
        def plain(grants: Granted, place: int) -> dict[str, float | None]:
            values = {name: float(leaf[place]) for name, leaf in grants._asdict().items()}
            return {name: value if math.isfinite(value) else None for name, value in values.items()}

        names = self.guard.policy.setting.names
        rows = [
            {
                "deployment": name,
                "granted": plain(granted, place),
                "wanted": plain(verdict.wanted, place),
                "policy": plain(verdict.by_policy, place),
                "rules": plain(verdict.by_rules, place),
                "arm": verdict.arms[place],
                "reason": verdict.reasons[place],
                "written": name in written,
                "error": failed.get(name, ""),
            }
            for place, name in enumerate(names)
        ]
        return self._head(now_s) | {"deployments": rows}

    def _head(self, now_s: float) -> dict[str, Any]:
        return {"time": instant(now_s), "bundle": self.guard.policy.content_hash}
