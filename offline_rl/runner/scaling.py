"""Runs an exported autoscaler with NumPy alone: from metrics of an application to what its deployments are granted.

    scaling.json   deployments, limits, steps, objective, where the log has been, and the fallback's settings
    policy.npz     a teacher's layers `Dense_0/kernel`, ..., or those of all students with a leading deployment axis;
                   empty where the pod autoscaler's rule is handed over, whose settings stand in scaling.json
    golden.npz     metrics, grants, and the places that the original took (in [-1, 1] of its reach; of the rule: the
                   cores and the replicas that it adds)

Features and rescaling are those of training (`twin.autoscaling.observing`, `twin.autoscaling.problem`); the goldens
hold both against the original.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from logs_schema.errors import ProductError
from offline_rl.bundle import ARRAYS, GOLDEN, SCALING_KIND, read_arrays
from offline_rl.contract import refusing
from offline_rl.signing import verified_while

KIND = SCALING_KIND
SETTING = "scaling.json"
TEACHER, STUDENTS, STUDENTS_DISCRETE = "teacher", "students", "students_discrete"
POD_RULE = "hpa"
FORMS = (TEACHER, STUDENTS, STUDENTS_DISCRETE, POD_RULE)
"""Kinds of policies: one network over all deployments, a small one each, of numbers or of steps, or a rule."""
TREND_INTERVALS = 4
TOLERANCE = 2e-3
"""How far a place may lie from the original's."""
MIN_GOLDEN = 32
FAILING_SHARE, RESCUE_TARGET, RESCUE_ADDS = 0.02, 0.6, 4
"""Of `rescued`: share of requests that fail, share of the cores granted that their work is to take, and replicas that
one decision adds to a deployment at most."""


@dataclass(frozen=True)
class DeploymentSetting:
    """A deployment, as set by the operator and found in the log.

    Attributes:
        name: Its name.
        min_cpu_cores, max_cpu_cores, min_memory_gib, max_memory_gib: Of a replica.
        min_replicas, max_replicas: Of the deployment.
        most_rate_per_s: The largest rate of calls in the log.
        target: Use of granted cores that the fallback aims at.
        rule_cpu_cores: Of a replica by the fallback; 0 leaves them as they are.
        core_s_per_request: Core-seconds that a request at the gateway takes here, by the log; 0 where not known.
    """

    name: str
    min_cpu_cores: float
    max_cpu_cores: float
    min_memory_gib: float
    max_memory_gib: float
    min_replicas: int
    max_replicas: int
    most_rate_per_s: float
    target: float = 0.75
    rule_cpu_cores: float = 0.0
    core_s_per_request: float = 0.0


@dataclass(frozen=True)
class ScalingSetting:
    """What an autoscaler was trained for; times in seconds, steps as in `twin.autoscaling.config`."""

    form: str
    deployments: tuple[DeploymentSetting, ...]
    interval_s: float
    delay_intervals: int
    cpu_step_cores: float
    memory_step_gib: float
    dead_zone: float
    reach: tuple[float, float, float]
    slo_s: float
    slo_share: float
    down_window_s: float = 300.0
    tolerance: float = 0.1
    violation_cores: float = 10.0

    @property
    def names(self) -> tuple[str, ...]:
        """The deployments, in the order of all arrays."""
        return tuple(one.name for one in self.deployments)

    def limit(self, name: str) -> np.ndarray:
        """[deployments] one of the fields of `DeploymentSetting`."""
        return np.array([getattr(one, name) for one in self.deployments], float)


class Granted(NamedTuple):
    """What is granted; [deployments], cores and GiB a replica."""

    cpu_cores: np.ndarray
    memory_gib: np.ndarray
    replicas: np.ndarray


class Reading(NamedTuple):
    """The metrics of an interval; [..., deployments], those of the gateway and the time [...]."""

    rate_per_s: np.ndarray
    cpu_cores_used: np.ndarray  # a ready replica
    memory_gib_used: np.ndarray  # a ready replica
    ready: np.ndarray
    response_s: np.ndarray
    num_failures: np.ndarray
    gateway_rate_per_s: np.ndarray
    gateway_quantile_s: np.ndarray  # at `slo_share`
    gateway_failures: np.ndarray
    time_s: np.ndarray  # its end, since midnight (UTC)


