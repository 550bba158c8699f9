"""What a placement does to those on its node where runs slow each other: all that runs there ends later.

The fate of an offer is drawn as it is made: a start, and a work that is done at full pace. Once a request is placed,
what its node holds is played ahead, event by event, by the works that are left: whoever is due begins as soon as what
runs leaves room, time goes on to the next start or end, and every run is as fast as those beside it let it be (`pace`).
What is left of the works is read off the fates as they stood before, by playing these.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array
from twin.placement.availability import share_of_place, share_per_unit
from twin.placement.driving_out import place_on_node
from twin.placement.pace import Pace
from twin.placement.types import CORES, Cluster, InFlight, PlacementState

MOST_EVENTS = 256
"""On a node, that are looked ahead to at a placement, at most."""
_TOLERANCE = 1e-5
_ROUNDED = 1e-4, 5e-7
"""Shares of the time from now, and of the clock, by which instants that are worked out again may differ."""
PLACE = -1
"""Beside `RESOURCES`: each request takes one of its node's places, where these are limited."""


class _OnNode(NamedTuple):
    """What a node holds; leaves [depth, *batch], a batch being streams, or nodes and streams."""

    lives: Array  # bool: it has not ended
    pressure: Array
    arrival_s: Array
    shares: dict[int, Array]  # resource, or PLACE -> what it takes of the node's whole


class _NextEvents(NamedTuple):
    """A node on the way through its next events, in seconds from now."""

    number: Array  # [] int32
    at_s: Array  # [*batch]
    begin_s: Array  # [depth, *batch]
    left_s: Array  # of the work
    end_s: Array  # inf: not yet
    begun: Array  # bool


def moved_fates(
    cluster: Cluster, state: PlacementState, node: Array, slots: Array, start_s: Array, finish_s: Array
) -> tuple[Array, Array]:
    """The fates of all requests once those in hand are placed.

    Args:
        cluster: With a pace.
        state: Before the placement.
        node: [seats, *streams] int32, where the requests in hand are placed.
        slots: [seats, streams] their places (`bookkeeping.choose_slots`), out of range where one is not placed.
        start_s, finish_s: [nodes, depth, *streams] fates; those of the requests in hand at full pace.

    Returns:
        `start_s` and `finish_s`, later where runs slow each other.
    """
    for seat in range(node.shape[0]):
        start_s, finish_s = _moved(cluster, state, seat, node[seat], slots[seat], start_s, finish_s)
    return start_s, finish_s


def planned_fates(
    cluster: Cluster, table: InFlight, clock_s: Array, start_s: Array, finish_s: Array
) -> tuple[Array, Array]:
    """The fates of what is in flight as an episode begins, if nothing comes.

    Args:
        cluster: With a pace.
        table: What is in flight.
        clock_s: [*streams] now.
        start_s, finish_s: [nodes, depth, *streams] fates; what is left of the works is done at full pace from then on.
    """

    def by_node(leaf: Array) -> Array:  # [nodes, depth, ...] -> [depth, nodes, ...]
        return jnp.moveaxis(leaf, 1, 0)

    now = clock_s[None, None]
    begin_s, end_s = by_node(start_s) - now, by_node(finish_s) - now
    nodes = jnp.arange(start_s.shape[0]).reshape((-1,) + (1,) * clock_s.ndim)
    held = _held(cluster, table, by_node, nodes, (end_s > 0.0) & jnp.isfinite(begin_s) & jnp.isfinite(end_s))
    left_s = end_s - jnp.maximum(begin_s, 0.0)
    new_begin_s, new_end_s = _planned(cluster, held, clock_s[None], begin_s, left_s)
    lives = by_node(held.lives)
    return (
        jnp.where(lives, by_node(new_begin_s + now), start_s),
        jnp.where(lives, by_node(new_end_s + now), finish_s),
    )


def _moved(
    cluster: Cluster,
    state: PlacementState,
    seat: int,
    node: Array,
    slot: Array,
    start_s: Array,
    finish_s: Array,
) -> tuple[Array, Array]:
    placed, _, is_own, here = place_on_node(node, slot, start_s)
    clock = state.clock_s[None]
    begin_s, end_s = here(start_s) - clock, here(finish_s) - clock
    lives = (end_s > 0.0) & jnp.isfinite(begin_s) & jnp.isfinite(end_s) & placed[None]
    held = _held(cluster, state.in_flight, here, node, lives)
    request = state.request
    pressure = _pressure(cluster)[request.service[seat]]
    held = held._replace(
        pressure=jnp.where(is_own, pressure[None], held.pressure),
        arrival_s=jnp.where(is_own, clock, held.arrival_s),
        shares={
            resource: share
            if resource == PLACE
            else jnp.where(
                is_own,
                (request.demand[resource, seat] * share_per_unit(cluster, resource, node))[None],
                share,
            )
            for resource, share in held.shares.items()
        },
    )
    before = held._replace(lives=lives & ~is_own)
    left_s = jnp.where(is_own, end_s - begin_s, _left_s(cluster, before, begin_s, end_s))
    new_begin_s, new_end_s = _planned(cluster, held, state.clock_s, begin_s, left_s)
    at_node = (jnp.arange(start_s.shape[0]).reshape((-1,) + (1,) * node.ndim) == node[None])[:, None]
    changed = at_node & lives[None]
    return (
        jnp.where(changed, (new_begin_s + clock)[None], start_s),
        jnp.where(changed, (new_end_s + clock)[None], finish_s),
    )


def _pressure(cluster: Cluster) -> Array:
    return jnp.asarray(_pace(cluster).pressure, jnp.float32)


def _pace(cluster: Cluster) -> Pace:
    assert cluster.pace is not None
    return cluster.pace


