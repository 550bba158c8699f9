"""The logged behaviour: what it observed, decided and brought about, interval by interval."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.calendar import DAY_S
from twin.autoscaling.config import AutoscalingConfig
from twin.autoscaling.laws import histogram
from twin.autoscaling.problem import ScalingAction, action_towards
from twin.autoscaling.scaling_log import ScalingLog
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import DeploymentMetrics, GatewayMetrics, Grants, ScalingEvents
from twin.contracts import Array


class LoggedIntervals(NamedTuple):
    """Intervals with the decision at the beginning of each; leaves [..., deployments, intervals]."""

    state: ScalingState
    action: ScalingAction  # in steps, as far as it went
    events: ScalingEvents  # of the interval that the decision began
    row: np.ndarray  # [intervals] of that interval in the log


def logged_intervals(config: AutoscalingConfig, log: ScalingLog) -> LoggedIntervals:
    """All intervals before which the log has no gap as long as the state remembers."""
    events = logged_events(log)
    leaves = jax.tree.leaves(events)
    whole = np.all([np.isfinite(leaf).reshape(-1, leaf.shape[-1]).all(axis=0) for leaf in leaves], axis=0)
    first = np.convolve(whole, np.ones(config.window + 1), mode="valid") == config.window + 1
    moments = np.flatnonzero(first) + config.window
    ages = np.arange(config.window)[:, None] - config.window + moments[None]

    def window(leaf: np.ndarray) -> Array:
        return jnp.moveaxis(jnp.asarray(leaf[..., ages], jnp.float32), -2, 0)

    past = jax.tree.map(window, events)
    before, begun = (
        jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[..., at], jnp.float32), tree)
        for tree, at in ((events.grants, moments - 1), (events, moments))
    )
    action = action_towards(config, before, begun.grants)
    return LoggedIntervals(ScalingState(before, past), action, begun, moments)


def logged_events(log: ScalingLog) -> ScalingEvents:
    """The log as events, leaves [..., intervals] NumPy."""
    column: dict[str, Any] = {name: values.T for name, values in log.columns.items()}
    gateway: dict[str, Any] = log.gateway
    zeros = np.zeros_like(column["num_replicas"])
    failures: Any = np.nan_to_num(gateway["num_failures"], nan=0.0)
    requests = np.maximum(gateway["request_rate_per_s"] * log.interval_s - failures, 0.0)
    tail_s = gateway["response_p95_s"]
    tail_s = np.where(np.isfinite(tail_s), tail_s, 3.0 * gateway["response_s"])  # of one exponential time
    latency: Any = jax.jit(histogram)(
        *(jnp.asarray(one, jnp.float32) for one in (gateway["response_s"], tail_s, requests))
    )
    latency = np.where(requests == 0.0, 0.0, latency)  # without requests there is no wait
    end_s: Any = (log.time_s + log.interval_s) % DAY_S
    return ScalingEvents(
        Grants(column["cpu_cores"], _known(column["memory_gib"], zeros), column["num_replicas"]),
        DeploymentMetrics(
            column["request_rate_per_s"],
            column["cpu_cores_used"],
            _known(column["memory_gib_used"], zeros),
            column["ready_replicas"],
            column["response_s"],
            _known(column["num_failures"], zeros),
        ),
        GatewayMetrics(gateway["request_rate_per_s"], gateway["response_s"], failures, latency),
        end_s,
    )


def _known(values: np.ndarray, otherwise: np.ndarray) -> Any:
    """Values [deployments, intervals], or what stands for them where a log has none of a deployment."""
    return np.where(np.isnan(values).all(axis=1, keepdims=True), otherwise, values)
