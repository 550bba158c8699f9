"""The rules of Kubernetes' HorizontalPodAutoscaler for processor use, as its controller applies them.

    desired = ceil(ready * use / target)        nothing within the tolerance

Replicas that are not ready yet count as idle when more are wanted; what was desired within the window before a decision
stabilises it; policies bound how fast replicas come and go. KuScal of paper DRPC is this with a target of 75 %.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from offline_rl.rules.autoscaling.autoscaler import Autoscaler, along
from offline_rl.runner.scaling import ScalingSetting
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import Grants
from twin.contracts import Array


class PodAutoscalerConfig(NamedTuple):
    """Settings; numbers, or arrays [deployments] or [deployments or 1, *streams].

    Attributes:
        target: Use of the granted cores that is aimed at.
        tolerance: Ratio of use and target, away from 1, that is left alone.
        down_window_s: The most that was desired within so long is kept.
        up_window_s: The least that was desired within so long is what may be added.
        up_share: Replicas added in `PERIOD_S`, at most, as a share of those running...
        up_replicas: ...or so many, whichever is more.
        down_share: Replicas removed in `PERIOD_S`, at most.
        cpu_cores: Of every replica, within the limits, reached in steps of `AutoscalingConfig.cpu_step_cores`; 0 leaves
            them as they are.
    """

    target: float | Array = 0.75
    tolerance: float | Array = 0.1
    down_window_s: float | Array = 300.0
    up_window_s: float | Array = 0.0
    up_share: float | Array = 1.0
    up_replicas: float | Array = 4.0
    down_share: float | Array = 1.0
    cpu_cores: float | Array = 0.0


PERIOD_S = 15.0


def horizontal_pod(
    config: AutoscalingConfig, limits: GrantLimits, settings: PodAutoscalerConfig | None = None
) -> Autoscaler:
    """The autoscaler; memory of a replica stays as it is. Default settings are those of Kubernetes."""
    settings = settings or PodAutoscalerConfig()

    def decide(_key: Array, memory: Array, state: ScalingState) -> tuple[Array, Grants]:
        cores = sized(config, settings, limits, state.grants)
        desired = desired_replicas(config, settings, state, cores)
        memory, replicas = remembering(config, settings, limits, state, memory, desired)
        return memory, state.grants._replace(cpu_cores=cores, replicas=replicas)

    return Autoscaler(remembering_nothing(config, settings), decide)


def remembering_nothing(
    config: AutoscalingConfig, settings: PodAutoscalerConfig
) -> Callable[[Grants], Array]:
    """How the memory [intervals, deployments, *streams] begins: the replicas there are were always desired."""
    num_intervals = intervals_of(config, settings)  # outside of any trace: settings may be arrays

    def init(grants: Grants) -> Array:
        return jnp.broadcast_to(grants.replicas[None], (num_intervals, *grants.replicas.shape))

    return init


def remembering(
    config: AutoscalingConfig,
    settings: PodAutoscalerConfig,
    limits: GrantLimits,
    state: ScalingState,
    memory: Array,
    desired: Array,
) -> tuple[Array, Array]:
    """The memory with what is desired now, and the replicas that follow: `stabilised`, one or more, in the limits."""
    memory = jnp.concatenate([memory[1:], desired[None]])
    replicas = stabilised(config, settings, state.grants.replicas, memory)
    low, high = (along(one, replicas) for one in (limits.min_replicas, limits.max_replicas))
    return memory, jnp.clip(replicas, jnp.maximum(low, 1.0), high)


def sized(
    config: AutoscalingConfig, settings: PodAutoscalerConfig, limits: GrantLimits, granted: Grants
) -> Array:
    """Cores [deployments, *streams] of every replica next: they move to the rule's size in steps, since replicas cannot
    be added as fast as a smaller size needs them."""
    least, most, size = (
        along(one, granted.cpu_cores)
        for one in (limits.min_cpu_cores, limits.max_cpu_cores, settings.cpu_cores)
    )
    step = jnp.clip(
        jnp.clip(size, least, most) - granted.cpu_cores, -config.cpu_step_cores, config.cpu_step_cores
    )
    return granted.cpu_cores + jnp.where(size > 0.0, step, 0.0)


def intervals_of(config: AutoscalingConfig, settings: PodAutoscalerConfig) -> int:
    """Intervals that the longest window reaches back, and this one."""
    longest_s = max(float(np.max(settings.down_window_s)), float(np.max(settings.up_window_s)))
    return int(longest_s / config.interval_s) + 1


def pod_rule(setting: ScalingSetting) -> PodAutoscalerConfig:
    """The settings of the rule that a bundle hands over."""
    target, cores = (jnp.asarray(setting.limit(name), jnp.float32) for name in ("target", "rule_cpu_cores"))
    return PodAutoscalerConfig(
        target=target, tolerance=setting.tolerance, down_window_s=setting.down_window_s, cpu_cores=cores
    )


def pod_places(setting: ScalingSetting) -> Callable[[AutoscalingConfig, GrantLimits, ScalingState], Array]:
    """What that rule decides, as goldens have it: [3, deployments, *streams] cores added to a replica, no GiB, replicas
    added."""

    def places_of(config: AutoscalingConfig, limits: GrantLimits, state: ScalingState) -> Array:
        rule, granted = pod_rule(setting), state.grants
        cores = sized(config, rule, limits, granted)
        added = desired_replicas(config, rule, state, cores) - granted.replicas
        return jnp.stack([cores - granted.cpu_cores, jnp.zeros_like(added), added])

    return places_of


def desired_replicas(
    config: AutoscalingConfig, settings: PodAutoscalerConfig, state: ScalingState, cores: Array
) -> Array:
    """Replicas [deployments, *streams] of so many cores by the metrics."""
    measured, current = known(config, state).measured, state.grants.replicas
    ready = jnp.clip(jnp.round(measured.ready), 1.0, jnp.maximum(current, 1.0))
    use = measured.cpu_cores_used / jnp.maximum(cores, 1e-6)
    ratio = use / along(settings.target, use)
    with_idle = ratio * ready / jnp.maximum(current, 1.0)
    unready = current > ready
    ratio = jnp.where(unready & (ratio > 1.0), with_idle, ratio)
    flipped = unready & (ratio < 1.0) & (use > along(settings.target, use))
    within = (jnp.abs(ratio - 1.0) <= along(settings.tolerance, use)) | flipped
    counted = jnp.where(unready & (use > along(settings.target, use)), current, ready)
    return jnp.where(within, current, jnp.ceil(ratio * counted - 1e-4))


def stabilised(
    config: AutoscalingConfig, settings: PodAutoscalerConfig, current: Array, desired: Array
) -> Array:
    """Replicas after windows and policies, of what was desired [intervals, deployments, *streams], latest last."""
    age_s = config.interval_s * jnp.arange(len(desired) - 1, -1, -1.0).reshape((-1,) + (1,) * current.ndim)

    def recent(window_s: float | Array) -> Array:
        return age_s <= along(window_s, current)[None] if jnp.ndim(window_s) else age_s <= window_s

    most = jnp.max(jnp.where(recent(settings.down_window_s), desired, -jnp.inf), axis=0)
    least = jnp.min(jnp.where(recent(settings.up_window_s), desired, jnp.inf), axis=0)
    wanted = jnp.where(current > most, most, jnp.where(current < least, least, current))
    periods = max(config.interval_s / PERIOD_S, 1.0)
    grown = current * (1.0 + along(settings.up_share, current)) ** periods
    highest = jnp.maximum(jnp.ceil(grown), current + along(settings.up_replicas, current) * np.floor(periods))
    lowest = jnp.floor(current * (1.0 - along(settings.down_share, current)) ** periods)
    return jnp.clip(wanted, lowest, highest)