def _held(
    cluster: Cluster, table: InFlight, here: Callable[[Array], Array], node: Array, lives: Array
) -> _OnNode:
    shares = {
        resource: here(table.demand[resource]) * share_per_unit(cluster, resource, node)[None]
        for resource in cluster.limited
    }
    if cluster.places:
        shares[PLACE] = jnp.broadcast_to(share_of_place(cluster, node), lives.shape)
    return _OnNode(lives, _pressure(cluster)[here(table.service)], here(table.arrival_s), shares)


def _slowdown(cluster: Cluster, held: _OnNode, runs: Array) -> Array:
    """[depth, *batch] by how much each of the runs is slowed."""
    pressing = jnp.where(runs, held.pressure, 0.0)
    slowdown = 1.0 + jnp.maximum(jnp.sum(pressing, axis=0)[None] - held.pressure, 0.0)
    if _pace(cluster).shares and CORES in held.shares:
        in_use = jnp.sum(jnp.where(runs, held.shares[CORES], 0.0), axis=0)
        slowdown = slowdown * jnp.maximum(in_use, 1.0)[None]
    return slowdown


def _left_s(cluster: Cluster, held: _OnNode, begin_s: Array, end_s: Array) -> Array:
    """[depth, *batch] the work that fates leave from now on: what is done until the end, as the fates have it."""

    def happen(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        number, at_s, done_s = carry
        runs = held.lives & (begin_s <= at_s[None]) & (end_s > at_s[None])
        events = jnp.where(held.lives, jnp.where(begin_s > at_s[None], begin_s, end_s), jnp.inf)
        next_s = jnp.min(jnp.where(events > at_s[None], events, jnp.inf), axis=0)
        step_s = jnp.where(jnp.isfinite(next_s), next_s - at_s, 0.0)
        done_s = done_s + jnp.where(runs, step_s[None] / _slowdown(cluster, held, runs), 0.0)
        return number + 1, at_s + step_s, done_s

    def goes_on(carry: tuple[Array, Array, Array]) -> Array:
        number, at_s, _ = carry
        return (number < MOST_EVENTS) & jnp.any(held.lives & (end_s > at_s[None]))

    zero = jnp.zeros_like(begin_s)
    start = jnp.int32(0), jnp.zeros_like(begin_s[0]), zero
    _, at_s, done_s = jax.lax.while_loop(goes_on, happen, start)
    return done_s + jnp.maximum(jnp.where(held.lives, end_s - jnp.maximum(at_s[None], begin_s), 0.0), 0.0)


def _planned(
    cluster: Cluster, held: _OnNode, clock_s: Array, begin_s: Array, left_s: Array
) -> tuple[Array, Array]:
    """[depth, *batch] when each begins and ends, in seconds from now, by the works that are left."""
    index = jnp.arange(begin_s.shape[0]).reshape((-1,) + (1,) * (begin_s.ndim - 1))
    none = jnp.float32(jnp.inf)
    waited_for = {
        resource: share
        for resource, share in held.shares.items()
        if not (_pace(cluster).shares and resource == CORES)
    }

    def happen(carry: _NextEvents) -> _NextEvents:
        """What happens next on every node: one begins, or time goes on."""
        number, at_s, begin_s, left_s, end_s, begun = carry
        runs = held.lives & begun & jnp.isinf(end_s)
        has_room = jnp.ones(runs.shape, bool)
        for share in waited_for.values():
            has_room &= jnp.sum(jnp.where(runs, share, 0.0), axis=0)[None] + share <= 1.0 + _TOLERANCE
        due_s = at_s + _ROUNDED[0] * at_s + _ROUNDED[1] * jnp.abs(clock_s)
        due = held.lives & ~begun & (begin_s <= due_s[None]) & (has_room | ~jnp.any(runs, axis=0)[None])
        if cluster.in_order:
            waits = held.lives & ~begun
            due &= held.arrival_s <= jnp.min(jnp.where(waits, held.arrival_s, none), axis=0)[None]
        first = jnp.argmin(jnp.where(due, held.arrival_s, none), axis=0)
        starts = due & (index == first[None])
        goes_on = ~jnp.any(starts, axis=0)
        in_s = jnp.where(runs, left_s * _slowdown(cluster, held, runs), none)
        to_come_s = jnp.where(held.lives & ~begun & (begin_s > due_s[None]), begin_s - at_s[None], none)
        step_s = jnp.min(jnp.minimum(in_s, to_come_s), axis=0)
        step_s = jnp.where(goes_on & jnp.isfinite(step_s), step_s, 0.0)
        ends = runs & goes_on[None] & (in_s <= step_s[None])
        share_done = jnp.where(runs, step_s[None] / jnp.where(runs, in_s, 1.0), 0.0)
        later_s = at_s + step_s
        return _NextEvents(
            number + 1,
            later_s,
            jnp.where(starts, jnp.maximum(begin_s, at_s[None]), begin_s),
            jnp.where(runs, left_s * (1.0 - share_done), left_s),
            jnp.where(ends, later_s[None], end_s),
            begun | starts,
        )

    def is_open(carry: _NextEvents) -> Array:
        return (carry.number < MOST_EVENTS) & jnp.any(held.lives & jnp.isinf(carry.end_s))

    begun = held.lives & (begin_s <= 0.0)
    never = jnp.full_like(begin_s, jnp.inf)
    start = _NextEvents(jnp.int32(0), jnp.zeros_like(begin_s[0]), begin_s, left_s, never, begun)
    last = jax.lax.while_loop(is_open, happen, start)
    # What has not ended after so many events goes on at full pace
    rest_s = jnp.maximum(last.begin_s, last.at_s[None]) + last.left_s
    return last.begin_s, jnp.where(jnp.isinf(last.end_s), rest_s, last.end_s)
