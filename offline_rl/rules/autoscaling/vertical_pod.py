"""The rule of Kubernetes' VerticalPodAutoscaler: what a replica used, remembered as a decaying histogram.

Cores and memory are set to a high quantile of what was used, with a margin; they are changed only when they leave the
band between a low quantile and a higher one, so that replicas are not restarted for nothing. Replicas stay as many.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.rules.autoscaling.autoscaler import Autoscaler, along
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import Grants
from twin.contracts import Array

CORES = 0.01 * 1.1 ** np.arange(64)
"""Buckets of the histograms: cores, or GiB."""
HALF_LIFE_S = 24 * 3600.0
LOW, TARGET, HIGH = 0.5, 0.9, 0.95
MARGIN = 1.15


class UseHistograms(NamedTuple):
    """What replicas used; leaves [buckets, deployments, *streams]."""

    cpu: Array
    memory: Array


def vertical_pod(config: AutoscalingConfig, limits: GrantLimits) -> Autoscaler:
    """The autoscaler, at the recommender's default settings."""
    keeps = float(0.5 ** (config.interval_s / HALF_LIFE_S))

    def init(grants: Grants) -> UseHistograms:
        empty = jnp.zeros((len(CORES), *grants.replicas.shape))
        return UseHistograms(empty, empty)

    def decide(_key: Array, memory: UseHistograms, state: ScalingState) -> tuple[UseHistograms, Grants]:
        measured, grants = known(config, state).measured, state.grants
        memory = UseHistograms(
            keeps * memory.cpu + _one(measured.cpu_cores_used),
            keeps * memory.memory + _one(measured.memory_gib_used),
        )
        cores = _within_band(memory.cpu, grants.cpu_cores)
        gib = _within_band(memory.memory, grants.memory_gib)
        low = [along(one, cores) for one in (limits.min_cpu_cores, limits.min_memory_gib)]
        high = [along(one, cores) for one in (limits.max_cpu_cores, limits.max_memory_gib)]
        wanted = Grants(
            jnp.clip(cores, low[0], high[0]),
            jnp.clip(gib, low[1], high[1]),
            jnp.maximum(grants.replicas, 1.0),
        )
        return memory, wanted

    return Autoscaler(init, decide)


def _one(used: Array) -> Array:
    """A histogram of one sample."""
    edges = jnp.asarray(CORES, jnp.float32).reshape((-1,) + (1,) * used.ndim)
    place = jnp.minimum(jnp.sum((edges < used[None]).astype(jnp.int32), axis=0), len(CORES) - 1)
    return jnp.moveaxis(jax.nn.one_hot(place, len(CORES)), -1, 0)


def _within_band(histogram: Array, current: Array) -> Array:
    """The recommendation where what is granted lies outside the band around it."""
    below = jnp.cumsum(histogram, axis=0)

    def quantile(share: float) -> Array:
        place = jnp.sum((below < share * below[-1][None]).astype(jnp.int32), axis=0)
        return MARGIN * jnp.asarray(CORES, jnp.float32)[jnp.minimum(place, len(CORES) - 1)]

    outside = (current < quantile(LOW)) | (current > quantile(HIGH))
    return jnp.where(outside, quantile(TARGET), current)
