"""What an oracle sees: every node in full and the tables of one day of the simulated world.

It is a reference and not deployable. It knows what no log tells (links, speeds, affinities, how readily a scenario
accepts) and sees all sites. It does not know what has not happened (scatter of run times, noise of links) nor the
single agents' preferences. Every node is described by the same numbers, so one small network scores any number of them.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from evaluation.simulator.conditions import CROSS_SITE, LOCAL, WAN, DayConditions
from evaluation.simulator.names import Names
from evaluation.simulator.world import CALENDAR_DAY_S, World
from twin.contracts import Array
from twin.placement.features import TWO_PI, one_hot
from twin.placement.types import EMPTY, Observation, PlacementState

NODE_NUMBERS = (
    "log_run", "transfer", "wait", "log_response", "log_slack", "accepts", "busy", "free", "waiting", "log_speed",
    "per_core", "run_units", "cross_site", "wan", "cost", "chance",
)  # fmt: skip
"""Of every node, in order. Durations are shares of the request's deadline, `run_units` of the world's mean work.
`log_slack` is the logarithm of what is left of the deadline after wait and transfer, over the run; `cost` the time
of a core that the request takes, in units of the mean work and dearer where others are held; `chance` that of an
acceptance and a finish in time, if nothing but the run scattered."""
_LEVELS = (np.arange(31) + 0.5) / 31.0
REQUEST_NUMBERS = ("deadline", "work", "log_patience", "mean_busy", "day_sine", "day_cosine")
"""Of the request and the moment, in order."""


class Expected(NamedTuple):
    """What the request in hand may expect of every node; leaves [nodes, *streams]."""

    busy: Array  # requests held, per core
    waiting: Array  # of them not started, per core
    backlog_s: Array  # what is left of the work held, per core, by the declared work
    transfer_s: Array
    wait_s: Array  # until a core is free
    run_s: Array
    accepts: Array  # probability, as the mean of the scenario
    chance: Array  # of an acceptance and a finish in time, if nothing but the run scattered
    link: Array  # int32


def oracle_view(world: World, names: Names, known: DayConditions, state: PlacementState) -> Observation:
    """What the oracle sees before it decides.

    Args:
        world: For the scenarios and the unit of time.
        names: Vocabulary that the state refers to.
        known: The numbers of the day it knows, which may be another than the one it acts on.
        state: The bookkeeping's state; one seat.

    Returns:
        node [NODE_NUMBERS, nodes, 1, *streams], request [REQUEST_NUMBERS, 1, *streams].
    """
    expected, request = expect(world, names, known, state), state.request
    deadline_s, unit_s = request.deadline_s, mean_work_s(world)
    cores, speed = _of_nodes(names, known, state.clock_s.ndim)
    ready_s = jnp.maximum(expected.transfer_s, expected.wait_s)
    log_run = _log_ratio(expected.run_s, deadline_s)
    flat = jnp.ones_like(expected.busy)
    node = [
        log_run,
        jnp.log1p(expected.transfer_s / deadline_s),
        jnp.log1p(expected.wait_s / deadline_s),
        _log_ratio(ready_s + expected.run_s, deadline_s),
        _log_ratio(jnp.maximum(deadline_s - ready_s, 0.0), expected.run_s),
        expected.accepts,
        expected.busy,
        jnp.maximum(1.0 - expected.busy, 0.0),
        jnp.log1p(expected.waiting),
        jnp.log(speed) * flat,
        flat / cores,
        jnp.log1p(expected.run_s / unit_s),
        (expected.link == CROSS_SITE).astype(jnp.float32),
        (expected.link == WAN).astype(jnp.float32),
        expected.run_s / unit_s / cores * (1.0 + expected.busy),
        expected.chance,
    ]
    return Observation(jnp.stack(node)[:, :, None], _request_numbers(known, state, expected, unit_s))


def oracle_global_view(
    world: World, names: Names, known: DayConditions, state: PlacementState
) -> Observation:
    """What the oracle's critic sees: busy cores, backlog and waiting, each the mean over all cores and over all speed
    [6, *streams]; the request and the best chance it has [REQUEST_NUMBERS + 1, *streams]."""
    expected, unit_s = expect(world, names, known, state), mean_work_s(world)
    cores, speed = _of_nodes(names, known, state.clock_s.ndim)
    loads = jnp.stack(
        [jnp.minimum(expected.busy, 1.0), jnp.log1p(expected.backlog_s / unit_s), jnp.log1p(expected.waiting)]
    )
    means = [
        jnp.sum(loads * weight, axis=1) / jnp.sum(weight) for weight in (cores[None], (cores * speed)[None])
    ]
    request = _request_numbers(known, state, expected, unit_s)[:, 0]
    return Observation(
        jnp.concatenate(means), jnp.concatenate([request, jnp.max(expected.chance, axis=0)[None]])
    )


def expect(world: World, names: Names, known: DayConditions, state: PlacementState) -> Expected:
    """What the request in hand may expect of every node, by the known day's tables; see `Expected`."""
    table, clock, request = state.in_flight, state.clock_s[None, None], state.request
    cores, speed = _of_nodes(names, known, state.clock_s.ndim)
    pace = jnp.asarray(known.speed)[None] * jnp.asarray(known.affinity)
    pace = pace[:, names.world_node]  # [services of the world, nodes]
    node = jnp.arange(pace.shape[1], dtype=jnp.int32).reshape((-1,) + (1,) * (table.service.ndim - 1))
    is_held = (table.decision != EMPTY) & (table.finish_s > clock)
    is_running = is_held & (table.start_s <= clock)
    run_s = table.expected_run_s / pace[jnp.asarray(names.world_service)[table.service], node]
    left_s = jnp.maximum(run_s - jnp.where(is_running, clock - table.start_s, 0.0), 0.0)
    backlog_s = jnp.sum(jnp.where(is_held, left_s, 0.0), axis=1) / cores
    held = jnp.sum(is_held, axis=1, dtype=jnp.float32)
    waiting = held - jnp.sum(is_running, axis=1, dtype=jnp.float32)
    site = jnp.asarray(names.world_site)[request.site[0]]
    service = jnp.asarray(names.world_service)[request.service[0]]
    link = jnp.moveaxis(jnp.asarray(known.link)[:, names.world_node][site], -1, 0)
    affinity = jnp.moveaxis(jnp.asarray(known.affinity)[:, names.world_node][service], -1, 0)
    ahead = jnp.maximum(held - cores + 1.0, 0.0) / jnp.maximum(held, 1.0)
    transfer_s = jnp.asarray(known.latency_s)[link] + request.input_mib * jnp.asarray(known.s_per_mib)[link]
    wait_s, run_s = backlog_s * ahead, request.expected_run_s / (speed * affinity)
    accepts = _accepts(world, names, link, request.scenario[0])
    slack = (request.deadline_s - jnp.maximum(transfer_s, wait_s)) / run_s
    scatter = world.run.quantile(jnp.asarray(_LEVELS, jnp.float32)).reshape((-1,) + (1,) * slack.ndim)
    in_time = jnp.mean((slack[None] >= scatter).astype(jnp.float32), axis=0)
    return Expected(
        held / cores, waiting / cores, backlog_s, transfer_s, wait_s, run_s, accepts, accepts * in_time, link
    )


