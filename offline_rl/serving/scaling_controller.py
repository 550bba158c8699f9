"""An autoscaler beside an application: reads metrics, decides, writes what it may, and logs all of it.

    LOG/deployment_samples/*.csv    metrics, grants and what was changed; `schedtwin import native` reads the folder
    LOG/decisions/*.jsonl           what the policy and the rules of the pod autoscaler would have done, and why

By default nothing is written: what runs beside it, a pod autoscaler say, goes on, and the log names both.
Replicas are written only for deployments that are named (or all), and never where a pod autoscaler rules.
"""

import csv
import datetime as dt
import io
import json
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np

from logs_schema.errors import ConfigError, SchedtwinError
from logs_schema.formats.metric_series import Samples
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY
from offline_rl.runner.scaling import TREND_INTERVALS, Granted, Reading
from offline_rl.serving.errors import QueryError
from offline_rl.serving.kube_api import STRATEGIC_PATCH, KubeApi, KubeError
from offline_rl.serving.prometheus import Prometheus, granted_by, reading_of
from offline_rl.serving.quantities import GIB, amount_of
from offline_rl.serving.scaling_guard import Guard, GuardedGrants

STALE_INTERVALS = 4
"""Metrics of an interval that ended longer ago are stale."""
COLUMNS = (
    "time", "interval_s", "deployment", "cpu_cores", "memory_gib", "num_replicas", "ready_replicas", "cpu_cores_used",
    "memory_gib_used", "request_rate_per_s", "response_s", "response_p95_s", "num_failures", "action_cpu_cores",
    "action_memory_gib", "action_replicas",
)  # fmt: skip
RESOURCES = {"cpu_cores": ("cpu", 1000, "m"), "memory_gib": ("memory", 1024, "Mi")}
"""Grant of a replica -> its name in a container, and the unit in which it is written."""
LEAST_OF_FIRST = 10
"""Units that a first container keeps beside the others, at least."""
WHOLE = {name for name in COLUMNS if str(DEPLOYMENT_SAMPLES.column(name).type) == "int32"}


