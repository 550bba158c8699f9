"""What a twin of slot mode has learned of chance: tables, and the `Chance` that draws from them.

Arrivals are a Poisson process at every access point, its rate by the time of day; a request's service is drawn by site
and time of day, everything else of it is that of a logged request of the service. A way takes as many slots as ways of
its kind and of inputs of its size took in the log. A run is what is requested times `exp(ratio + scatter)`, `ratio` of
service and node. Nodes fail and come back from slot to slot.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, PyTree, Streams
from twin.orchestration.chance import Chance, SlotAnswer, since_midnight
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.forecast import DayForecast
from twin.orchestration.queues import seat_requests
from twin.placement.types import Requests

WAY, RUN = range(2)
NUM_DECISION_UNIFORMS = 2
UNIFORMS_PER_ARRIVAL = 3
"""Service, logged request, gap."""
_LEAST = 1e-7


class ChanceTables(NamedTuple):
    """Everything that is learned; NumPy, saved with the twin."""

    day_s: np.ndarray  # [] time of day at which requests end to come
    rate_per_s: np.ndarray  # [bins, services, sites]
    first_row: np.ndarray  # [services] int32: where a service's logged requests begin among the rows
    num_rows: np.ndarray  # [services] int32
    requested_run_s: np.ndarray  # [rows]
    deadline_s: np.ndarray  # [rows]
    input_mib: np.ndarray  # [rows]
    scenario: np.ndarray  # [rows] int32
    log_ratio: np.ndarray  # [services, nodes] of run over request
    scatter: np.ndarray  # [quantiles] of the logarithm of a run about that, at (k + 1/2) / quantiles
    way_kind: np.ndarray  # [sites, nodes] int32
    input_edges: np.ndarray  # [sizes - 1] MiB
    way_slots: np.ndarray  # [kinds, sizes, most slots] distribution function
    goes_down: np.ndarray  # [nodes] probability in a slot
    comes_up: np.ndarray  # [nodes]

    @property
    def bin_s(self) -> float:
        """Length of a bin of the time of day."""
        return float(self.day_s) / self.rate_per_s.shape[0]


def learned_chance(
    edge: EdgeCloud, tables: ChanceTables, begin_s: float | Array = 0.0, level: Array | None = None
) -> Chance:
    """The chance of a day by the tables; they know no weekdays, so it is a Monday.

    Args:
        edge: The cluster that they are of.
        tables: See there.
        begin_s: Time of day at which episodes begin.
        level: [services, *streams] or broadcasting to it: how many times as much of every service comes; as in the
            tables if not given.
    """
    slot_s = edge.config.slot_s
    rate, up_to_service = _arrival_rates(edge, tables, level)
    fails = bool(np.any(tables.goes_down > 0.0))

    def numbers(key: Array, streams: Streams) -> PyTree:
        key_seats, key_nodes = jax.random.split(key)
        rows = NUM_DECISION_UNIFORMS + UNIFORMS_PER_ARRIVAL * edge.config.arrivals_per_slot
        seats = jax.random.uniform(key_seats, (rows, edge.num_seats, *streams), minval=_LEAST)
        nodes = jax.random.uniform(key_nodes, (edge.num_nodes, *streams)) if fails else None
        return seats, nodes

    def gap_s(arrival_s: Array, uniform: Array) -> Array:
        exponential, time_s = -jnp.log1p(-uniform), since_midnight(begin_s, arrival_s)
        half_s = 0.5 * exponential / rate(time_s)
        return exponential / rate(time_s + jnp.minimum(half_s, tables.bin_s))

    def first_s(key: Array, streams: Streams) -> Array:
        uniform = jax.random.uniform(key, (edge.num_seats, *streams), minval=_LEAST)
        return gap_s(jnp.zeros_like(uniform), uniform)

    def arrival(drawn: PyTree, one: int, arrival_s: Array) -> tuple[Requests, Array]:
        first = NUM_DECISION_UNIFORMS + one * UNIFORMS_PER_ARRIVAL
        which, logged, gap = drawn[0][first : first + UNIFORMS_PER_ARRIVAL]
        time_s = since_midnight(begin_s, arrival_s)
        service = jnp.sum(which[..., None] >= up_to_service(time_s), axis=-1, dtype=jnp.int32)
        service = jnp.minimum(service, edge.num_services - 1)
        rows = jnp.asarray(tables.num_rows)[service]
        row = jnp.asarray(tables.first_row)[service] + jnp.minimum(
            (logged * rows).astype(jnp.int32), rows - 1
        )
        return _request(edge, tables, service, row, time_s), gap_s(arrival_s, gap)

    def answer(drawn: PyTree, request: Requests, node: Array) -> SlotAnswer:
        kind = jnp.asarray(tables.way_kind)[request.site, node]
        edges = jnp.asarray(tables.input_edges).reshape((1,) * node.ndim + (-1,))
        size = jnp.sum(request.input_mib[..., None] > edges, axis=-1, dtype=jnp.int32)
        table = jnp.asarray(tables.way_slots, jnp.float32)[kind, size]
        slots = 1.0 + jnp.sum(drawn[0][WAY][..., None] >= table, axis=-1)
        scatter = jnp.asarray(tables.scatter, jnp.float32)
        place = jnp.minimum((drawn[0][RUN] * len(tables.scatter)).astype(jnp.int32), len(tables.scatter) - 1)
        log_run = jnp.asarray(tables.log_ratio, jnp.float32)[request.service, node] + scatter[place]
        return SlotAnswer(
            accepted=jnp.ones(node.shape, bool),
            way_there_s=(slots - 0.5) * slot_s,
            run_s=request.expected_run_s * jnp.exp(log_run),
            way_back_s=jnp.zeros(node.shape, jnp.float32),
        )

    def available(drawn: PyTree | None, before: Array | None, clock_s: Array) -> Array:
        if drawn is None or before is None or not fails:
            return jnp.ones((edge.num_nodes, *clock_s.shape), bool)
        down, up = (
            jnp.asarray(one, jnp.float32).reshape((-1,) + (1,) * clock_s.ndim)
            for one in (tables.goes_down, tables.comes_up)
        )
        return jnp.where(before, drawn[1] >= down, drawn[1] < up)

    return Chance(
        begin_s, float(tables.day_s), 0, numbers, first_s, arrival, answer, available, fails, _identity
    )


def _arrival_rates(
    edge: EdgeCloud, tables: ChanceTables, level: Array | None
) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """What times of day [seats, *streams] say: the rate of arrivals [seats, *streams] a second, and the distribution
    function of a request's service [seats, *streams, services]."""
    num_bins = tables.rate_per_s.shape[0]
    of_seat = np.moveaxis(tables.rate_per_s[:, :, edge.seat_site], 1, 2)  # [bins, seats, services]

    def at(table: Array, time_s: Array) -> Array:
        """[seats, *streams, ...] entries of a table [bins, seats, ...]."""
        row = jnp.clip((time_s / tables.bin_s).astype(jnp.int32), 0, num_bins - 1)
        seat = jnp.arange(edge.num_seats).reshape((-1,) + (1,) * (time_s.ndim - 1))
        return table[row, seat]

    if level is None:
        total = of_seat.sum(axis=2)
        shares = np.cumsum(of_seat, axis=2) / np.maximum(total[..., None], 1e-12)
        rates, cumulative = (jnp.asarray(one, jnp.float32) for one in (np.maximum(total, 1e-9), shares))
        return partial(at, rates), partial(at, cumulative)
    scaled, by_service = jnp.moveaxis(level, 0, -1)[None], jnp.asarray(of_seat, jnp.float32)

    def running(time_s: Array) -> Array:
        return jnp.cumsum(at(by_service, time_s) * scaled, axis=-1)

    def up_to_service(time_s: Array) -> Array:
        return running(time_s) / jnp.maximum(running(time_s)[..., -1:], 1e-9)

    return lambda time_s: jnp.maximum(running(time_s)[..., -1], 1e-9), up_to_service


