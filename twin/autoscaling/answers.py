"""The twin of an application as a Response: learned laws under learned load, queues carried from interval to interval.

A stream is simulated with one member of the ensemble from beginning to end, so that what members disagree about shows
between streams. Within an interval time passes in steps, in which replicas that were ordered become ready. Calls and
their work scatter from interval to interval as counts and sums of independent calls do: a rule that follows the use of
cores follows that scatter too.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.calendar import DAY_S
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.laws import MOST_RHO, Laws, histogram, law_s, tail_features
from twin.autoscaling.problem import ScalingAction, rescaled
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import DeploymentMetrics, GatewayMetrics, Grants, ScalingEvents
from twin.contracts import Array, Outcome, PyTree, Response, Streams

NUM_STEPS = 3
RESTARTING, RESTARTING_S = 0.5, 10.0
"""Share of the replicas that restart within so many seconds in which they need more memory than they have."""


class TwinApplicationState(NamedTuple):
    """The hidden state; leaves [deployments, *streams] unless said otherwise."""

    queue: Array  # calls that wait beyond those of the law, in all
    ready: Array
    young: Array  # replicas that are cold: each counts 1 when it becomes ready, and less and less
    starting: Array  # [num_starts, deployments, *streams] replicas that are ready after so many steps
    member: Array  # [*streams]
    row: Array  # [*streams]
    left: Array  # [*streams]


class StepMetrics(NamedTuple):
    """What a step of an interval was like."""

    measured: DeploymentMetrics
    gateway: GatewayMetrics


class IntervalChance(NamedTuple):
    """Factors of an interval that nothing explains; leaves [deployments, *streams] unless said otherwise."""

    time: Array  # of the own time
    rate: Array  # of the calls
    work: Array  # of the cores used
    tail: Array  # [*streams] of the 95 % quantile over the mean, from end to end


def twin_response(
    laws: Laws,
    config: AutoscalingConfig,
    limits: GrantLimits,
    rates: np.ndarray,
    length: int,
    grants: Grants,
    *,
    starts: np.ndarray | None = None,
    member: int | None = None,
) -> Response:
    """How the twin answers.

    Args:
        laws: Leaves [members, ...].
        config: Interval and steps of decisions.
        limits: Of the grants.
        rates: [rows] requests a second, an interval each, from midnight on.
        length: Intervals of an episode.
        grants: In force at the beginning, leaves [deployments].
        starts: [*streams] first rows of the episodes; drawn if not given.
        member: Which member answers; streams take turns if not given.
    """
    starts_kept = num_starts(laws, config.interval_s)
    laws = jax.tree.map(jnp.asarray, laws)
    table, num_members = jnp.asarray(rates, jnp.float32), laws.work_s.shape[0]
    dt_s = config.interval_s / NUM_STEPS

    def one(
        key: Array, private: TwinApplicationState, granted: Grants
    ) -> tuple[TwinApplicationState, ScalingEvents]:
        mine = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[private.member], -1, 0), laws)
        asked = table[private.row % len(table)]
        by_chance = _chance(key, mine, asked, config.interval_s)

        def step(private: TwinApplicationState, _: None) -> tuple[TwinApplicationState, StepMetrics]:
            return _step(mine, private, granted, asked, by_chance, dt_s)

        private, parts = jax.lax.scan(step, private, None, length=NUM_STEPS)
        time_s = ((private.row + 1) * config.interval_s) % DAY_S
        measured = _mean(parts.measured, ("num_failures",))
        gateway = _mean(parts.gateway, ("num_failures", "latency"))
        events = ScalingEvents(granted, measured, gateway, time_s)
        return private._replace(row=private.row + 1, left=private.left - 1), events

    def init(key: Array, streams: Streams) -> tuple[PyTree, Outcome]:
        key_start, key_first = jax.random.split(key)
        shape = (laws.work_s.shape[1], *streams)
        granted = jax.tree.map(
            lambda leaf: jnp.broadcast_to(jnp.asarray(leaf).reshape((-1,) + (1,) * len(streams)), shape),
            grants,
        )
        if starts is None:
            row = jax.random.randint(key_start, streams, 0, max(len(rates) - length - 1, 1))
        else:
            row = jnp.broadcast_to(jnp.asarray(starts, jnp.int32), streams)
        size = int(np.prod(streams)) if streams else 1
        turns = (jnp.arange(size) % num_members).reshape(streams)
        chosen = turns if member is None else jnp.full(streams, member)
        starting = jnp.zeros((starts_kept, *shape))
        none, left = jnp.zeros(shape), jnp.full(streams, length + 1)
        private = TwinApplicationState(none, granted.replicas, none, starting, chosen, row, left)
        private, events = one(key_first, private, granted)
        no = jnp.zeros(streams, bool)
        return private, Outcome(jnp.zeros(streams), no, no, events)

    def advance(
        key: Array, private: TwinApplicationState, state: ScalingState, action: ScalingAction
    ) -> tuple[PyTree, Outcome]:
        granted = rescaled(config, limits, state.grants, action)
        resized = jnp.abs(granted.cpu_cores - state.grants.cpu_cores) > 1e-6  # others in their place
        private = private._replace(young=jnp.where(resized, private.ready, private.young))
        private, events = one(key, private, granted)
        no = jnp.zeros(private.left.shape, bool)
        elapsed_s = jnp.full(private.left.shape, config.interval_s)
        return private, Outcome(elapsed_s, no, private.left <= 0, events)

    return Response(init, advance, lambda _private, state: state)


def num_starts(laws: Laws, interval_s: float) -> int:
    """Steps that the slowest replica takes to start, rounded up: so many are kept in order."""
    return int(float(np.max(laws.start_up_s)) / (interval_s / NUM_STEPS)) + 1


def _chance(key: Array, laws: Laws, asked: Array, interval_s: float) -> IntervalChance:
    """Drawn for an interval in which `asked` [*streams] requests come a second. Means of calls and work are 1, medians
    of times."""
    key, key_tail = jax.random.split(key)
    calls = jnp.maximum(asked[None] * laws.calls_per_request * interval_s, 1e-6)
    time, rate, work = jax.random.normal(key, (3, *calls.shape))
    rate, work = (
        jnp.exp(jnp.sqrt(variance) * drawn - 0.5 * variance)
        for variance, drawn in (
            (jnp.log1p(laws.rate_scatter / calls), rate),
            (jnp.log1p(laws.work_scatter / calls), work),
        )
    )
    tail = jnp.exp(laws.tail_spread[0] * jax.random.normal(key_tail, asked.shape))
    return IntervalChance(jnp.exp(laws.spread * time), rate, work, tail)


def _step(
    laws: Laws,
    private: TwinApplicationState,
    grants: Grants,
    asked: Array,
    by_chance: IntervalChance,
    dt_s: float,
) -> tuple[TwinApplicationState, StepMetrics]:
    """A step of an interval, with laws of leaves [deployments, *streams]. Replicas whose calls need more memory than is
    granted restart, half of them in 10 s, and their calls are lost."""
    before = jnp.maximum(private.ready, 1e-6)
    private = _replicas(laws, private, grants, dt_s)
    young = private.young * jnp.exp(-dt_s / laws.cold_s) * jnp.minimum(private.ready / before, 1.0)
    young = young + jnp.maximum(private.ready - before, 0.0)
    on = (grants.replicas > 0.0).astype(jnp.float32)
    rate = asked[None] * laws.calls_per_request * by_chance.rate * on
    cores = jnp.minimum(grants.cpu_cores, laws.most_cores)
    ready = jnp.maximum(private.ready, 0.05)
    cold = 1.0 + laws.cold_work * jnp.clip(young / ready, 0.0, 1.0)
    work_s = laws.work_s * cold
    capacity = ready * cores / jnp.maximum(work_s, 1e-9)
    waiting = private.queue + dt_s * jnp.maximum(rate - MOST_RHO * capacity, 0.0)
    spare = dt_s * jnp.maximum(MOST_RHO * capacity - rate, 0.0)
    queue = jnp.maximum(waiting - spare, 0.0)
    refused = jnp.maximum(queue - laws.connections * ready, 0.0) * on
    queue = (queue - refused) * on
    done = jnp.maximum(rate + (private.queue - queue - refused) / dt_s, 0.0)
    rho = rate / capacity
    log_floor = laws.log_floor + jnp.log(cold)
    own = law_s(log_floor, laws.gamma, laws.log_beta, laws.log_power, rho, cores) * by_chance.time
    own = own + 0.5 * (private.queue + queue) / capacity
    number = jnp.minimum(done * own / ready, laws.connections)
    memory = laws.memory_gib + laws.memory_per_call_gib * number
    share = 1.0 - (1.0 - RESTARTING) ** (dt_s / RESTARTING_S)
    restarting = share * (memory + laws.memory_margin_gib > grants.memory_gib)
    refused = refused + restarting * jnp.minimum(number * ready, dt_s * done)
    time_s, tail_s = laws.weight * own * on, laws.tail_weight * own * on
    mean_s = jnp.sum(time_s, axis=0)
    ratio = jnp.exp(jnp.clip(jnp.sum(laws.tail * tail_features(time_s, tail_s, rho), axis=0), 0.3, 1.4))
    ratio = ratio * by_chance.tail
    failing = jnp.clip(refused / jnp.maximum(dt_s * rate, 1e-6), 0.0, 1.0)
    survives = jnp.exp(jnp.sum(laws.calls_per_request * on * jnp.log1p(-0.999 * failing), axis=0))
    requests = asked * dt_s
    used = jnp.minimum(done * work_s * by_chance.work / ready, grants.cpu_cores)
    measured = DeploymentMetrics(rate, used, memory, private.ready, own, refused)
    gateway = GatewayMetrics(
        asked, mean_s, requests * (1.0 - survives), histogram(mean_s, ratio * mean_s, requests * survives)
    )
    left = private._replace(queue=queue, young=young, ready=private.ready * (1.0 - restarting))
    return left, StepMetrics(measured, gateway)


def _replicas(laws: Laws, private: TwinApplicationState, grants: Grants, dt_s: float) -> TwinApplicationState:
    """Replicas after orders, starts and removals; those that are starting are removed first. Of a start that takes no
    whole number of steps, a share is ready one step before the rest: on the mean as late as the start takes."""
    ready = private.ready + private.starting[0]
    starting = jnp.concatenate([private.starting[1:], jnp.zeros_like(private.starting[:1])])
    coming = jnp.sum(starting, axis=0)
    fewer = jnp.maximum(ready + coming - grants.replicas, 0.0)
    withdrawn = jnp.minimum(fewer, coming)
    starting = starting * (1.0 - withdrawn / jnp.maximum(coming, 1e-6))[None]
    ready = ready - (fewer - withdrawn)
    more = jnp.maximum(grants.replicas - ready - jnp.sum(starting, axis=0), 0.0)
    steps = laws.start_up_s / dt_s
    whole = jnp.floor(steps)
    after = jnp.arange(len(starting) + 1).reshape((-1,) + (1,) * more.ndim)
    share = jnp.where(after == whole[None], 1.0 - (steps - whole)[None], 0.0)
    share = share + jnp.where(after == whole[None] + 1.0, (steps - whole)[None], 0.0)
    ready = ready + share[0] * more
    starting = starting + share[1:] * more[None]
    return private._replace(ready=ready, starting=starting)


def _mean(parts: PyTree, summed: tuple[str, ...]) -> PyTree:
    """Parts of an interval [steps, ...] as one: means, and sums of what is counted."""
    return type(parts)(
        *(
            jnp.sum(leaf, axis=0) if name in summed else jnp.mean(leaf, axis=0)
            for name, leaf in zip(parts._fields, parts, strict=True)
        )
    )
