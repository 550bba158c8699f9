"""What the reference sees: every node in full, the tables of the day, and what is hidden in the system at this moment.

It is not deployable. In addition to the observations of policies its inputs are links, speeds, affinities, each agent's
acceptance probability, the times at which cores become free given the runs already drawn, and the hidden periods
(`evaluation.simulator.revealing`). Values that are not drawn yet are not available: the variation of the next run, the
noise of links. Every node is described by the same numbers, so one small network scores any number of them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.arrivals import declared_run_s, needed
from evaluation.simulator.conditions import CROSS_SITE, WAN, DayConditions
from evaluation.simulator.failures import next_down_s, way_s
from evaluation.simulator.names import Names
from evaluation.simulator.options import PROCESSOR_SHARING
from evaluation.simulator.revealing import Known, Revealed
from evaluation.simulator.unfolding import unseated
from evaluation.simulator.world import CALENDAR_DAY_S, World
from twin.contracts import Array
from twin.placement.features import TWO_PI
from twin.placement.types import EMPTY, Observation, PlacementState, Requests

NODE_NUMBERS = (
    "log_run", "transfer", "wait", "log_response", "log_slack", "accepts", "busy", "free", "waiting", "log_speed",
    "per_core", "run_units", "cross_site", "wan", "cost", "chance", "log_up", "pressure", "rank", "separation",
)  # fmt: skip
"""Of every node, in order. Durations are shares of the request's deadline, `run_units` of the world's mean work.
`log_slack` is the logarithm of what is left of the deadline after wait and transfer, over the run; `cost` the time
of a core that the request takes, in units of the mean work and dearer where others are held; `chance` that of an
acceptance and a finish in time, given the inputs and without further arrivals; `log_up` the time that the node stays
up; `rank` the node's rank by speed, from -1 to 1, which distinguishes equal nodes; `separation` the rank times the
logarithm of the request's size, which separates long requests from short ones."""
_LEVELS, _SHARED_LEVELS = 31, 9
"""Quantiles of the scatter of runs that a chance is a mean over; where cores are shared each costs more."""
REQUEST_NUMBERS = ("deadline", "work", "log_patience", "mean_busy", "day_sine", "day_cosine")
"""Of the request and the moment, in order."""


class Expected(NamedTuple):
    """What the request in hand may expect of every node; leaves [nodes, *streams]."""

    busy: Array  # requests held, per core
    waiting: Array  # of them not started, per core
    transfer_s: Array
    wait_s: Array  # until a core is free
    run_s: Array  # mean
    accepts: Array  # probability, of this agent
    chance: Array  # of an acceptance and a finish in time, without further arrivals
    link: Array  # int32
    speed: Array
    up_s: Array  # how long the node stays up; inf
    pressure: Array


def reference_view(world: World, names: Names, known: DayConditions, state: Known) -> Observation:
    """What the reference sees before it decides.

    Args:
        world: For the laws and the unit of time.
        names: Vocabulary that the state refers to.
        known: The numbers of the day it uses, which may be another than the one it acts on; failures on the
            episode's clock.
        state: The books, and what is hidden; one seat.

    Returns:
        node [NODE_NUMBERS, nodes, 1, *streams], request [REQUEST_NUMBERS, 1, *streams].
    """
    expected, request = expect(world, names, known, state), state.books.request
    deadline_s, unit_s = request.deadline_s, mean_work_s(world)  # [1, *streams]
    ready_s = jnp.maximum(expected.transfer_s, expected.wait_s)
    flat = jnp.ones_like(expected.busy)
    cores = _of_nodes(_cores(names, known), flat)
    rank = _of_nodes(_rank(names, known), flat)
    size = jnp.mean(_log_ratio(expected.run_s, jnp.float32(unit_s)), axis=0)
    node = [
        _log_ratio(expected.run_s, deadline_s),
        jnp.log1p(expected.transfer_s / deadline_s),
        jnp.log1p(expected.wait_s / deadline_s),
        _log_ratio(ready_s + expected.run_s, deadline_s),
        _log_ratio(jnp.maximum(deadline_s - ready_s, 0.0), expected.run_s),
        expected.accepts,
        expected.busy,
        jnp.maximum(1.0 - expected.busy, 0.0),
        jnp.log1p(expected.waiting),
        jnp.log(expected.speed),
        flat / cores,
        jnp.log1p(expected.run_s / unit_s),
        (expected.link == CROSS_SITE).astype(jnp.float32),
        (expected.link == WAN).astype(jnp.float32),
        expected.run_s / unit_s / cores * (1.0 + expected.busy),
        expected.chance,
        _log_ratio(jnp.minimum(expected.up_s, 1e6), deadline_s),
        expected.pressure,
        rank,
        rank * size[None],
    ]
    return Observation(jnp.stack(node)[:, :, None], _request_numbers(known, state.books, expected, unit_s))


