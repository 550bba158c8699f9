"""What an interval was worth to a deployment.

Paper DRPC, equations 1 to 3, with rt the response time, u the use of a resource and U the ideal use:

    R_qos = 1 where rt <= RT_max, else exp(-((rt - RT_max) / RT_max)^2)
    R_util = 1 + mean |U - u|^3            r = R_qos / R_util

R_util is 1 at the ideal use and grows away from it, on either side: it is a price, and the printed quotient is what
divides by it. `paper_reward(..., quotient=False)` multiplies with `2 - R_util` instead, which is 1 at the ideal, too,
and falls by as much as the price grows: the same to first order, steeper far away.

`cost_under_slo` is what operators count: cores (and memory) granted, and a price where the objective is not kept,
charged to those whose calls take long: the share of the end-to-end time that a deployment's calls take.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.types import Grants, ScalingEvents, quantile_s
from twin.contracts import Array


class Earned(NamedTuple):
    """What came of a decision; leaves [deployments, *streams], what users saw is the same for all of them."""

    cpu_cores_used: Array
    memory_gib_used: Array
    response_s: Array  # of a call
    time_share: Array  # of the time that a request's calls take in all, that of this deployment
    gateway_response_s: Array
    gateway_quantile_s: Array  # at `AutoscalingConfig.slo_share`
    failed_share: Array  # of the requests of users


Reward = Callable[[AutoscalingConfig, GrantLimits, Grants, Earned], Array]
"""(config, limits, grants, outcome) -> worth [..., deployments, *streams]."""


def earned(config: AutoscalingConfig, events: ScalingEvents) -> Earned:
    """The outcome of the decisions of an interval, from its events."""
    measured, gateway = events.measured, events.gateway
    requests = jnp.maximum(gateway.rate_per_s * config.interval_s, 1e-6)
    called = measured.rate_per_s > 0.0  # what is not called has no response time in a log
    time_s = jnp.where(called, measured.rate_per_s * measured.response_s, 0.0)

    def shared(value: Array) -> Array:
        return jnp.broadcast_to(value[None], measured.ready.shape)

    return Earned(
        measured.cpu_cores_used,
        measured.memory_gib_used,
        measured.response_s,
        time_s / jnp.maximum(jnp.sum(time_s, axis=0, keepdims=True), 1e-9),
        shared(gateway.response_s),
        shared(quantile_s(gateway.latency, config.slo_share)),
        shared(jnp.clip(gateway.num_failures / requests, 0.0, 1.0)),
    )


def service_quality(response_s: Array, most_s: float) -> Array:
    """R_qos of equation 1."""
    over = jnp.maximum(response_s - most_s, 0.0) / most_s
    return jnp.exp(-(over**2))


def utilisation_price(used: Array, ideal: Array) -> Array:
    """R_util of equation 2, of uses [resources, ...] and ideal uses [resources], as shares of what is granted."""
    shape = (-1,) + (1,) * (used.ndim - 1)
    return 1.0 + jnp.mean(jnp.abs(ideal.reshape(shape) - used) ** 3, axis=0)


IDEAL_CPU, IDEAL_MEMORY = 0.6, 0.75
"""Uses, as shares of what is granted, at which R_util is least."""


def paper_reward(quotient: bool = True) -> Reward:
    """Equation 3, for every deployment with its own use and the response time of the users."""

    def reward(config: AutoscalingConfig, _limits: GrantLimits, grants: Grants, outcome: Earned) -> Array:
        used = jnp.stack(
            [
                outcome.cpu_cores_used / jnp.maximum(grants.cpu_cores, 1e-6),
                outcome.memory_gib_used / jnp.maximum(grants.memory_gib, 1e-6),
            ]
        )
        quality = service_quality(outcome.gateway_response_s, config.slo_s)
        price = utilisation_price(jnp.clip(used, 0.0, 1.0), jnp.asarray([IDEAL_CPU, IDEAL_MEMORY]))
        return quality / price if quotient else quality * (2.0 - price)

    return reward


CORE_GIB = 8.0
"""GiB of memory that cost as much as a core."""


def violation(quantile_s: Array, slo_s: float) -> Array:
    """By how much quantiles of the response time [...] miss the objective: 1 for e times it, 3 at most."""
    return jnp.clip(jnp.log(jnp.maximum(quantile_s, 1e-6) / slo_s), 0.0, 3.0)


def granted_cores(grants: Grants) -> Array:
    """What grants cost, in cores; of the shape of their leaves."""
    return grants.replicas * (grants.cpu_cores + grants.memory_gib / CORE_GIB)


def cost_under_slo() -> Reward:
    """Minus the cores granted, minus a price (`AutoscalingConfig.violation_cores`) where the objective is not kept; in
    cores."""

    def reward(config: AutoscalingConfig, _limits: GrantLimits, grants: Grants, outcome: Earned) -> Array:
        price = violation(outcome.gateway_quantile_s, config.slo_s) + 10.0 * outcome.failed_share
        return -granted_cores(grants) - config.violation_cores * price * outcome.time_share

    return reward
