"""What a placement does to those that wait on its node where requests do not start in the order in which they came.

The fate of an offer is drawn as it is made, as if nothing came after it. Where a node starts the shortest first, say
(`disciplines`), whoever waits behind the new one begins later. So once a request is placed, what its node holds is
played ahead, event by event, by the runs that are drawn already: of those that are due and have room the first by the
node's order begins, and runs in full; else time goes on to the next start or end. Who runs goes on.

The log keeps starts as they came to be. Of a request that was overtaken, since one that goes first came to its node
while it waited, the start that it had in view as it came is inferred: when there was room (`overtaken`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.placement.availability import share_per_unit
from twin.placement.disciplines import Disciplines
from twin.placement.driving_out import place_on_node
from twin.placement.ranks import rank_in_hand
from twin.placement.types import Cluster, PlacementState, Requests

MOST_EVENTS = 256
"""On a node, that are looked ahead to at a placement, at most."""
_TOLERANCE = 1e-5
_ROUNDED = 1e-4, 5e-7
"""Shares of the time from now, and of the clock, by which instants that are worked out again may differ."""


def overtaken(
    disciplines: Disciplines, request: Requests, node: np.ndarray, arrival_s: np.ndarray, start_s: np.ndarray
) -> np.ndarray:
    """[rows] bool: whether a request that goes first came to the node between arrival and start.

    Args:
        disciplines: Of the log.
        request: Leaves [rows], in order of arrival.
        node: [rows] -1 where unknown.
        arrival_s, start_s: [rows] inf where unknown.
    """
    key = disciplines.key(node, arrival_s, request.expected_run_s, request.deadline_s, np)
    found = np.zeros(len(node), bool)
    for one in np.flatnonzero(disciplines.of_node):
        here = np.flatnonzero(node == one)
        arrives_s, keys = arrival_s[here], key[here]
        until = np.searchsorted(arrives_s, start_s[here])
        for place in np.flatnonzero(until > np.arange(len(here)) + 1):
            found[here[place]] = np.any(keys[place + 1 : until[place]] < keys[place])
    return found


class _NextStarts(NamedTuple):
    """A node of every stream on the way through its next events, in seconds from now."""

    number: Array  # [] int32
    at_s: Array  # [*streams]
    begin_s: Array  # [depth, *streams]
    waits: Array  # bool: it has no start yet


def moved_fates(
    cluster: Cluster, state: PlacementState, node: Array, slots: Array, start_s: Array, finish_s: Array
) -> tuple[Array, Array]:
    """The fates of all requests once those in hand are placed.

    Args:
        cluster: With disciplines.
        state: Before the placement.
        node: [seats, *streams] int32, where the requests in hand are placed.
        slots: [seats, streams] their places (`bookkeeping.choose_slots`), out of range where one is not placed.
        start_s, finish_s: [nodes, depth, *streams] fates, those of the requests in hand among them.

    Returns:
        `start_s` and `finish_s`, later where a request is overtaken.
    """
    assert cluster.disciplines is not None
    own_rank = rank_in_hand(cluster, state, node, jnp)
    for seat in range(node.shape[0]):
        start_s, finish_s = _moved(
            cluster, state, seat, own_rank[seat], node[seat], slots[seat], start_s, finish_s
        )
    return start_s, finish_s


def _moved(
    cluster: Cluster,
    state: PlacementState,
    seat: int,
    own_rank: Array,
    node: Array,
    slot: Array,
    start_s: Array,
    finish_s: Array,
) -> tuple[Array, Array]:
    assert cluster.disciplines is not None
    table, clock, none = state.in_flight, state.clock_s[None], jnp.float32(jnp.inf)
    placed, index, is_own, here = place_on_node(node, slot, start_s)
    placed &= cluster.disciplines.orders(node, jnp)
    rank = jnp.where(is_own, own_rank[None], here(table.rank))
    shares = []
    for resource in cluster.limited:
        demand = jnp.where(is_own, state.request.demand[resource, seat][None], here(table.demand[resource]))
        shares.append(demand * share_per_unit(cluster, resource, node)[None])
    begin_s, end_s = here(start_s) - clock, here(finish_s) - clock
    lives = (end_s > 0.0) & jnp.isfinite(begin_s) & jnp.isfinite(end_s) & placed[None]
    run_s = jnp.where(lives, end_s - begin_s, 0.0)

    def happen(carry: _NextStarts) -> _NextStarts:
        """What happens next on the node of every stream: one begins, or time goes on."""
        at_s, begin_s, waits = carry.at_s, carry.begin_s, carry.waits
        runs = lives & ~waits & (begin_s + run_s > at_s[None])
        due_s = at_s + _ROUNDED[0] * at_s + _ROUNDED[1] * jnp.abs(state.clock_s)
        due = waits & (begin_s <= due_s[None])
        for share in shares:
            taken = jnp.sum(jnp.where(runs, share, 0.0), axis=0)
            due &= (taken[None] + share <= 1.0 + _TOLERANCE) | ~jnp.any(runs, axis=0)[None]
        starts = due & (index == jnp.argmin(jnp.where(due, rank, none), axis=0)[None])
        goes_on = ~jnp.any(starts, axis=0)
        to_come_s = jnp.where(waits & (begin_s > due_s[None]), begin_s, none)
        to_come_s = jnp.minimum(to_come_s, jnp.where(runs, begin_s + run_s, none))
        next_s = jnp.min(to_come_s, axis=0)
        return _NextStarts(
            carry.number + 1,
            jnp.where(goes_on & jnp.isfinite(next_s), next_s, at_s),
            jnp.where(starts, jnp.maximum(begin_s, at_s[None]), begin_s),
            waits & ~starts,
        )

    def is_open(carry: _NextStarts) -> Array:
        return (carry.number < MOST_EVENTS) & jnp.any(carry.waits)

    first = _NextStarts(jnp.int32(0), jnp.zeros_like(begin_s[0]), begin_s, lives & (begin_s > 0.0))
    last = jax.lax.while_loop(is_open, happen, first)
    # What still waits after so many events begins after the last of them, at the earliest
    moved_s = jnp.where(last.waits, jnp.maximum(last.begin_s, last.at_s[None]), last.begin_s)
    at_node = (jnp.arange(start_s.shape[0]).reshape((-1,) + (1,) * node.ndim) == node[None])[:, None]
    later = at_node & (lives & (moved_s > begin_s))[None]
    return (
        jnp.where(later, (moved_s + clock)[None], start_s),
        jnp.where(later, (moved_s + run_s + clock)[None], finish_s),
    )
