"""What a policy sees of an application: metrics that are known by now, never the system itself.

`local` is what a deployment's sidecar measures: its use, its trend, its grants, how users fare. `shared` is the state
of the others, seen by a central policy only; `identity` says which deployment it decides for.
"""

from typing import NamedTuple

import jax.numpy as jnp

from logs_schema.calendar import DAY_S
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import Grants, ScalingEvents, quantile_s
from twin.contracts import Array

LOCAL_FEATURES = (
    "cpu_use", "cpu_use_change", "memory_use", "replicas", "cpu_cores", "memory_gib", "rate_trend", "starting",
    "response", "failures", "gateway_response", "gateway_failures",
)  # fmt: skip
SHARED_FEATURES = ("mean_cpu_use", "largest_cpu_use", "time_share", "gateway_trend", "day_sine", "day_cosine")
TREND_INTERVALS = 4
"""Rates are compared with those of so many intervals before."""


class Seen(NamedTuple):
    """An observation; the seats are the deployments."""

    local: Array  # [features, deployments, *streams]
    shared: Array  # [features, deployments, *streams]
    identity: Array  # [deployments, deployments, *streams] one-hot


def observe(config: AutoscalingConfig, limits: GrantLimits, state: ScalingState) -> Seen:
    """What each deployment's policy sees."""
    now, before = known(config, state), known(config, state, TREND_INTERVALS)
    use = cpu_use(now, state.grants)
    local = jnp.stack(
        [
            use,
            use - cpu_use(before, state.grants),
            now.measured.memory_gib_used / jnp.maximum(state.grants.memory_gib, 1e-6),
            _within(state.grants.replicas, limits.min_replicas, limits.max_replicas),
            _within(state.grants.cpu_cores, limits.min_cpu_cores, limits.max_cpu_cores),
            _within(state.grants.memory_gib, limits.min_memory_gib, limits.max_memory_gib),
            _log_ratio(now.measured.rate_per_s, before.measured.rate_per_s),
            (state.grants.replicas - now.measured.ready) / jnp.maximum(state.grants.replicas, 1.0),
            _log_ratio(now.measured.response_s, jnp.asarray(config.slo_s)),
            _share(now.measured.num_failures, now.measured.rate_per_s * config.interval_s),
            _beside(
                _log_ratio(quantile_s(now.gateway.latency, config.slo_share), jnp.asarray(config.slo_s)), use
            ),
            _beside(_share(now.gateway.num_failures, now.gateway.rate_per_s * config.interval_s), use),
        ]
    )
    time_s = now.measured.rate_per_s * now.measured.response_s
    angle = 2.0 * jnp.pi * now.time_s / DAY_S
    shared = jnp.stack(
        [
            _beside(jnp.mean(use, axis=0), use),
            _beside(jnp.max(use, axis=0), use),
            time_s / jnp.maximum(jnp.sum(time_s, axis=0, keepdims=True), 1e-9),
            _beside(_log_ratio(now.gateway.rate_per_s, before.gateway.rate_per_s), use),
            _beside(jnp.sin(angle), use),
            _beside(jnp.cos(angle), use),
        ]
    )
    number = use.shape[0]
    one_hot = jnp.eye(number).reshape(number, number, *(1,) * (use.ndim - 1))
    return Seen(local, shared, jnp.broadcast_to(one_hot, (number, *use.shape)))


def observe_global(config: AutoscalingConfig, limits: GrantLimits, state: ScalingState) -> Array:
    """[features * deployments, *streams] what all deployments see of themselves."""
    local = observe(config, limits, state).local
    return local.reshape(-1, *local.shape[2:])


def cpu_use(events: ScalingEvents, grants: Grants) -> Array:
    """[deployments, *streams] cores used as a share of those granted now, were all replicas that are granted ready."""
    used = events.measured.cpu_cores_used * events.measured.ready
    return jnp.clip(used / jnp.maximum(grants.cpu_cores * jnp.maximum(grants.replicas, 1.0), 1e-6), 0.0, 4.0)


def _within(value: Array, low: Array, high: Array) -> Array:
    shape = (-1,) + (1,) * (value.ndim - 1)
    low, high = low.reshape(shape), high.reshape(shape)
    return (value - low) / jnp.maximum(high - low, 1e-6)


def _log_ratio(value: Array, other: Array) -> Array:
    return jnp.clip(jnp.log((value + 1e-4) / (other + 1e-4)), -4.0, 4.0)


def _share(part: Array, whole: Array) -> Array:
    return jnp.clip(part / jnp.maximum(whole, 1.0), 0.0, 1.0)


def _beside(value: Array, like: Array) -> Array:
    return jnp.broadcast_to(value[None], like.shape)
