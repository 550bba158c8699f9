"""What an application of microservices is seen as: what its deployments are granted, and what monitoring measures.

A *deployment* runs one service as a number of equal replicas. The *gateway* is where users meet the application: its
figures are from end to end. All times are in seconds, cores and GiB are per replica.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array

LATENCY_S = np.geomspace(0.002, 20.0, 41)
"""Upper ends of the buckets of a latency histogram; one more bucket holds what is slower."""
NUM_BUCKETS = len(LATENCY_S) + 1


class Grants(NamedTuple):
    """What deployments are granted; leaves [deployments, *streams]."""

    cpu_cores: Array  # per replica
    memory_gib: Array  # per replica
    replicas: Array  # float32 whole numbers


class DeploymentMetrics(NamedTuple):
    """Means over one interval, by deployment; leaves [deployments, *streams]."""

    rate_per_s: Array  # calls that arrived
    cpu_cores_used: Array  # per replica that is ready
    memory_gib_used: Array  # per replica that is ready
    ready: Array  # replicas that take calls
    response_s: Array  # of a call, without what it calls itself
    num_failures: Array  # calls refused


class GatewayMetrics(NamedTuple):
    """What users saw in one interval; leaves [*streams], the histogram [buckets, *streams]."""

    rate_per_s: Array
    response_s: Array  # mean over requests that were answered in time
    num_failures: Array  # requests refused on their way, or given up
    latency: Array  # requests answered, by bucket of `LATENCY_S`


class ScalingEvents(NamedTuple):
    """What a system reveals after an interval."""

    grants: Grants  # in force when the interval ended
    measured: DeploymentMetrics
    gateway: GatewayMetrics
    time_s: Array  # [*streams] since midnight, at the end of the interval


def quantile_s(latency: Array, share: float | Array) -> Array:
    """Quantile [*streams] of latency histograms [buckets, *streams]; the last edge where it lies beyond it.

    Within a bucket the logarithm of the latency is taken to be uniform. Without requests it is 0, and of an unknown
    histogram NaN.
    """
    total = jnp.cumsum(latency, axis=0)
    wanted = share * total[-1]
    index = jnp.minimum(jnp.sum((total < wanted[None]).astype(jnp.int32), axis=0), NUM_BUCKETS - 1)
    upper = jnp.take_along_axis(total, index[None], axis=0)[0]
    inside = jnp.take_along_axis(latency, index[None], axis=0)[0]
    place = 1.0 - (upper - wanted) / jnp.maximum(inside, 1e-9)
    edges = jnp.log(jnp.asarray(LATENCY_S, jnp.float32))
    step = edges[1] - edges[0]
    log_s = jnp.minimum(edges[0] + step * (index - 1 + place), edges[-1])
    return jnp.where(total[-1] <= 0.0, 0.0, jnp.exp(log_s))


def kept_objective(latency: Array, num_failures: Array, share: float, within_s: float) -> Array:
    """Whether `share` of the requests sent were answered within a time; [*streams] of histograms [buckets, *streams] of
    those answered. Requests that failed were not; where none was sent, the objective is kept."""
    answered = jnp.sum(latency, axis=0)
    of_answered = share * (answered + jnp.maximum(num_failures, 0.0)) / jnp.maximum(answered, 1e-9)
    return (of_answered <= 1.0) & (quantile_s(latency, jnp.minimum(of_answered, 1.0)) <= within_s)