def _request(edge: EdgeCloud, tables: ChanceTables, service: Array, row: Array, time_s: Array) -> Requests:
    return seat_requests(
        edge,
        time_s,
        0,
        scenario=jnp.asarray(tables.scenario)[row],
        service=service,
        expected_run_s=jnp.asarray(tables.requested_run_s, jnp.float32)[row],
        deadline_s=jnp.asarray(tables.deadline_s, jnp.float32)[row],
        input_mib=jnp.asarray(tables.input_mib, jnp.float32)[row],
        **_identity(service),
    )


def _identity(agent: Array) -> dict[str, Any]:
    """Users are not distinguished, and accept every offer."""
    sure = jnp.ones(agent.shape, jnp.float32)
    return {
        "agent": jnp.full_like(agent, -1),
        "accepts_home": sure,
        "accepts_elsewhere": sure,
        "accepts_cloud": sure,
    }


def learned_forecast(edge: EdgeCloud, tables: ChanceTables) -> DayForecast:
    """What the tables expect of a day."""
    spread = float(np.mean(np.exp(tables.scatter)))
    run_s = edge.work_s[:, None] * np.exp(tables.log_ratio) * spread
    before = np.concatenate([np.zeros_like(tables.way_slots[..., :1]), tables.way_slots], axis=-1)
    slots = 1.0 + (1.0 - before[..., 1:]).sum(axis=-1).mean(axis=-1)  # [kinds]
    latency_s = (slots[tables.way_kind] - 0.5) * edge.config.slot_s
    return DayForecast(
        tables.bin_s, tables.rate_per_s, run_s.astype(np.float32), latency_s, np.zeros_like(latency_s)
    )
