"""When a node will have room for a request, by the fates already drawn of those before it.

Answers are drawn one after another, in the order of the decisions, so each may depend on those before it: the chain
rule of probability, without an assumption. What a queue makes of a new request is decided by when those ahead of it
will be done. No policy observes that, but the system that answers has settled it already. A network with this input has
only to learn what the queue does not explain, and what it draws cannot drift away from the queue that it draws itself.

Exact for nodes that serve first come, first served (J. Kiefer and J. Wolfowitz, On the theory of queues with many
servers, 1955); for other disciplines, and for classes of machines summed up, a hint like any other.

How long the runs on the node take predicts the next one too: a node that is slow now, or shared, is so for all of them.
The feature is the mean residual of the pending runs, beyond the levels of run times (`run_filter`).
And so does who they are: how long each will be beside the next run is settled, and how hard it presses is in the log
(`crowding`).
The level itself is a feature too, though it is part of the usual run time: where the log's runs follow it by less than
one for one, because what moved it is known from elsewhere as well, the two must be distinguished.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array
from twin.placement.features import wakes_left_s
from twin.placement.ranks import rank_in_hand
from twin.placement.run_levels import usual_levels
from twin.placement.shared_waits import beside
from twin.placement.types import COMPLETED, CORES, EMPTY, FAILED, Cluster, Leaf, PlacementState
from twin.placement.waiting import TAKEN

_TOLERANCE = 1e-5
_MOST_STRETCH = 1.5
"""Of the logarithm of a run over its usual time, of a pending run as of a level: what is far longer counts no more."""
_LEAST_RUN_S = 1e-3
MOST_CROWDING = 3.0
"""Of the logarithm of how much longer a run takes for who is beside it."""


class PendingFates(NamedTuple):
    """Features of one more request on a node, from the fates of those there; leaves [seats, *streams], or any batch."""

    availability_s: Leaf  # until they leave room
    stretch: Leaf  # mean log of their runs over what is usual now, drawn to 0 by how few they are
    crowding: Leaf  # log of how much longer the run should take beside them; 0 where no service presses
    level: Leaf  # log of how much longer it usually takes there now than by the tables; 0 where nothing is followed
    tide: Leaf  # log of how much longer runs take everywhere and there, by the log that is replayed
    discontent: Leaf | None = (
        None  # of the agent, by the log that is replayed; None where answers do not depend on it
    )
    # until all that go before the request have left room; None where no queue goes before another
    cleared_s: Leaf | None = None
    # how many wait on nodes that share what requests wait for; None where nothing is shared
    waiting_beside: Leaf | None = None


def pending_fates(cluster: Cluster, state: PlacementState, node: Array) -> PendingFates:
    """The fates drawn of those on the nodes offered, from a state as of `time_to_availability_s`."""
    availability_s = time_to_availability_s(cluster, state, node)
    cleared_s = (
        None if cluster.priorities is None else time_to_availability_s(cluster, state, node, passing=False)
    )
    return PendingFates(
        availability_s,
        jnp.zeros_like(availability_s) if cluster.pace else _stretch(state, node),
        _crowding(cluster, state, node, availability_s),
        _level(state, node),
        _tide(state, node),
        state.request.discontent if cluster.reaction else None,
        cleared_s,
        _waiting_beside(cluster, state, node) if cluster.shared_waits else None,
    )


def _waiting_beside(cluster: Cluster, state: PlacementState, node: Array) -> Array:
    """[seats, *streams] how many wait on the nodes that share with the offered one what requests wait for."""
    table, clock = state.in_flight, state.clock_s[None, None]
    waits = (table.decision != EMPTY) & (table.start_s > clock) & (table.finish_s > clock)
    count = beside(jnp.sum(waits.astype(jnp.float32), axis=1), cluster.shared_waits, cluster.site_of_node)
    return jnp.take_along_axis(count[:, None], node[None], axis=0)[0]


def _on(node: Array) -> Callable[[Array], Array]:
    """Takes leaves of the table, [nodes, depth, *streams], at the offered nodes: [depth, seats, *streams]."""
    return lambda leaf: jnp.take_along_axis(leaf[:, :, None], node[None, None], axis=0)[0]


def _everywhere(leaf: Array) -> Array:
    """A leaf of the table, [nodes, depth, *streams], with the slots of all nodes in a row: [slots, 1, *streams]."""
    return leaf.reshape(-1, 1, *leaf.shape[2:])


def _crowding(cluster: Cluster, state: PlacementState, node: Array, availability_s: Array) -> Array:
    """[seats, *streams] pressure of the pending runs, by the share of the usual run, from when there is room, that each
    is beside it."""
    if not len(cluster.pressure):
        return jnp.zeros_like(availability_s)
    table, service = state.in_flight, state.request.service
    here = _on(node)
    ratio = jnp.asarray(cluster.run_ratio, jnp.float32)[service, node]
    usual_s = jnp.maximum(ratio * state.request.expected_run_s, _LEAST_RUN_S)
    first_s = state.clock_s[None] + availability_s
    start_s, finish_s = here(table.start_s), here(table.finish_s)
    runs = (here(table.decision) != EMPTY) & jnp.isfinite(start_s)
    finish_s = jnp.where(jnp.isfinite(finish_s), finish_s, start_s + here(table.expected_run_s))
    last_s = first_s + usual_s
    common_s = jnp.minimum(finish_s, last_s[None]) - jnp.maximum(start_s, first_s[None])
    pressure = jnp.asarray(cluster.pressure, jnp.float32)[here(table.service)]
    share = jnp.where(runs, jnp.maximum(common_s, 0.0), 0.0) / usual_s[None]
    return jnp.clip(jnp.sum(pressure * share, axis=0), -MOST_CROWDING, MOST_CROWDING)


def _level(state: PlacementState, node: Array) -> Array:
    """[seats, *streams] the level of the offered node and of the requested service on it."""
    levels = usual_levels(state)
    if levels is None:
        return jnp.zeros(node.shape, jnp.float32)
    level = jnp.take_along_axis(levels, node[None], axis=0)[0]
    return jnp.clip(level, -_MOST_STRETCH, _MOST_STRETCH)


def _tide(state: PlacementState, node: Array) -> Array:
    """[seats, *streams] the tides of the requests in hand, together, on the offered node."""
    request = state.request
    tide = jnp.zeros(node.shape, jnp.float32) if request.tide is None else jnp.asarray(request.tide)
    if request.node_tide is not None:
        tide = tide + jnp.take_along_axis(jnp.asarray(request.node_tide), node[None], axis=0)[0]
    return tide


def _stretch(state: PlacementState, node: Array) -> Array:
    table, clock = state.in_flight, state.clock_s[None, None]
    here = _on(node)
    start_s, finish_s, status, mean_s = map(
        here, (table.start_s, table.finish_s, table.status, table.mean_run_s)
    )
    run_s = finish_s - start_s
    pending = (here(table.decision) != EMPTY) & ((status == COMPLETED) | (status == FAILED))
    pending &= jnp.isfinite(run_s) & (finish_s > clock) & (run_s > 0.0) & (mean_s > 0.0)
    residual = jnp.log(jnp.where(pending, run_s, 1.0) / jnp.where(pending, mean_s, 1.0))
    if state.levels is not None:
        level = jnp.take_along_axis(state.levels.node.mean.sum(axis=0)[:, None], node[None], axis=0)[0]
        residual -= level[None]
    clipped = jnp.where(pending, jnp.clip(residual, -_MOST_STRETCH, _MOST_STRETCH), 0.0)
    return jnp.sum(clipped, axis=0) / (jnp.sum(pending, axis=0) + 1.0)


def time_to_availability_s(
    cluster: Cluster, state: PlacementState, node: Array, *, passing: bool = True
) -> Array:
    """Seconds until the requests already on a node leave room for the one in hand.

    Where queues go before others, those count that go before the one in hand, from their start to their end: a request
    may pass others of its own rank that wait, as it does where it fits and they do not.

    Args:
        cluster: For the capacities; what a node has without limit never lacks.
        state: With every fate that is drawn already filled in (`Response.resolve_pending`); leaves [..., *streams].
            Where the end of a request is not known, its expected run time stands in.
        node: [seats, *streams] int32, the offers.
        passing: Whether it may pass others; if not, all that go before it leave first.

    Returns:
        [seats, *streams] >= 0.
    """
    table, clock = state.in_flight, state.clock_s[None, None]
    here = _on(node)
    begins_s, ends_s, holds = _held(state, here)
    if cluster.priorities is not None:
        own = rank_in_hand(cluster, state, node, jnp)
        holds &= cluster.priorities.counts(here(table.rank), own[None], begins_s <= clock)
    elif cluster.disciplines is not None:
        own = rank_in_hand(cluster, state, node, jnp)
        waits_behind = (here(table.rank) > own[None]) & (begins_s > clock)
        holds &= ~(waits_behind & cluster.disciplines.orders(node, jnp)[None])
    leaves_in_s = jnp.where(holds, jnp.maximum(ends_s - clock, 0.0), 0.0)

    shares, left = [], []
    for resource in cluster.limited:
        if cluster.places and resource == CORES:  # shared, so that nobody waits for one
            continue
        per_unit = share_per_unit(cluster, resource, node)
        shares.append(jnp.where(holds, here(table.demand[resource]) * per_unit[None], 0.0))
        left.append(1.0 + _TOLERANCE - jnp.minimum(state.request.demand[resource] * per_unit, 1.0))
    if cluster.places:
        per_place = share_of_place(cluster, node)
        shares.append(jnp.where(holds, per_place[None], 0.0))
        left.append(1.0 + _TOLERANCE - per_place)
    if cluster.concurrency:  # who waits for a place is in nobody else's way
        has_room_s = _first_gap(jnp.where(holds, TAKEN * (begins_s - clock), 0.0), leaves_in_s, shares, left)
    elif cluster.priorities is None or not passing:
        has_room_s = _first_enough(leaves_in_s, shares, left)
    else:
        has_room_s = _first_gap(jnp.where(holds, begins_s - clock, 0.0), leaves_in_s, shares, left)
    if cluster.in_order:
        ahead_s = jnp.where(holds, jnp.maximum(begins_s - clock, 0.0), 0.0)
        has_room_s = jnp.maximum(has_room_s, jnp.max(ahead_s, axis=0))
    if cluster.concurrency:
        places = jnp.asarray(cluster.concurrency, jnp.int32)[state.request.service, node]
        has_room_s = _until_one_leaves(state, here, places, has_room_s)
    if cluster.permits:
        permits = jnp.asarray(cluster.permits, jnp.int32)[state.request.service]
        has_room_s = _until_one_leaves(state, _everywhere, permits, has_room_s)
    if cluster.wakes is None:
        return has_room_s
    awake_s = jnp.take_along_axis(wakes_left_s(cluster.wakes, state)[:, None], node[None], axis=0)[0]
    return jnp.maximum(has_room_s, awake_s)


def _held(state: PlacementState, here: Callable[[Array], Array]) -> tuple[Array, Array, Array]:
    """When what nodes hold begins and ends, and what holds a place; leaves as `here` takes them from the table."""
    table, clock = state.in_flight, state.clock_s[None, None]
    start_s, finish_s = here(table.start_s), here(table.finish_s)
    begins_s = jnp.where(jnp.isfinite(start_s), start_s, clock)
    ends_s = jnp.where(jnp.isfinite(finish_s), finish_s, begins_s + here(table.expected_run_s))
    given_up = jnp.isfinite(finish_s) & ~jnp.isfinite(start_s)
    return begins_s, ends_s, (here(table.decision) != EMPTY) & ~given_up


def _until_one_leaves(
    state: PlacementState, here: Callable[[Array], Array], limit: Array, room_s: Array
) -> Array:
    """[seats, *streams] until fewer than so many of a request's service run, 0 without a limit, of those that `here`
    takes from the table, from when there is room."""
    begins_s, ends_s, holds = _held(state, here)
    holds = holds & (here(state.in_flight.service) == state.request.service[None])
    clock = state.clock_s[None, None]
    taken_in_s, leaves_in_s = TAKEN * (begins_s - clock), ends_s - clock

    def in_the_way(at_s: Array) -> Array:
        running = holds & (taken_in_s <= at_s[None]) & (leaves_in_s > at_s[None])
        return running & ((limit > 0) & (jnp.sum(running, axis=0) >= limit))[None]

    def later(at_s: Array) -> Array:
        leaves_s = jnp.min(jnp.where(in_the_way(at_s), leaves_in_s, jnp.inf), axis=0)
        return jnp.where(jnp.isfinite(leaves_s), leaves_s, at_s)

    return jax.lax.while_loop(lambda at_s: jnp.any(in_the_way(at_s)), later, room_s)


def share_per_unit(cluster: Cluster, resource: int, node: Array) -> Array:
    """What a unit of a resource is of the whole of nodes, of the shape of `node`; 0 of what is without limit."""
    capacity = jnp.asarray(cluster.capacity[resource], jnp.float32)[node]
    return jnp.where(jnp.isfinite(capacity), 1.0 / jnp.maximum(capacity, 1e-9), 0.0)


def share_of_place(cluster: Cluster, node: Array) -> Array:
    """What one request takes of the places of nodes, of the shape of `node`; 0 of those without limit."""
    places = jnp.asarray(cluster.places, jnp.float32)[node]
    return jnp.where(places > 0.0, 1.0 / jnp.maximum(places, 1.0), 0.0)


def _first_enough(leaves_in_s: Array, shares: list[Array], left: list[Array]) -> Array:
    """[seats, *streams] the first time at which, of every resource, what has not left takes no more than is left.

    Bisection over the order of the numbers themselves: floats >= 0 are ordered as their bits are. So it is exact, and
    its cost grows with the depth as that of one look at the table does, times 31.

    Args:
        leaves_in_s: [depth, seats, *streams] >= 0, when each slot is free again.
        shares: For each resource, what each slot takes until then, of the node's whole.
        left: For each resource, [seats, *streams] how much of the whole may be taken.
    """
    order = jax.lax.bitcast_convert_type(leaves_in_s, jnp.int32)
    order, *shares = jax.lax.optimization_barrier((order, *shares))

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        later, enough = order > middle[None], jnp.ones(middle.shape, bool)
        for share, most in zip(shares, left, strict=True):
            enough &= jnp.sum(jnp.where(later, share, 0.0), axis=0) <= most
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    latest = jnp.max(order, axis=0)
    _, first = jax.lax.fori_loop(0, 31, halve, (jnp.zeros_like(latest), latest))
    return jax.lax.bitcast_convert_type(first, jnp.float32)


def _first_gap(begins_in_s: Array, leaves_in_s: Array, shares: list[Array], left: list[Array]) -> Array:
    """[seats, *streams] the first time, now or as something leaves, at which what runs then takes no more than is left;
    arguments as of `_first_enough`, and when each slot begins to be taken."""

    def enough(at_s: Array) -> Array:
        runs = (begins_in_s <= at_s[None]) & (leaves_in_s > at_s[None])
        fits = jnp.ones(at_s.shape, bool)
        for share, most in zip(shares, left, strict=True):
            fits &= jnp.sum(jnp.where(runs, share, 0.0), axis=0) <= most
        return fits

    def earlier(slot: Array, first_s: Array) -> Array:
        at_s = jax.lax.dynamic_index_in_dim(leaves_in_s, slot.astype(jnp.uint32), 0, False)
        return jnp.where(enough(at_s), jnp.minimum(first_s, at_s), first_s)

    now_s = jnp.zeros_like(leaves_in_s[0])
    first_s = jnp.where(enough(now_s), now_s, jnp.inf)
    first_s = jax.lax.fori_loop(0, len(leaves_in_s), earlier, first_s)
    return jnp.where(jnp.isfinite(first_s), first_s, jnp.max(leaves_in_s, axis=0))