class Lead(Protocol):
    """Keeps controllers of one application apart (`offline_rl.orchestrating.leading`)."""

    @property
    def leader(self) -> str:
        """Who leads, when last looked."""
        ...

    def leads(self) -> bool:
        """Whether this controller leads now; what the cluster cannot do is a SchedtwinError."""
        ...


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
    _logged_until: int = field(default=-1)
    _seen: deque[tuple[float, Granted]] = field(default_factory=lambda: deque(maxlen=STALE_INTERVALS + 3))

    def refuse_rivals(self) -> None:
        """ConfigError where a deployment to be written is not there, or ruled by a pod autoscaler."""
        names = self.guard.policy.setting.names
        if unknown := sorted(set(self.writes) - set(names)):
            raise ConfigError(
                f"the bundle does not know {', '.join(unknown)}", where="--canary", allowed=", ".join(names)
            )
        if self.kube is None:
            if self.writes:
                raise ConfigError("nothing can be written without a cluster", where="--canary, --apply",
                                  allowed="together with --kube")  # fmt: skip
            return
        if missing := sorted(set(names) - set(self.kube.deployments(self.namespace))):
            raise ConfigError(
                f"the namespace has no deployment {', '.join(missing)}", where=f"namespace {self.namespace}",
                allowed=f"all deployments of the bundle: {', '.join(names)}",
            )  # fmt: skip
        if not self.writes:  # a recommendation is nobody's rival
            return
        if rivals := sorted(self._ruled(self.kube) & set(self.writes)):
            raise ConfigError(
                f"a HorizontalPodAutoscaler rules {', '.join(rivals)}", where=f"namespace {self.namespace}",
                allowed="deployments without another autoscaler", advice="remove it, or recommend only",
            )  # fmt: skip

    def _ruled(self, kube: KubeApi) -> set[str]:
        """What pod autoscalers rule; KubeError where that cannot be known."""
        path = f"/apis/autoscaling/v1/namespaces/{quote(self.namespace)}/horizontalpodautoscalers"
        try:
            found = kube.get(path).get("items") or []
        except KubeError as error:
            raise KubeError(
                f"HorizontalPodAutoscalers cannot be listed: {error.what}", where=error.where,
                allowed="an account that may list horizontalpodautoscalers (autoscaling/v1) before it writes",
                advice="grant it, or recommend only, without --canary and --apply",
            ) from error  # fmt: skip
        with kube.read_as("a HorizontalPodAutoscaler"):
            return {one["spec"]["scaleTargetRef"]["name"] for one in found}

    def step(self) -> dict[str, Any]:
        """One decision: reads, decides, writes, logs; what came of it as JSON has it.

        Raises:
            MetricsError, KubeError: Monitoring or cluster does not answer, or no Lease can be had; nothing has been
                written.
        """
        setting, now_s = self.guard.policy.setting, self.clock()
        begin_s = now_s - (TREND_INTERVALS + STALE_INTERVALS + 4) * setting.interval_s
        begin_s = math.floor(begin_s / setting.interval_s) * setting.interval_s
        samples = self.metrics.samples(begin_s, now_s, setting.interval_s)
        finished = math.floor(now_s / setting.interval_s) - 1
        mine = (places for name, places in samples.rows.items() if name != GATEWAY)
        place = max((at for places in mine for at in places if at <= finished), default=finished)
        granted = self._granted(samples, place)
        now, before = (
            reading_of(samples, at, setting.names, granted.replicas)
            for at in (place, place - TREND_INTERVALS)
        )
        age = finished - place
        self._logged_until = min(self._logged_until, finished)  # the clock may have been set back
        stale = f"the latest metrics are {age} intervals old" if age > STALE_INTERVALS else ""
        verdict = self.guard.decide(now_s, granted, now, before, stale)
        self._seen.append((now_s, granted))
        follows = self._follows()
        written, failed = ({}, {}) if follows else self._write(granted, verdict)
        record = self._record(now_s, granted, verdict, written, failed) | (
            {"follows": follows} if follows else {}
        )
        if self.log is not None:
            try:
                self._note(
                    place, granted, now, verdict, written, record
                )  # of an interval that may be some ago
            except OSError as error:  # a full disk stops the log, never a decision
                record["log_error"] = str(error)
        return record

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
        with self.kube.read_as("a deployment"):
            return granted_in(self.kube.deployments(self.namespace), names, otherwise)

    def _write(self, granted: Granted, verdict: GuardedGrants) -> tuple[dict[str, set[str]], dict[str, str]]:
        """Writes what changes; the grants that were written by deployment, and why others could not be."""
        written: dict[str, set[str]] = {}
        failed: dict[str, str] = {}
        for place, name in enumerate(self.guard.policy.setting.names):
            if name not in self.writes or self.kube is None:
                continue
            if not np.isfinite(granted.replicas[place]):
                failed[name] = f"namespace {self.namespace} has no such deployment now"
                continue
            done: set[str] = set()
            try:
                if verdict.wanted.replicas[place] != granted.replicas[place]:
                    self.kube.scale(self.namespace, name, int(verdict.wanted.replicas[place]))
                    done.add("replicas")
                if self.guard.config.resources:
                    self._write_resources(self.kube, name, place, granted, verdict.wanted, done)
            except SchedtwinError as error:
                failed[name] = str(error)
            if done:
                written[name] = done
        return written, failed

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
                f"{', '.join(unknown)} cannot be written, what is granted is not known", where=f"deployment {name}",
                allowed="containers with limits or requests", advice="set them, or leave --resources out",
            )  # fmt: skip

    def _record(
        self, now_s: float, granted: Granted, verdict: GuardedGrants, written: Collection[str],
        failed: Mapping[str, str],
    ) -> dict[str, Any]:  # fmt: skip
        def plain(grants: Granted, place: int) -> dict[str, float | None]:
            values = {name: float(leaf[place]) for name, leaf in grants._asdict().items()}
            return {name: value if math.isfinite(value) else None for name, value in values.items()}

        names = self.guard.policy.setting.names
        rows = [
            {
                "deployment": name, "granted": plain(granted, place), "wanted": plain(verdict.wanted, place),
                "policy": plain(verdict.by_policy, place), "rules": plain(verdict.by_rules, place),
                "arm": verdict.arms[place], "reason": verdict.reasons[place],
                "written": name in written, "error": failed.get(name, ""),
            }
            for place, name in enumerate(names)
        ]  # fmt: skip
        return {"time": _instant(now_s), "bundle": self.guard.policy.content_hash, "deployments": rows}

    def _note(
        self, place: int, granted: Granted, now: Reading, verdict: GuardedGrants,
        written: Mapping[str, Collection[str]], record: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Appends a decision, and the metrics of its interval where they are not there yet."""
        assert self.log is not None
        day = str(record["time"])[:10]
        _append(self.log / "decisions" / f"{day}.jsonl", json.dumps(record) + "\n")
        if place <= self._logged_until:
            return
        rows = self._rows(place, granted, now, verdict, written)
        _append(self.log / "deployment_samples" / f"{day}.csv", _csv(rows), head=_csv([COLUMNS]))
        self._logged_until = place

    def _rows(
        self, place: int, granted: Granted, now: Reading, verdict: GuardedGrants,
        written: Mapping[str, Collection[str]],
    ) -> list[list[Any]]:  # fmt: skip
        """The metrics of an interval as rows of `deployment_samples`, the gateway's last."""
        setting, mapping = self.guard.policy.setting, self.metrics.mapping
        memory = _or_unknown(now.memory_gib_used, mapping.names("memory_gib_used"))
        failures = _or_unknown(now.num_failures, mapping.names("num_failures"))
        of_users = _or_unknown(now.gateway_failures, mapping.names("num_failures", of_gateway=True))
        begin, end_s = _instant(place * setting.interval_s), (place + 1) * setting.interval_s
        then = next((grants for seen_s, grants in self._seen if seen_s >= end_s), granted)  # at its end
        rows: list[list[Any]] = []
        for index, name in enumerate(setting.names):
            done = written.get(name, ())
            change = [
                float(new[index] - old[index]) if one in done else 0.0
                for one, new, old in zip(Granted._fields, verdict.wanted, granted, strict=True)
            ]
            values = (
                then.cpu_cores[index], then.memory_gib[index], then.replicas[index], now.ready[index],
                now.cpu_cores_used[index], memory[index], now.rate_per_s[index],
                now.response_s[index], math.nan, failures[index], *change,
            )  # fmt: skip
            rows.append([begin, setting.interval_s, name, *map(_cell, COLUMNS[3:], values)])
        users = (math.nan,) * 6 + (
            float(now.gateway_rate_per_s), math.nan, float(now.gateway_quantile_s), float(of_users),
        )  # fmt: skip
        rows.append([begin, setting.interval_s, GATEWAY, *map(_cell, COLUMNS[3:13], users), "", "", ""])
        return rows


def granted_in(
    deployments: Mapping[str, Mapping[str, Any]], names: tuple[str, ...], otherwise: Granted
) -> Granted:
    """What deployments are granted by their objects: replicas, and limits (else requests) of their containers.

    Args:
        deployments: Name -> `apps/v1` Deployment.
        names: Which.
        otherwise: For cores and memory that no container names.

    Raises:
        ConfigError: A limit lies below its request, or is no quantity.
    """
    replicas, amounts = [], {"cpu": otherwise.cpu_cores.copy(), "memory": otherwise.memory_gib.copy()}
    for place, name in enumerate(names):
        spec = deployments.get(name, {}).get("spec", {})
        replicas.append(float(spec.get("replicas", 1)) if spec else math.nan)
        containers = spec.get("template", {}).get("spec", {}).get("containers", [])
        for resource, unit in (("cpu", 1.0), ("memory", GIB)):
            known = [
                amount
                for one in containers
                if (amount := _amount(name, resource, one.get("resources", {}))) is not None
            ]
            if known:
                amounts[resource][place] = sum(known) / unit
    return Granted(amounts["cpu"], amounts["memory"], np.array(replicas))


def first_amounts(
    deployment: str, containers: Sequence[Mapping[str, Any]], wanted: Mapping[str, float]
) -> dict[str, str]:
    """What the first container is to hold, so that all of them hold what a replica is granted.

    Args:
        deployment: Its name.
        containers: Of its pods; those after the first stay as they are.
        wanted: Grants of a replica, by names of `RESOURCES`.

    Raises:
        ConfigError: The others leave the first nothing, or it names no amount and they do.
    """
    amounts = {}
    for name, value in wanted.items():
        resource, scale, unit = RESOURCES[name]
        own, *others = (_amount(deployment, resource, one.get("resources", {})) for one in containers)
        per_unit = scale / (GIB if name == "memory_gib" else 1.0)
        held = sum(one for one in others if one is not None) * per_unit
        rest = round(scale * value - held)
        if rest < LEAST_OF_FIRST or (own is None and held > 0.0):
            raise ConfigError(
                f"{round(scale * value)}{unit} cannot be shared, the other containers hold {held:.0f}{unit}",
                where=f"deployment {deployment}, {resource}",
                allowed=f"a first container with a limit or request, and {LEAST_OF_FIRST}{unit} left for it",
                advice="bound the deployment by what all its containers need, or leave --resources out",
            )
        amounts[resource] = f"{rest}{unit}"
    return amounts


def _amount(deployment: str, resource: str, resources: Mapping[str, Any]) -> float | None:
    limit, request = (resources.get(kind, {}).get(resource) for kind in ("limits", "requests"))
    try:
        found = [amount_of(one) for one in (limit, request) if one is not None]
    except QueryError as error:
        raise ConfigError(
            error.what, where=f"deployment {deployment}, {resource}", allowed=error.allowed
        ) from error
    if len(found) == 2 and found[0] < found[1]:
        raise ConfigError(
            "a limit lies below its request", where=f"deployment {deployment}, {resource}: {limit} below {request}",
            allowed="limits of at least the requests", advice="mend the deployment",
        )  # fmt: skip
    return found[0] if found else None


def _append(path: Path, text: str, head: str = "") -> None:
    """Appends all of a text, after the head of a file that is new, or nothing where the disk is full: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        content = memoryview((text if size else head + text).encode())
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(size)  # what comes next must not go on in half a line
            raise


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    with io.StringIO(newline="") as text:
        csv.writer(text).writerows(rows)
        return text.getvalue()


def _or_unknown(values: np.ndarray, is_measured: bool) -> np.ndarray:
    """Values, or NaN for all of them: what nothing measures counts as 0 in a decision, and is not in the log."""
    return values if is_measured else np.full_like(values, math.nan, dtype=float)


def _cell(name: str, value: float) -> str:
    if not math.isfinite(value):
        return ""
    return str(round(value)) if name in WHOLE else f"{value:.6g}"


def _instant(time_s: float) -> str:
    return dt.datetime.fromtimestamp(time_s, dt.UTC).isoformat(timespec="seconds")