class ScalingPolicy:
    """A proved policy.

    Args:
        setting: What it was trained for.
        arrays: Its network.
        content_hash: Of its bundle.
    """

    def __init__(
        self, setting: ScalingSetting, arrays: dict[str, np.ndarray], content_hash: str = ""
    ) -> None:
        self.setting, self.content_hash = setting, content_hash
        self._layers = [
            (arrays[f"Dense_{place}/kernel"], arrays[f"Dense_{place}/bias"])
            for place in range(len(arrays) // 2)
        ]

    @property
    def is_finite(self) -> bool:
        """Whether all numbers of its network are."""
        return all(np.isfinite(one).all() for layer in self._layers for one in layer)

    def decide(self, granted: Granted, now: Reading, before: Reading) -> Granted:
        """What to grant next.

        Args:
            granted: What is granted now.
            now: The latest interval that is known.
            before: The one `TREND_INTERVALS` intervals earlier (the oldest that is known, at the beginning).

        Returns:
            Grants within the limits; NaN where a feature is not finite, and nothing can be decided. What is due while
            requests fail is not in them: `failing` and `rescued`.
        """
        places = self.places(granted, now, before)
        if self.setting.form == POD_RULE:
            cores, replicas = granted.cpu_cores + places[0], granted.replicas + places[2]
            return bounded(self.setting, granted._replace(cpu_cores=cores, replicas=replicas))
        return rescaled(self.setting, granted, places)

    def places(self, granted: Granted, now: Reading, before: Reading) -> np.ndarray:
        """[3, deployments] changes of cores, memory and replicas, as shares of the reach; of the rule, cores added to a
        replica, and replicas before its window stabilises them."""
        if self.setting.form == POD_RULE:
            added = desired_replicas(self.setting, granted, now) - granted.replicas
            cores = rule_cores(self.setting, granted) - granted.cpu_cores
            return np.stack([cores, np.zeros_like(added), added])
        local = local_features(self.setting, granted, now, before)
        if self.setting.form == TEACHER:
            values = self._central(
                np.concatenate([local, _shared(local, now, before), np.eye(local.shape[1])])
            )
            return np.tanh(values)
        values = self._each(local)
        if self.setting.form == STUDENTS:
            return np.tanh(values)
        steps = values.reshape(3, 3, -1)
        known = np.isfinite(steps).all(axis=1)  # the largest of NaNs would be the first: a step down
        return np.where(known, np.argmax(steps, axis=1) - 1.0, np.nan)

    def _central(self, values: np.ndarray) -> np.ndarray:
        for place, (kernel, bias) in enumerate(self._layers):
            values = kernel.T @ values + bias[:, None]
            values = np.maximum(values, 0.0) if place + 1 < len(self._layers) else values
        return values

    def _each(self, local: np.ndarray) -> np.ndarray:
        values = local.T[:, None]
        for place, (kernel, bias) in enumerate(self._layers):
            values = values @ kernel + bias[:, None]
            values = np.tanh(values) if place + 1 < len(self._layers) else values
        return values[:, 0].T


def failing(setting: ScalingSetting, now: Reading) -> float:
    """The share of the gateway's requests that failed, where it is more than `FAILING_SHARE`; else, or unknown, 0."""
    share = float(now.gateway_failures / np.maximum(now.gateway_rate_per_s * setting.interval_s, 1.0))
    return share if share > FAILING_SHARE else 0.0


def rescued(setting: ScalingSetting, granted: Granted, now: Reading, wanted: Granted) -> Granted:
    """What is granted while requests fail, see `offline_rl.rules.autoscaling.rescue`; what is switched off stays so."""
    least = Granted(*(np.fmax(one, had) for one, had in zip(wanted, granted, strict=True)))
    cores = np.maximum(RESCUE_TARGET * least.cpu_cores, 1e-6)
    needed = np.ceil(setting.limit("core_s_per_request") * now.gateway_rate_per_s / cores - 1e-4)
    most = np.minimum(granted.replicas + RESCUE_ADDS, setting.limit("max_replicas"))
    saved = least._replace(replicas=np.fmax(least.replicas, np.minimum(needed, most)))
    runs = granted.replicas > 0.0
    return Granted(*(np.where(runs, new, old) for new, old in zip(saved, wanted, strict=True)))


def rule_cores(setting: ScalingSetting, granted: Granted) -> np.ndarray:
    """[deployments] cores of a replica by the pod autoscaler's rule: one step towards its size, or what is granted."""
    size, step = setting.limit("rule_cpu_cores"), setting.cpu_step_cores
    return granted.cpu_cores + np.where(size > 0.0, np.clip(size - granted.cpu_cores, -step, step), 0.0)


def desired_replicas(setting: ScalingSetting, granted: Granted, now: Reading) -> np.ndarray:
    """[deployments] replicas by the pod autoscaler's rule, as in `offline_rl.rules.autoscaling.horizontal_pod`; NaN
    where the use of processors is not known."""
    current, target = granted.replicas, setting.limit("target")
    most = np.maximum(current, 1.0)
    ready = np.clip(np.round(now.ready), 1.0, most)
    use = now.cpu_cores_used / np.maximum(rule_cores(setting, granted), 1e-6)
    unready, high = current > ready, use > target
    ratio = np.where(unready & high, use / target * ready / most, use / target)
    within = (np.abs(ratio - 1.0) <= setting.tolerance) | (unready & high & (ratio < 1.0))
    counted = np.where(unready & high, current, ready)
    return np.where(within, current, np.ceil(ratio * counted - 1e-4))


def cpu_use(granted: Granted, now: Reading) -> np.ndarray:
    """[deployments] cores used as a share of those granted, were all replicas that are granted ready."""
    cores = np.maximum(granted.cpu_cores * np.maximum(granted.replicas, 1.0), 1e-6)
    return np.clip(now.cpu_cores_used * now.ready / cores, 0.0, 4.0)


def local_features(setting: ScalingSetting, granted: Granted, now: Reading, before: Reading) -> np.ndarray:
    """[features, deployments] what each deployment sees of itself, as in training."""
    use = cpu_use(granted, now)
    ones = np.ones_like(use)
    requests = now.gateway_rate_per_s * setting.interval_s
    return np.stack(
        [
            use,
            use - cpu_use(granted, before),
            now.memory_gib_used / np.maximum(granted.memory_gib, 1e-6),
            *(
                (value - setting.limit(f"min_{name}"))
                / np.maximum(setting.limit(f"max_{name}") - setting.limit(f"min_{name}"), 1e-6)
                for name, value in (
                    ("replicas", granted.replicas),
                    ("cpu_cores", granted.cpu_cores),
                    ("memory_gib", granted.memory_gib),
                )
            ),
            _log_ratio(now.rate_per_s, before.rate_per_s),
            (granted.replicas - now.ready) / np.maximum(granted.replicas, 1.0),
            _log_ratio(now.response_s, setting.slo_s),
            np.clip(now.num_failures / np.maximum(now.rate_per_s * setting.interval_s, 1.0), 0.0, 1.0),
            ones * _log_ratio(now.gateway_quantile_s, setting.slo_s),
            ones * np.clip(now.gateway_failures / np.maximum(requests, 1.0), 0.0, 1.0),
        ]
    )


def rescaled(setting: ScalingSetting, granted: Granted, places: np.ndarray) -> Granted:
    """What is granted after changes [3, deployments]; exact, as in training."""
    steps = places * np.asarray(setting.reach)[:, None]
    steps = np.where(np.abs(steps) <= setting.dead_zone, 0.0, steps)  # NaN stays
    cores = granted.cpu_cores + setting.cpu_step_cores * steps[0]
    memory = granted.memory_gib + setting.memory_step_gib * steps[1]
    replicas = granted.replicas + np.sign(steps[2]) * np.floor(np.abs(steps[2]) + 0.5)
    return bounded(setting, Granted(cores, memory, replicas))


def bounded(setting: ScalingSetting, wanted: Granted) -> Granted:
    """Grants within the limits."""
    names = ("cpu_cores", "memory_gib", "replicas")
    return Granted(
        *(
            np.clip(value, setting.limit(f"min_{name}"), setting.limit(f"max_{name}"))
            for name, value in zip(names, wanted, strict=True)
        )
    )


def write_setting(folder: Path, setting: ScalingSetting) -> None:
    """Writes `scaling.json`."""
    (folder / SETTING).write_text(json.dumps(asdict(setting), indent=1) + "\n")


def read_setting(folder: Path) -> ScalingSetting:
    """Reads `scaling.json`; ProductError where it is none."""
    with refusing("the setting of the autoscaler cannot be read", folder / SETTING):
        plain = json.loads((folder / SETTING).read_text())
        deployments = tuple(DeploymentSetting(**one) for one in plain.pop("deployments"))
        setting = ScalingSetting(deployments=deployments, **plain | {"reach": tuple(plain["reach"])})
        if setting.form not in FORMS or not deployments:
            raise ValueError(f"form {setting.form!r} of {len(deployments)} deployments")
    return setting


def load_scaling(
    folder: Path | str, *, expect: str | None = None, trust: Path | None = None
) -> ScalingPolicy:
    """Loads a bundle, after checking every hash and replaying its golden decisions.

    Args:
        folder: The bundle.
        expect: The content hash that it must have; None accepts any.
        trust: PEM file of the public key of whoever must have signed it; None: anybody.

    Raises:
        ProductError: No such bundle, another one than expected, not signed by whom is trusted, damaged, or it decides
            otherwise than the original.
    """
    folder = Path(folder)
    with verified_while(folder, KIND, expect=expect, trust=trust) as content_hash:
        policy = ScalingPolicy(read_setting(folder), read_arrays(folder / ARRAYS), content_hash)
        prove(policy, folder)
    return policy


def prove(policy: ScalingPolicy, folder: Path) -> None:
    """Holds a policy against the goldens in a folder; ProductError where it decides otherwise, or a number of either is
    not finite."""
    if not policy.is_finite:
        raise ProductError(
            "the network's numbers are not finite",
            where=str(folder / ARRAYS),
            advice="export the policy again",
        )
    golden = read_arrays(folder / GOLDEN)
    with refusing("the golden decisions cannot be read", folder / GOLDEN):
        num_rows = len(golden["places"])
        if num_rows < MIN_GOLDEN:
            raise ValueError(f"{num_rows} rows, {MIN_GOLDEN} or more are allowed")
        if unknown := sorted(name for name, one in golden.items() if not np.isfinite(one).all()):
            raise ValueError(f"{', '.join(unknown)}: numbers that are not finite")
        gaps = []
        for row in range(num_rows):
            granted = Granted(*(golden[f"granted/{name}"][row] for name in Granted._fields))
            now, before = (
                Reading(*(golden[f"{when}/{name}"][row] for name in Reading._fields))
                for when in ("now", "before")
            )
            places = policy.places(granted, now, before)
            gaps.append(np.max(np.abs(places - golden["places"][row])))
    away = float(np.max(gaps))  # NaN where one is, which `max` may pass over
    if not away <= TOLERANCE:
        raise ProductError(
            "the exported autoscaler does not decide as the original",
            where=f"{folder}: a place differs by {away:.2g}",
            allowed=f"{TOLERANCE:g} at most",
            advice="export the policy again",
        )


def _shared(local: np.ndarray, now: Reading, before: Reading) -> np.ndarray:
    """[features, deployments] the state of the others."""
    use, ones = local[0], np.ones(local.shape[1])
    time_s = now.rate_per_s * now.response_s
    angle = 2.0 * np.pi * now.time_s / DAY_S
    trend = _log_ratio(now.gateway_rate_per_s, before.gateway_rate_per_s)
    return np.stack(
        [
            ones * use.mean(),
            ones * use.max(),
            time_s / max(time_s.sum(), 1e-9),
            ones * trend,
            ones * np.sin(angle),
            ones * np.cos(angle),
        ]
    )


def _log_ratio(value: np.ndarray | float, other: np.ndarray | float) -> np.ndarray:
    return np.clip(np.log((np.asarray(value) + 1e-4) / (np.asarray(other) + 1e-4)), -4.0, 4.0)
