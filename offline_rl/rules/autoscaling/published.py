"""The compared autoscalers by name: each made from a log and its twin, without the truth.

Limits and the objective are the operator's own. Rules with settings are calibrated in the twin; the whole grid of their
settings is kept, for the frontier of cost against response time.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, follow, free_config
from offline_rl.rules.autoscaling.calibration import calibrated, repeated
from offline_rl.rules.autoscaling.critical_path import critical_path, learn_critical_path
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, horizontal_pod
from offline_rl.rules.autoscaling.lookahead import LookaheadConfig, lookahead
from offline_rl.rules.autoscaling.operated import operated
from offline_rl.rules.autoscaling.quartile_q import QuartileConfig, learn_table, quartile_q
from offline_rl.rules.autoscaling.rate_target import rate_target, static
from offline_rl.rules.autoscaling.rescue import core_s_per_request, rescued
from offline_rl.rules.autoscaling.vertical_pod import vertical_pod
from twin.arrays import kept_arrays
from twin.autoscaling.answers import twin_response
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.scaling_log import ScalingLog
from twin.autoscaling.types import Grants
from twin.autoscaling.workload import made_rates
from twin.contracts import Array

PLANNED_USE = 0.6
"""Of granted cores, where a rule plans replicas from work and rate."""
POD_GRID = tuple(
    PodAutoscalerConfig(target=target, down_window_s=window_s, tolerance=tolerance)
    for target, window_s, tolerance in product((0.3, 0.4, 0.5, 0.6, 0.7), (60.0, 300.0), (0.05, 0.1))
)
SIZED_GRID = tuple(
    PodAutoscalerConfig(target=target, down_window_s=window_s, cpu_cores=cores)
    for target, window_s, cores in product((0.5, 0.6, 0.7, 0.8), (60.0, 300.0), (0.25, 0.5, 0.75, 1.0))
)
LOOKAHEAD_GRID = tuple(LookaheadConfig(margin=margin) for margin in (0.6, 0.7, 0.8, 0.9, 1.0, 1.1))
TWIN_DAYS, TWIN_EPISODES, TWIN_STEPS = 20, 10, 480
"""Days of load that settings are tried under in the twin, episodes of a setting, intervals of an episode."""

FAULT_STEPS = 600
"""Intervals of an episode in which FIRM learns."""


class Setting(NamedTuple):
    """An autoscaler ready to play.

    Attributes:
        autoscaler: It.
        chosen: What was chosen for it in the twin; empty where nothing was.
        grid: What it was chosen from, for the frontier.
        all_at_once: Number of traces -> the autoscaler with all of the grid, as the outer part of its streams.
    """

    autoscaler: Autoscaler
    chosen: dict[str, float] = {}  # noqa: RUF012 (a default that is never changed)
    grid: Sequence[dict[str, float]] = ()
    all_at_once: Callable[[int], Autoscaler] | None = None


NAMES = (
    "logged", "hpa", "hpa_calibrated", "hpa_sized", "vpa", "rate_target", "static", "coscal", "firm", "lookahead",
)  # fmt: skip
"""All of them."""


def autoscalers(
    config: AutoscalingConfig,
    limits: GrantLimits,
    twin: ApplicationTwin,
    log: ScalingLog,
    num_traces: int,
    names: Sequence[str] | None = None,
    keep: Path | None = None,
) -> Mapping[str, Callable[[], Setting]]:
    """Name -> how the autoscaler is made; calibration takes place when it is.

    Args:
        config: When decisions are taken, the objective, and what a violation costs.
        limits: Of the grants.
        twin: Of the application.
        log: That it was learned from.
        num_traces: Streams that the autoscalers are to play in.
        names: Which are wanted; all of them if None.
        keep: Folder that saves which settings were best; None saves nothing.

    Raises:
        ConfigError: An unknown name.
    """
    reward, free = cost_under_slo(), free_config(config)
    work_s, core_s = jnp.asarray(np.asarray(twin.laws.work_s).mean(axis=0)), core_s_per_request(twin.laws)

    def calibrate(
        name: str, make: Callable[[Any], Autoscaler], grid: Sequence[Any], *, with_seats: bool
    ) -> Setting:
        worth, starts = _in_made_days(config, limits, twin, log)
        search = partial(calibrated, grid, make, worth, starts, with_seats=with_seats)
        best = grid[int(kept_arrays(keep and keep / f"{name}.npz", search, lambda: 0))]
        return Setting(
            make(best), plain(best), [plain(one) for one in grid],
            lambda times: make(repeated(grid, times, with_seats=with_seats)),
        )  # fmt: skip

    def coscal() -> Setting:
        rates = made_rates(twin.load, TWIN_DAYS, 3)
        settings = QuartileConfig()
        response = twin_response(twin.laws, free, limits, rates, settings.steps, typical_grants(log))
        table = learn_table(jax.random.key(3), response, config, limits, twin.load, reward, settings)
        return Setting(quartile_q(config, limits, twin.load, table))

    def firm() -> Setting:
        rates = made_rates(twin.load, TWIN_DAYS, 4)
        response = twin_response(twin.laws, config, limits, rates, FAULT_STEPS, typical_grants(log))
        found = learn_critical_path(jax.random.key(4), response, config, limits, reward)
        return Setting(critical_path(config, limits, found))

    def pods(settings: PodAutoscalerConfig) -> Autoscaler:
        return rescued(config, limits, horizontal_pod(config, limits, settings), core_s)

    def ahead(settings: LookaheadConfig) -> Autoscaler:
        whole = LookaheadConfig(margin=settings.margin)
        return rescued(config, limits, lookahead(config, limits, twin.laws, twin.load, whole), core_s)

    makers: dict[str, Callable[[], Setting]] = {
        "logged": lambda: Setting(operated(config, limits, len(twin.deployments), num_traces, 1)),
        "hpa": lambda: Setting(horizontal_pod(config, limits, PodAutoscalerConfig())),
        "hpa_calibrated": lambda: calibrate("hpa_calibrated", pods, POD_GRID, with_seats=True),
        "hpa_sized": lambda: calibrate("hpa_sized", pods, SIZED_GRID, with_seats=True),
        "vpa": lambda: Setting(vertical_pod(config, limits)),
        "rate_target": lambda: Setting(rate_target(config, limits, PLANNED_USE / work_s)),
        "static": lambda: Setting(static(peak_grants(log, twin))),
        "coscal": coscal,
        "firm": firm,
        "lookahead": lambda: calibrate("lookahead", ahead, LOOKAHEAD_GRID, with_seats=False),
    }
    if unknown := sorted(set(names or ()) - set(makers)):
        raise ConfigError(f"there is no autoscaler {', '.join(unknown)}", allowed=", ".join(NAMES))
    return {name: make for name, make in makers.items() if names is None or name in names}


def _in_made_days(
    config: AutoscalingConfig, limits: GrantLimits, twin: ApplicationTwin, log: ScalingLog
) -> tuple[Callable[[Autoscaler, np.ndarray], np.ndarray], np.ndarray]:
    """What settings are tried in: (autoscaler, [streams] first rows of its episodes) -> [streams] reward, and the first
    rows of the episodes of each."""
    rates = made_rates(twin.load, TWIN_DAYS, 1)

    def worth(autoscaler: Autoscaler, starts: np.ndarray) -> np.ndarray:
        grants, streams, free = typical_grants(log), (len(starts),), free_config(config)
        response = twin_response(twin.laws, free, limits, rates, TWIN_STEPS, grants, starts=starts)

        @jax.jit
        def play(key: Array) -> Array:
            reward = cost_under_slo()
            played = follow(key, response, config, limits, autoscaler, reward, TWIN_STEPS, streams)
            return jnp.mean(jnp.sum(played.reward, axis=1), axis=0)

        return np.asarray(play(jax.random.key(1)))

    return worth, np.linspace(0, len(rates) - TWIN_STEPS - 2, TWIN_EPISODES).astype(int)


def plain(settings: Any) -> dict[str, float]:
    """Settings as JSON values."""
    return {name: float(value) for name, value in settings._asdict().items()}


def typical_grants(log: ScalingLog) -> Grants:
    """Medians of what the log granted, leaves [deployments]."""
    granted = log.columns["cpu_cores"], log.memory_granted, log.columns["num_replicas"]
    middle = [np.nanmedian(one, axis=0) for one in granted]
    return Grants(*(jnp.asarray(one, jnp.float32) for one in (middle[0], middle[1], np.ceil(middle[2]))))


def peak_grants(log: ScalingLog, twin: ApplicationTwin) -> Grants:
    """Replicas of typical size for the largest rate of the log, at the planned use."""
    typical = typical_grants(log)
    peak = np.nanquantile(log.columns["request_rate_per_s"], 0.999, axis=0)
    work_s = np.asarray(twin.laws.work_s).mean(axis=0)
    replicas = np.ceil(peak * work_s / (np.asarray(typical.cpu_cores) * PLANNED_USE))
    return typical._replace(replicas=jnp.asarray(np.maximum(replicas, 1.0), jnp.float32))
