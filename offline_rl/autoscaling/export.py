"""Hands an autoscaler over: its network for NumPy, what it was trained for, and golden decisions that prove it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.calendar import DAY_S
from logs_schema.product import writing
from offline_rl.autoscaling.students import taught
from offline_rl.bundle import ARRAYS, GOLDEN
from offline_rl.runner.scaling import (
    KIND,
    STUDENTS_DISCRETE,
    TREND_INTERVALS,
    ScalingPolicy,
    ScalingSetting,
    prove,
    write_setting,
)
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.laws import histogram
from twin.autoscaling.observing import observe
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import DeploymentMetrics, GatewayMetrics, Grants, ScalingEvents, quantile_s
from twin.contracts import Array, Policy, PyTree

NUM_GOLDEN = 64
PlacesOf = Callable[[AutoscalingConfig, GrantLimits, ScalingState], Array]
"""(config, limits, state) -> places [3, deployments, *streams], as `offline_rl.runner.scaling` has them."""


def export_scaling(
    params: PyTree,
    places_of: PlacesOf,
    out: Path,
    setting: ScalingSetting,
    *,
    seed: int = 0,
    made_from: Mapping[str, str] | None = None,
    extra: dict[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Writes a policy as a bundle (see `offline_rl.runner.scaling`) and proves it.

    Args:
        params: The network's parameters; empty of a rule.
        places_of: What it decides: `network_places` of a policy, `pod_places` of the pod autoscaler's rule.
        out: Folder of the bundle.
        setting: What it was trained for.
        seed: It was trained with; also draws the goldens.
        made_from: Name -> content hash of what it was made from.
        extra: Free facts for the manifest.
        replace: Whether an older bundle may be replaced.

    Raises:
        ProductError: The copy disagrees with the policy, or `out` is taken.
    """
    arrays = {
        f"{layer}/{part}": np.asarray(array, np.float32)
        for layer, parts in params.get("params", {}).items()
        for part, array in parts.items()
    }
    golden = golden_decisions(setting, places_of, seed)
    with writing(out, KIND, made_from=made_from, seed=seed, extra=extra, replace=replace) as folder:
        write_setting(folder, setting)
        np.savez(folder / ARRAYS, allow_pickle=False, **arrays)
        np.savez(folder / GOLDEN, allow_pickle=False, **golden)
        prove(ScalingPolicy(setting, arrays), folder)


def config_of(setting: ScalingSetting) -> tuple[AutoscalingConfig, GrantLimits]:
    """A setting as training has it."""
    config = AutoscalingConfig(
        interval_s=setting.interval_s,
        delay_intervals=setting.delay_intervals,
        cpu_step_cores=setting.cpu_step_cores,
        memory_step_gib=setting.memory_step_gib,
        dead_zone=setting.dead_zone,
        reach=setting.reach,
        slo_s=setting.slo_s,
        slo_share=setting.slo_share,
        violation_cores=setting.violation_cores,
    )
    return config, GrantLimits(
        *(jnp.asarray(setting.limit(name), jnp.float32) for name in GrantLimits._fields)
    )


def network_places(policy: Policy, setting: ScalingSetting) -> PlacesOf:
    """The places of a policy, as shares of the reach of a setting."""

    def places_of(config: AutoscalingConfig, limits: GrantLimits, state: ScalingState) -> Array:
        action = jax.jit(taught(policy, setting.reach))(observe(config, limits, state))
        places = jnp.stack([steps / most for steps, most in zip(action, setting.reach, strict=True)])
        return jnp.round(places) if setting.form == STUDENTS_DISCRETE else places

    return places_of


def golden_decisions(setting: ScalingSetting, places_of: PlacesOf, seed: int) -> dict[str, np.ndarray]:
    """Metrics and grants drawn about the setting, and the places [rows, 3, deployments] that are taken."""
    config, limits = config_of(setting)
    state = _drawn_state(np.random.default_rng([seed, 0x601D]), config, setting)
    places = places_of(config, limits, state)
    found = {"places": np.moveaxis(np.asarray(places), -1, 0)}
    found |= {f"granted/{name}": np.asarray(leaf).T for name, leaf in state.grants._asdict().items()}
    for when, age in (("now", 0), ("before", TREND_INTERVALS)):
        found |= {f"{when}/{name}": leaf for name, leaf in _reading(config, state, age).items()}
    return found


def _reading(config: AutoscalingConfig, state: ScalingState, age: int) -> dict[str, np.ndarray]:
    """The metrics of an interval as `offline_rl.runner.scaling.Reading` names them, [rows, deployments] or [rows]."""
    events = known(config, state, age)
    found = {name: np.asarray(leaf).T for name, leaf in events.measured._asdict().items()}
    return found | {
        "gateway_rate_per_s": np.asarray(events.gateway.rate_per_s),
        "gateway_quantile_s": np.asarray(quantile_s(events.gateway.latency, config.slo_share)),
        "gateway_failures": np.asarray(events.gateway.num_failures),
        "time_s": np.asarray(events.time_s),
    }


def _drawn_state(
    random: np.random.Generator, config: AutoscalingConfig, setting: ScalingSetting
) -> ScalingState:
    """Some state: leaves [..., rows]."""
    number, window = len(setting.deployments), config.window

    def between(name: str, shape: tuple[int, ...]) -> np.ndarray:
        low, high = (setting.limit(f"{end}_{name}")[:, None] for end in ("min", "max"))
        return low + (high - low) * random.uniform(size=shape)

    def past(leaf: np.ndarray) -> jax.Array:
        return jnp.broadcast_to(jnp.asarray(leaf, jnp.float32)[None], (window, *leaf.shape))

    shape = (number, NUM_GOLDEN)
    grants = [between("cpu_cores", shape), between("memory_gib", shape), np.round(between("replicas", shape))]
    every = (window, *shape)
    rate = setting.limit("most_rate_per_s")[None, :, None] * random.uniform(0.05, 1.0, every)
    measured = (
        rate,
        grants[0] * random.uniform(0.05, 1.0, every),
        grants[1] * random.uniform(0.1, 1.0, every),
        np.maximum(grants[2] - random.integers(0, 2, every), 0.5),
        setting.slo_s * random.gamma(1.0, 0.3, every),
        np.floor(random.gamma(0.3, 2.0, every)),
    )
    whole = (window, NUM_GOLDEN)
    mean_s, users = setting.slo_s * random.gamma(2.0, 0.3, whole), random.uniform(1.0, 50.0, whole)
    answered = jnp.asarray(users * setting.interval_s, jnp.float32)
    latency = jax.vmap(histogram)(
        jnp.asarray(mean_s, jnp.float32), jnp.asarray(2.5 * mean_s, jnp.float32), answered
    )
    gateway = [
        jnp.asarray(one, jnp.float32) for one in (users, mean_s, np.floor(random.gamma(0.3, 2.0, whole)))
    ]
    events = ScalingEvents(
        Grants(*(past(leaf) for leaf in grants)),
        DeploymentMetrics(*(jnp.asarray(leaf, jnp.float32) for leaf in measured)),
        GatewayMetrics(gateway[0], gateway[1], gateway[2], latency),
        jnp.asarray(random.uniform(0.0, DAY_S, whole), jnp.float32),
    )
    return ScalingState(Grants(*(jnp.asarray(leaf, jnp.float32) for leaf in grants)), events)
