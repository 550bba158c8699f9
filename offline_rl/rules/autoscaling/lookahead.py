"""Model-predictive scaling: the cheapest grants with which the twin keeps the objective, a few intervals ahead.

The load is forecast from what is known by now, the twin's daily profile, and a quantile of how far rates moved in the
log over as many intervals. Then

    minimise cost(grants)   subject to   quantile of the response time <= margin * objective

is solved through its Lagrangian: for a price of response time every deployment chooses its best candidate (replicas and
cores) alone, and the price is found by bisection. Where the objective is out of reach, or costs more than to miss it a
little, the price stays at what a violation costs: `violation_cores` for a quantile e times the objective. What was
wanted within a window is kept, against flapping.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.rules.autoscaling.autoscaler import Autoscaler, along
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.laws import Laws, law_s, tail_features
from twin.autoscaling.rewards import granted_cores
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import Grants
from twin.autoscaling.workload import BIN_S, LoadModel, known_profile
from twin.contracts import Array

BISECTIONS = 14
LARGEST_RHO = 0.9
MEMORY_MARGIN = 1.2


class LookaheadConfig(NamedTuple):
    """Settings; numbers or arrays [*streams].

    Attributes:
        margin: The objective is aimed at times this.
        quantile: Of how far rates moved, that is provided for.
        keep: Intervals whose largest plan is kept.
        horizon: Intervals looked ahead.
    """

    margin: float | Array = 0.8
    quantile: float = 0.9
    keep: int = 6
    horizon: int = 3


class Candidates(NamedTuple):
    """Grants that a deployment chooses among; leaves [candidates, deployments]."""

    cpu_cores: Array
    replicas: Array


def lookahead(
    config: AutoscalingConfig,
    limits: GrantLimits,
    laws: Laws,
    load: LoadModel,
    settings: LookaheadConfig | None = None,
) -> Autoscaler:
    """The autoscaler.

    Args:
        config: When decisions are taken, and the objective.
        limits: Of the grants.
        laws: Of the twin, leaves [members, deployments] in the order of the limits; the mean of the members is used.
        load: The twin's workload.
        settings: How to look ahead.
    """
    settings = settings or LookaheadConfig()
    mean = jax.tree.map(lambda leaf: jnp.mean(jnp.asarray(leaf), axis=0), laws)
    candidates = _candidates(config, limits, mean)
    moved = _moved(load, settings, config.delay_intervals + settings.horizon)
    profile = jnp.asarray(known_profile(load), jnp.float32)

    def init(grants: Grants) -> Array:
        return jnp.broadcast_to(grants.replicas[None], (settings.keep, *grants.replicas.shape))

    def decide(_key: Array, memory: Array, state: ScalingState) -> tuple[Array, Grants]:
        now = known(config, state)
        place = (now.time_s / BIN_S - 0.5) % len(profile)
        ahead = (settings.horizon + config.delay_intervals) * config.interval_s / BIN_S
        rise = jnp.maximum(_at(profile, place + ahead) - _at(profile, place), 0.0)
        grows = jnp.exp(rise + moved)
        calls = now.measured.rate_per_s / jnp.maximum(now.gateway.rate_per_s, 1e-6)[None]
        usual = along(mean.calls_per_request, calls)
        rate = jnp.maximum(now.measured.rate_per_s, 0.2 * usual * now.gateway.rate_per_s[None])
        rate = rate * grows[None]
        cores, replicas = plan(config, mean, candidates, rate, calls / usual, settings)
        memory = jnp.concatenate([memory[1:], replicas[None]])
        gib = along(mean.memory_gib, replicas) + along(mean.memory_per_call_gib * mean.connections, replicas)
        gib = jnp.minimum(MEMORY_MARGIN * gib, along(limits.max_memory_gib, replicas))
        gib = jnp.maximum(gib, along(limits.min_memory_gib, replicas))
        return memory, Grants(cores, gib, jnp.max(memory, axis=0))

    return Autoscaler(init, decide)


def plan(
    config: AutoscalingConfig,
    laws: Laws,
    candidates: Candidates,
    rate: Array,
    mix: Array,
    settings: LookaheadConfig,
) -> tuple[Array, Array]:
    """Cores and replicas [deployments, *streams] that are cheapest for a load.

    Args:
        config: With the objective, and what a violation costs.
        laws: Of the twin, leaves [deployments].
        candidates: Grants to choose among.
        rate: [deployments, *streams] calls a second.
        mix: [deployments, *streams] calls per request now, as a multiple of those of the log.
        settings: How much of the objective is aimed at.
    """
    streams = rate.shape[1:]
    cores, replicas = (along(leaf, jnp.zeros((*leaf.shape, *streams))) for leaf in candidates)
    mine = jax.tree.map(lambda leaf: along(leaf, jnp.zeros((*leaf.shape, *streams))), laws)
    used = jnp.minimum(cores, mine.most_cores[None])
    rho = (rate * mine.work_s)[None] / (replicas * used)
    own = law_s(mine.log_floor[None], mine.gamma[None], mine.log_beta[None], mine.log_power[None], rho, used)
    time_s, tail_s = ((mix * one)[None] * own for one in (mine.weight, mine.tail_weight))
    cost = granted_cores(Grants(cores, mine.memory_gib[None], replicas)) + 1e4 * jnp.maximum(
        rho - LARGEST_RHO, 0.0
    )
    goal = jnp.log(settings.margin * config.slo_s)

    def chosen(log_price: Array) -> Array:
        return jnp.argmin(cost + jnp.exp(log_price)[None, None] * time_s, axis=0)

    def take(leaf: Array, index: Array) -> Array:
        return jnp.take_along_axis(jnp.broadcast_to(leaf, cost.shape), index[None], axis=0)[0]

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        index = chosen(middle)
        here, there, crowded = (take(one, index) for one in (time_s, tail_s, rho))
        ratio = jnp.clip(jnp.sum(mine.tail * tail_features(here, there, crowded), axis=0), 0.3, 1.4)
        total_s = jnp.sum(here, axis=0)
        slow = (jnp.log(total_s) + ratio > goal) & (jnp.exp(middle) * total_s < config.violation_cores)
        return jnp.where(slow, middle, low), jnp.where(slow, high, middle)

    ends = jnp.full(streams, -3.0), jnp.full(streams, 12.0)
    _, price = jax.lax.fori_loop(0, BISECTIONS, halve, ends)
    index = chosen(price)
    return take(cores, index), take(replicas, index)


def _candidates(config: AutoscalingConfig, limits: GrantLimits, laws: Laws) -> Candidates:
    """All numbers of replicas with all steps of cores that the log has covered."""
    most = float(jnp.max(jnp.minimum(limits.max_cpu_cores, laws.most_cores)))
    least = float(jnp.min(limits.min_cpu_cores))
    steps = np.arange(least, most + 1e-6, config.cpu_step_cores)
    numbers = np.arange(1.0, float(jnp.max(limits.max_replicas)) + 1.0)
    cores, replicas = (one.reshape(-1, 1) for one in np.meshgrid(steps, numbers))
    high = jnp.minimum(limits.max_cpu_cores, laws.most_cores)
    return Candidates(
        jnp.clip(jnp.asarray(cores, jnp.float32), limits.min_cpu_cores[None], high[None]),
        jnp.minimum(jnp.asarray(replicas, jnp.float32), limits.max_replicas[None]),
    )


def _moved(load: LoadModel, settings: LookaheadConfig, intervals: int) -> float:
    """Quantile of how far the logarithm of the rate moved from its profile within so many intervals, where
    requests came before and after."""
    pieces = load.deviation
    step = min(intervals, pieces.shape[1] - 1)
    before, after = pieces[:, : pieces.shape[1] - step], pieces[:, step:]
    came = np.isfinite(before) & np.isfinite(after)
    return float(np.quantile(after[came] - before[came], settings.quantile)) if step and came.any() else 0.0


def _at(profile: Array, place: Array) -> Array:
    """A profile between its bins, periodic."""
    below = jnp.floor(place).astype(jnp.int32) % len(profile)
    share = place - jnp.floor(place)
    return (1.0 - share) * profile[below] + share * profile[(below + 1) % len(profile)]