def reference_global_view(world: World, names: Names, known: DayConditions, state: Known) -> Observation:
    """What the reference's critic sees: busy cores, waits and waiting, each the mean over all cores and over all speed
    [6, *streams]; the request and the best chance it has [REQUEST_NUMBERS + 1, *streams]."""
    expected, unit_s = expect(world, names, known, state), mean_work_s(world)
    cores = _of_nodes(_cores(names, known), expected.busy)
    loads = jnp.stack(
        [jnp.minimum(expected.busy, 1.0), jnp.log1p(expected.wait_s / unit_s), jnp.log1p(expected.waiting)]
    )
    means = [
        jnp.sum(loads * weight[None], axis=1) / jnp.sum(weight, axis=0)[None]
        for weight in (cores, cores * expected.speed)
    ]
    request = _request_numbers(known, state.books, expected, unit_s)[:, 0]
    return Observation(
        jnp.concatenate(means), jnp.concatenate([request, jnp.max(expected.chance, axis=0)[None]])
    )


def expect(world: World, names: Names, known: DayConditions, state: Known) -> Expected:
    """What the request in hand may expect of every node; see `Expected`."""
    books, hidden = state
    request, clock_s = unseated(books.request), books.clock_s
    here = jnp.ones_like(hidden.wait_s)
    site, service = (
        jnp.asarray(table)[index]
        for table, index in ((names.world_site, request.site), (names.world_service, request.service))
    )
    link = jnp.moveaxis(jnp.asarray(known.link)[:, names.world_node][site], -1, 0)
    affinity = jnp.moveaxis(jnp.asarray(known.affinity)[:, names.world_node][service], -1, 0)
    cores = _of_nodes(_cores(names, known), here)
    speed = _of_nodes(jnp.asarray(known.speed)[names.world_node], here) * hidden.speed
    latency_s, s_per_mib = jnp.asarray(known.latency_s)[link], jnp.asarray(known.s_per_mib)[link]
    begin_s = jnp.broadcast_to(clock_s[None], latency_s.shape)
    transfer_s = way_s(world, known, link, begin_s, latency_s + request.input_mib[None] * s_per_mib)
    accepts = jnp.asarray(known.accepts)[link, request.agent[None]] * hidden.willing[None]
    run_s = _runs(world, known, names, request, hidden, speed * affinity, cores)
    sensitivity = jnp.asarray(known.sensitivity)[service]
    run_s = run_s * (1.0 + sensitivity[None, None] * hidden.pressure[None])
    output_mib = jnp.asarray(known.output_mib)[service][None]
    back_s = jnp.where(output_mib > 0.0, latency_s + output_mib * s_per_mib, 0.0)
    down_s = next_down_s(
        world, known, jnp.broadcast_to(clock_s[None], (known.speed.shape[0], *clock_s.shape))
    )
    up_s = (down_s - clock_s[None])[names.world_node]
    response_s = jnp.maximum(transfer_s, hidden.wait_s)[None] + run_s
    in_time = (response_s + back_s[None] <= request.deadline_s[None, None]) & (response_s <= up_s[None])
    if world.declared.kills:
        most_s = declared_run_s(names, request)[None, None]
        in_time, run_s = in_time & (run_s <= most_s), jnp.minimum(run_s, most_s)
    held, waiting = _held(books)
    return Expected(
        held / cores, waiting / cores, transfer_s, hidden.wait_s, jnp.mean(run_s, axis=0), accepts,
        accepts * jnp.mean(in_time.astype(jnp.float32), axis=0), link, speed, up_s, hidden.pressure,
    )  # fmt: skip


