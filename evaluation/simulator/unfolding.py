"""The truth of worlds that are simulated by events: nodes share their cores, or agents react.

The outcome of a request is not drawn at its placement, since it depends on later requests. The response keeps the jobs,
in the same slots as the bookkeeping, simulates them from decision to decision, and reports the events up to then. At
truncation it reports the outcomes without further requests, which is exact at the day's end.
"""

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.failures import is_up
from evaluation.simulator.mechanics import Unfolding, begin_unfolding, follow_unfolding, offer_unfolding
from evaluation.simulator.names import Names
from evaluation.simulator.stations import GONE, StationJobs, pass_time
from evaluation.simulator.world import World
from twin.contracts import Array, Outcome, Response, Streams
from twin.environment import beside
from twin.placement.bookkeeping import choose_slots
from twin.placement.types import Cluster, PlacementEvents, PlacementState, Requests


def in_order_of(today: DayConditions, world_node: np.ndarray) -> DayConditions:
    """The day's numbers with nodes in the order of a cluster's vocabulary."""
    first = ("speed", "shares", "limit", "down_from_s", "down_to_s", "node_site")
    last = ("core_exists", "affinity", "link", "hosts")
    moved = {name: getattr(today, name)[world_node] for name in first}
    moved |= {name: getattr(today, name)[:, world_node] for name in last}
    if today.hidden is not None:
        own = {name: getattr(today.hidden, name) for name in ("speed", "taken_s")}  # leaves [..., nodes]
        of_nodes = jax.tree.map(lambda leaf: leaf[:, world_node], own)
        moved["hidden"] = today.hidden._replace(**of_nodes)
    return today._replace(**moved)


def unfolding_response(
    world: World,
    cluster: Cluster,
    depth: int,
    today: DayConditions,
    names: Names,
    *,
    weekday: int | Array = 0,
    begin_s: float | Array = 0.0,
) -> Response:
    """The response; arguments as of `truth.truth_response`, failures of `today` on the episode's clock."""
    today = in_order_of(today, names.world_node)
    names = names._replace(world_node=np.arange(cluster.num_nodes, dtype=np.int32))

    def follow(
        key: Array, system: Unfolding, has_request: Array
    ) -> tuple[Unfolding, tuple[Array, Requests, Array]]:
        offset_s = jnp.broadcast_to(jnp.asarray(begin_s, jnp.float32), system.now_s.shape)
        return follow_unfolding(key, world, today, names, system, offset_s, weekday, has_request)

    def observed_events(
        jobs: StationJobs, accepted: Array, clock_s: Array, request: Requests, more: Array
    ) -> PlacementEvents:
        clock = beside(clock_s, jobs.start_s)
        start_s = jnp.where(jobs.start_s <= clock, jobs.start_s, jnp.inf)
        finish_s = jnp.where(jobs.finish_s <= clock, jobs.finish_s, jnp.inf)
        up = is_up(world, today, clock_s)
        return PlacementEvents(
            clock_s, accepted[None], start_s, finish_s, jobs.status, seated(request), more[None], up
        )

    def init(key: Array, streams: Streams) -> tuple[Unfolding, Outcome]:
        midnight = jnp.zeros(streams, jnp.float32)
        system = begin_unfolding(key, world, today, depth, midnight)
        system, (clock_s, request, more) = follow(key, system, jnp.ones(streams, bool))
        events = observed_events(system.jobs, jnp.zeros(streams, bool), clock_s, request, more)
        return system, Outcome(jnp.zeros(streams, jnp.float32), jnp.zeros_like(more), ~more, events)

    def advance(
        key: Array, system: Unfolding, state: PlacementState, node: Array
    ) -> tuple[Unfolding, Outcome]:
        key_next, key_offer = jax.random.split(key)
        slot, has_request = choose_slots(state, node)[0], state.active[0]
        system, accepted, _ = offer_unfolding(
            key_offer, world, today, names, system, unseated(state.request), node[0], slot, has_request
        )
        system, (clock_s, request, more) = follow(key_next, system, has_request)
        events = observed_events(system.jobs, accepted, clock_s, request, more)
        return system, Outcome(clock_s - state.clock_s, jnp.zeros_like(more), ~more, events)

    def resolve_pending(system: Unfolding, state: PlacementState) -> PlacementState:
        never = jnp.full_like(system.now_s, jnp.inf)
        jobs, _ = pass_time(world, today, system.jobs, system.crowd.end_s, system.now_s, never, system.hidden)
        table = state.in_flight
        finish_s = jnp.minimum(table.finish_s, jobs.finish_s)
        known = jnp.isfinite(finish_s) & (jobs.phase == GONE)
        table = table._replace(
            start_s=jnp.minimum(table.start_s, jobs.start_s),
            finish_s=finish_s,
            status=jnp.where(known, jobs.status, table.status),
        )
        return state._replace(in_flight=table)

    return Response(init, advance, resolve_pending)


def seated(request: Requests) -> Requests:
    """A request with a seat axis of length one: leaves [1, *streams], demand [resources, 1, *streams]."""
    return jax.tree.map(lambda leaf: leaf[None], request)._replace(demand=request.demand[:, None])


def unseated(request: Requests) -> Requests:
    """The request of the only seat: leaves [*streams], demand [resources, *streams]."""
    return jax.tree.map(lambda leaf: leaf[0], request)._replace(demand=request.demand[:, 0])