def mean_work_s(world: World) -> float:
    """The mean work of a service: the unit of time."""
    return float(np.mean([service.work_s for service in world.services]))


def _of_nodes(names: Names, known: DayConditions, num_streams: int) -> tuple[Array, Array]:
    """Cores and speeds [nodes, 1, ...] in the vocabulary's order."""
    trailing = (1,) * num_streams
    cores = jnp.sum(jnp.asarray(known.core_exists), axis=0, dtype=jnp.float32)[names.world_node]
    speed = jnp.asarray(known.speed)[names.world_node]
    return cores.reshape((-1, *trailing)), speed.reshape((-1, *trailing))


def _accepts(world: World, names: Names, link: Array, scenario: Array) -> Array:
    """[nodes, *streams] mean acceptance of the request's scenario over the link to the node."""
    means = np.zeros((3, int(names.scenario.max()) + 1), np.float32)
    for position, one in zip(names.scenario, world.scenarios, strict=True):
        means[[LOCAL, CROSS_SITE, WAN], position] = 1.0, one.accepts_other_site, one.accepts_cloud
    of_kind = jnp.asarray(means)[:, scenario]
    kinds = one_hot(link, len(means))
    return jnp.sum(jnp.where(kinds, of_kind[:, None], 0.0), axis=0)


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