def _runs(
    world: World,
    known: DayConditions,
    names: Names,
    request: Requests,
    hidden: Revealed,
    pace: Array,
    cores: Array,
) -> Array:
    """[levels, nodes, *streams] how long the request may run on every node, at quantiles of the scatter."""
    shares = any(node.discipline == PROCESSOR_SHARING for node in world.nodes)
    num_levels = _SHARED_LEVELS if shares else _LEVELS
    levels = (jnp.arange(num_levels, dtype=jnp.float32) + 0.5) / num_levels
    work_s = jax.vmap(lambda scatter: needed(world, known, names, request, scatter))(
        world.run.quantile(levels)
    )
    work_s = work_s * hidden.work[None]
    if not shares:
        return work_s[:, None] / pace[None]
    work_s = work_s[:, None] / (pace / hidden.speed)[None]
    # What each in service takes meanwhile, at most
    beside = jnp.minimum(hidden.left_s[None], work_s[:, :, None])
    return jnp.maximum(work_s, (work_s + jnp.sum(beside, axis=2)) / cores[None]) / hidden.speed[None]


def _held(books: PlacementState) -> tuple[Array, Array]:
    """[nodes, *streams] requests held, and those of them that have not started."""
    table, clock = books.in_flight, books.clock_s[None, None]
    is_held = (table.decision != EMPTY) & (table.finish_s > clock)
    held = jnp.sum(is_held, axis=1, dtype=jnp.float32)
    return held, held - jnp.sum(is_held & (table.start_s <= clock), axis=1, dtype=jnp.float32)


def mean_work_s(world: World) -> float:
    """The mean work of a service: the unit of time."""
    return float(np.mean([service.work_s for service in world.services]))


def _cores(names: Names, known: DayConditions) -> Array:
    return jnp.sum(jnp.asarray(known.core_exists), axis=0, dtype=jnp.float32)[names.world_node]


def _rank(names: Names, known: DayConditions) -> Array:
    """[nodes] places by speed, ties in the order of the vocabulary, from -1 to 1."""
    speed = jnp.asarray(known.speed)[names.world_node]
    place = jnp.argsort(jnp.argsort(speed, stable=True), stable=True).astype(jnp.float32)
    return 2.0 * place / max(speed.shape[0] - 1, 1) - 1.0


def _of_nodes(value: Array, like: Array) -> Array:
    """[nodes] as [nodes, *streams], as `like`."""
    return jnp.broadcast_to(value.reshape((-1,) + (1,) * (like.ndim - 1)), like.shape)


def _request_numbers(known: DayConditions, state: PlacementState, expected: Expected, unit_s: float) -> Array:
    """[REQUEST_NUMBERS, 1, *streams]."""
    request = state.request
    turn = TWO_PI * request.day_fraction * (CALENDAR_DAY_S / jnp.asarray(known.day_s))
    return jnp.stack(
        [
            jnp.log1p(request.deadline_s / unit_s),
            jnp.log1p(request.expected_run_s / unit_s),
            _log_ratio(request.deadline_s, request.expected_run_s),
            jnp.mean(jnp.minimum(expected.busy, 4.0), axis=0)[None],
            jnp.sin(turn),
            jnp.cos(turn),
        ]
    )


def _log_ratio(one: Array, other: Array) -> Array:
    return jnp.clip(jnp.log(jnp.maximum(one, 1e-6) / jnp.maximum(other, 1e-6)), -3.0, 3.0)
