"""When a node will have room for a request, by what is already fated of those before it.

Answers are drawn one after another, in the order of the decisions, so each may depend on those before it: the chain
rule of probability, without an assumption. What a queue makes of a new request is decided by when those ahead of it
will be done. No policy sees that, but the system that answers has settled it already. A network that knows it has only
to learn what the queue does not explain, and what it draws cannot drift away from the queue that it draws itself.

Exact for nodes that serve first come, first served (J. Kiefer and J. Wolfowitz, On the theory of queues with many
servers, 1955); for other disciplines, and for classes of machines summed up, a hint like any other.
"""

import jax.numpy as jnp

from twin.contracts import Array
from twin.placement.slots import fold_slots
from twin.placement.types import EMPTY, Cluster, PlacementState

_TOLERANCE = 1e-5


def room_in_s(cluster: Cluster, state: PlacementState, node: Array) -> Array:
    """Seconds until the requests already on a node leave room for the one in hand.

    Args:
        cluster: For the capacities; what a node has without limit never lacks.
        state: With every fate that is drawn already filled in (`Response.foretell`); leaves [..., *streams]. Where the
            end of a request is not known, its expected run time stands in.
        node: [seats, *streams] int32, the offers.

    Returns:
        [seats, *streams] >= 0.
    """
    table, clock = state.in_flight, state.clock_s[None, None]

    def here(leaf: Array) -> Array:
        """[depth, seats, *streams] of the offered node."""
        return jnp.take_along_axis(leaf[:, :, None], node[None, None], axis=0)[0]

    start_s, finish_s = here(table.start_s), here(table.finish_s)
    begins_s = jnp.where(jnp.isfinite(start_s), start_s, clock)
    ends_s = jnp.where(jnp.isfinite(finish_s), finish_s, begins_s + here(table.expected_run_s))
    given_up = jnp.isfinite(finish_s) & ~jnp.isfinite(start_s)
    holds = (here(table.decision) != EMPTY) & ~given_up
    until_s = jnp.where(holds, jnp.maximum(ends_s, clock), clock)

    enough = jnp.ones(until_s.shape, bool)
    enough_now = jnp.ones(node.shape, bool)
    for resource in cluster.limited:
        capacity = jnp.asarray(cluster.capacity[resource], jnp.float32)[node]
        limited = jnp.isfinite(capacity)
        share = jnp.where(
            limited[None] & holds, here(table.demand[resource]) / jnp.maximum(capacity, 1e-9)[None], 0.0
        )
        asked = jnp.where(limited, state.request.demand[resource] / jnp.maximum(capacity, 1e-9), 0.0)
        left = 1.0 + _TOLERANCE - jnp.minimum(asked, 1.0)
        enough &= _held_after(until_s, share) <= left[None]
        enough_now &= jnp.sum(jnp.where(until_s > clock, share, 0.0), axis=0) <= left
    ready_s = jnp.min(jnp.where(enough, until_s, jnp.inf), axis=0)
    ready_s = jnp.where(jnp.isfinite(ready_s), ready_s, jnp.max(until_s, axis=0))
    return jnp.where(enough_now, 0.0, ready_s - state.clock_s[None])


def _held_after(until_s: Array, share: Array) -> Array:
    """[depth, seats, *streams]: what is still held when each slot's time [depth, seats, *streams] has come."""

    def per_slot(leaves: tuple[Array, ...], _: Array) -> Array:
        end_s, of_slot = leaves  # [1, seats, *streams]
        return jnp.where(end_s > until_s, of_slot, 0.0)

    return fold_slots(per_slot, jnp.add, (until_s[None], share[None]))
