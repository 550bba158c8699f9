"""The rule of Kubernetes' VerticalPodAutoscaler: what a replica used, remembered as decaying histograms.

Cores are set to a high quantile of what was used in the intervals, memory to that of the peaks of days, with a margin
and not below the recommender's least; they are changed only when they leave the band between a low quantile and a
higher one, so that replicas are not restarted for nothing. Replicas stay as many.

What differs: a peak is the largest mean over an interval and all replicas, as more is not measured. Restarts for want
of memory are not measured either, so the recommender's answer to them, a sample of 1.2 times the memory or 100 MiB
more, is left out; so is the wider band of a short history.
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

BUCKETS = 0.01 * 1.1 ** np.arange(112)
"""Upper ends of the buckets of the histograms: cores, or GiB."""
HALF_LIFE_S = 24 * 3600.0
PEAK_S = 24 * 3600.0
"""Of memory, the peak of so long is one sample."""
LOW, TARGET, HIGH = 0.5, 0.9, 0.95
MARGIN = 1.15
LEAST_CORES, LEAST_GIB = 0.025, 250 / 1024
"""Nothing less is recommended for a pod (`pod-recommendation-min-cpu-millicores`, `-min-memory-mb`)."""


class UseHistograms(NamedTuple):
    """What replicas used; histograms [buckets, deployments, *streams]."""

    cpu: Array
    memory: Array  # of the peaks of the days before
    peak_gib: Array  # [deployments, *streams] of this day so far
    intervals: Array  # [] of this day so far


def vertical_pod(config: AutoscalingConfig, limits: GrantLimits) -> Autoscaler:
    """The autoscaler, at the recommender's default settings."""
    keeps = float(0.5 ** (config.interval_s / HALF_LIFE_S))
    keeps_day = float(0.5 ** (PEAK_S / HALF_LIFE_S))
    day = max(round(PEAK_S / config.interval_s), 1)

    def init(grants: Grants) -> UseHistograms:
        empty = jnp.zeros((len(BUCKETS), *grants.replicas.shape))
        return UseHistograms(empty, empty, jnp.zeros(grants.replicas.shape), jnp.int32(0))

    def remembered(memory: UseHistograms, cores: Array, gib: Array) -> UseHistograms:
        begins = memory.intervals == day
        past = jnp.where(begins, keeps_day * (memory.memory + _one(memory.peak_gib)), memory.memory)
        return UseHistograms(
            keeps * memory.cpu + _one(cores),
            past,
            jnp.where(begins, gib, jnp.maximum(memory.peak_gib, gib)),
            jnp.where(begins, 1, memory.intervals + 1),
        )

    def decide(_key: Array, memory: UseHistograms, state: ScalingState) -> tuple[UseHistograms, Grants]:
        measured, grants = known(config, state).measured, state.grants
        memory = remembered(memory, measured.cpu_cores_used, measured.memory_gib_used)
        cores = _within_band(memory.cpu, grants.cpu_cores, LEAST_CORES)
        gib = _within_band(memory.memory + _one(memory.peak_gib), grants.memory_gib, LEAST_GIB)
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
    edges = jnp.asarray(BUCKETS, jnp.float32).reshape((-1,) + (1,) * used.ndim)
    place = jnp.minimum(jnp.sum((edges < used[None]).astype(jnp.int32), axis=0), len(BUCKETS) - 1)
    return jnp.moveaxis(jax.nn.one_hot(place, len(BUCKETS)), -1, 0)


def _within_band(histogram: Array, current: Array, least: float) -> Array:
    """The recommendation, `least` or more, where what is granted lies outside the band around it."""
    below = jnp.cumsum(histogram, axis=0)

    def quantile(share: float) -> Array:
        place = jnp.sum((below < share * below[-1][None]).astype(jnp.int32), axis=0)
        used = jnp.asarray(BUCKETS, jnp.float32)[jnp.minimum(place, len(BUCKETS) - 1)]
        return jnp.maximum(MARGIN * used, least)

    outside = (current < quantile(LOW)) | (current > quantile(HIGH))
    return jnp.where(outside, quantile(TARGET), current)
