"""What a placement does to those on its node that go after it: who runs is driven out, who waits is planned anew.

The fate of an offer is drawn as it is made, as if nothing came after it. Where queues go before others and drive out
(`priorities`), that is not the end of it: a request of low rank begins, is driven out, and begins again, whoever comes.
So once a request is placed, what its node holds is played ahead, event by event, by the runs that are drawn already:

* where what runs is more than there is room for, the one of the lowest rank that began last is driven out;
* of those that wait, the first by rank and arrival that has room begins, and runs in full: one that has none is passed;
* else time goes on to the next start or end.

A request has room if it fits beside those that run and go before it or are its equals. Those of the first rank keep the
starts that were drawn for them.

The log keeps the last start alone. Of a request that may have been driven out, since one of higher rank came to its
node while it waited, the first start is inferred: when there was room (`may_be_driven_out`).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.placement.availability import share_per_unit
from twin.placement.priorities import Priorities
from twin.placement.slots import slot_at
from twin.placement.types import Cluster, PlacementState

MOST_EVENTS = 128
"""On a node, that are looked ahead to at a placement, at most."""
_TOLERANCE = 1e-5


class _Planning(NamedTuple):
    """A node of every stream on the way through its next events."""

    number: Array  # [] int32
    at_s: Array  # [*streams]
    begin_s: Array  # [depth, *streams]
    end_s: Array
    waits: Array  # bool: it has no start yet
    is_open: Array  # [*streams] bool: there is something left to happen


def moved_fates(
    cluster: Cluster, state: PlacementState, node: Array, slots: Array, start_s: Array, finish_s: Array
) -> tuple[Array, Array]:
    """The fates of all requests once those in hand are placed.

    Args:
        cluster: With priorities that drive out.
        state: Before the placement.
        node: [seats, *streams] int32, where the requests in hand are placed.
        slots: [seats, streams] their places (`bookkeeping.choose_slots`), out of range where one is not placed.
        start_s, finish_s: [nodes, depth, *streams] fates, those of the requests in hand among them.

    Returns:
        `start_s` and `finish_s`, later where a request is driven out.
    """
    for seat in range(node.shape[0]):
        start_s, finish_s = _moved(cluster, state, seat, node[seat], slots[seat], start_s, finish_s)
    return start_s, finish_s


def place_on_node(
    node: Array, slot: Array, fates: Array
) -> tuple[Array, Array, Array, Callable[[Array], Array]]:
    """Where one request is placed.

    Args:
        node: [*streams] int32.
        slot: [streams] its place, out of range where it is not placed.
        fates: [nodes, depth, *streams].

    Returns:
        [*streams] bool: whether it is placed; [depth, ...] the numbers of a node's slots; [depth, *streams] bool: which
        of them is its own; and a function that takes leaves [nodes, depth, *streams] at its node.
    """
    depth = fates.shape[1]
    own_slot = slot_at(fates.shape, slot)
    placed = own_slot < depth
    index = jnp.arange(depth).reshape((-1,) + (1,) * own_slot.ndim)

    def here(leaf: Array) -> Array:
        return jnp.take_along_axis(leaf, node[None, None], axis=0)[0]

    return placed, index, index == own_slot[None], here


def _moved(
    cluster: Cluster,
    state: PlacementState,
    seat: int,
    node: Array,
    slot: Array,
    start_s: Array,
    finish_s: Array,
) -> tuple[Array, Array]:
    table, ranks = state.in_flight, cluster.priorities
    assert ranks is not None
    placed, index, is_own, here = place_on_node(node, slot, start_s)
    own_rank = ranks.of(state.request.queue[seat], jnp)
    rank = jnp.where(is_own, own_rank[None], here(table.rank))
    shares, begin_s, end_s = [], here(start_s), here(finish_s)
    for resource in cluster.limited:
        per_unit = share_per_unit(cluster, resource, node)
        demand = jnp.where(is_own, state.request.demand[resource, seat][None], here(table.demand[resource]))
        shares.append(demand * per_unit[None])
    clock_s, none = state.clock_s, jnp.float32(jnp.inf)
    arrival_s = jnp.where(is_own, clock_s[None], here(table.arrival_s))
    lives = (end_s > clock_s[None]) & jnp.isfinite(begin_s) & jnp.isfinite(end_s) & placed[None]
    run_s, lowest = jnp.where(lives, end_s - begin_s, 0.0), max(ranks.rank)

    def first_of(chosen: Array, order: Array, time_s: Array) -> Array:
        """[depth, *streams] of the chosen of the least order the one of the least time, if there is any."""
        alike = chosen & (order == jnp.min(jnp.where(chosen, order, lowest + 1), axis=0)[None])
        return alike & (index == jnp.argmin(jnp.where(alike, time_s, none), axis=0)[None])

    def happen(carry: _Planning) -> _Planning:
        """What happens next on the node of every stream: one is driven out, or begins, or time goes on."""
        at_s, begin_s, end_s, waits = carry.at_s, carry.begin_s, carry.end_s, carry.waits
        runs = lives & ~waits & (begin_s <= at_s[None]) & (end_s > at_s[None])
        short, room = jnp.zeros(runs.shape, bool), jnp.ones(runs.shape, bool)
        for share in shares:
            taken = _before(jnp.where(runs, share, 0.0), rank, lowest)
            short |= taken > 1.0 + _TOLERANCE
            room &= taken + share <= 1.0 + _TOLERANCE
        leaves = first_of(short & runs & (rank > 0), -rank, -begin_s)
        one_leaves = jnp.any(leaves, axis=0)[None]
        starts = first_of(waits & room & ~one_leaves, rank, arrival_s)
        goes_on = ~(one_leaves | jnp.any(starts, axis=0)[None])[0]
        events = jnp.where(lives & ~waits, jnp.where(begin_s > at_s[None], begin_s, end_s), none)
        next_s = jnp.min(jnp.where(events > at_s[None], events, none), axis=0)
        return _Planning(
            carry.number + 1,
            jnp.where(goes_on & jnp.isfinite(next_s), next_s, at_s),
            jnp.where(starts, at_s[None], begin_s),
            jnp.where(starts, at_s[None] + run_s, end_s),
            (waits | leaves) & ~starts,
            ~goes_on | jnp.any(waits | (lives & (begin_s > at_s[None])), axis=0),
        )

    begun = lives & ((begin_s <= clock_s[None]) | (rank == 0) | is_own)
    planned = jax.lax.while_loop(
        lambda carry: (carry.number < MOST_EVENTS) & jnp.any(carry.is_open),
        happen,
        _Planning(jnp.int32(0), clock_s, begin_s, end_s, lives & ~begun, placed),
    )
    # What still waits after so many events begins after the last of them, at the earliest
    late_s = jnp.maximum(begin_s, planned.at_s[None])
    begin_s = jnp.where(planned.waits, late_s, planned.begin_s)
    end_s = jnp.where(planned.waits, late_s + run_s, planned.end_s)
    at_node = (jnp.arange(start_s.shape[0]).reshape((-1,) + (1,) * node.ndim) == node[None])[:, None]
    return jnp.where(at_node, begin_s[None], start_s), jnp.where(at_node, end_s[None], finish_s)


def _before(values: Array, rank: Array, lowest: int) -> Array:
    """[depth, *streams] for each the sum of the values of those of its rank or before it."""
    summed = jnp.zeros_like(values)
    for level in range(lowest + 1):
        of_level = jnp.sum(jnp.where(rank <= level, values, 0.0), axis=0)
        summed = jnp.where(rank == level, of_level[None], summed)
    return summed


def may_be_driven_out(
    priorities: Priorities, queue: np.ndarray, node: np.ndarray, arrival_s: np.ndarray, start_s: np.ndarray
) -> np.ndarray:
    """[rows] bool: whether a request of higher rank came to the node between arrival and start.

    Args:
        priorities: Of the log.
        queue, node, arrival_s: [rows] in order of arrival.
        start_s: [rows] the last start; inf where unknown.
    """
    found = np.zeros(len(queue), bool)
    if not priorities.preempts:
        return found
    rank = priorities.of(queue, np)
    for one in np.unique(node[node >= 0]):
        for level in range(1, int(rank.max(initial=0)) + 1):
            rows = np.flatnonzero((node == one) & (rank == level) & np.isfinite(start_s))
            higher_s = arrival_s[(node == one) & (rank < level)]
            later = np.searchsorted(higher_s, start_s[rows], side="right")
            found[rows] = later > np.searchsorted(higher_s, arrival_s[rows], side="right")
    return found
