"""The nodes: requests on their way, waiting for a replica and a core, being served, sending their answers back.

Leaves are [nodes, places, *streams], under the same places as the bookkeeping's table of requests in flight. At every
slot boundary, in this order: work that ended in the slot frees its replica and its core; what is late is dropped and
frees what it held; what has arrived starts where a replica of its service and a core are idle, in the order of the
dequeue strategy, a request that cannot start not holding up those behind it (KMPS, III-A.3). Ends of service are exact
in time; starts are at boundaries.

    arrives = dispatch + latency * noise + input / bandwidth
    end     = start + declared work * scatter / (speed * affinity)
    finish  = end + latency * noise + output / bandwidth                     the answer, if there is one, is back

On a node of the discipline "fifo" a request needs a core to start and keeps it to its end; on one of the discipline
"ps" it needs none, and n requests share c cores, each at the rate `min(1, c / n)`, which changes at boundaries. In the
limit of short slots, with more replicas than requests, that is M/G/c-PS. A node that goes down fails what it holds.

Who starts is found by counting, without sorting and without a loop over requests: one starts if fewer requests of its
service that come before it are waiting than replicas are idle, and of those fewer come before it than cores are idle.
That is the greedy order exactly, since every request uses one core at most.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Streams
from twin.orchestration.dequeue import promote
from twin.orchestration.queues import look_up
from twin.placement.types import COMPLETED, DROPPED, FAILED, UNKNOWN


class HeldRequests(NamedTuple):
    """What the nodes hold; times on the episode's clock, inf where not yet."""

    arrives_s: Array  # when the input is there; inf in places that never held a request
    late_s: Array
    key: Array  # the smallest starts first
    service: Array  # int32
    replicas: Array  # float32: replicas of the request's service on its node
    left_s: Array  # seconds of service left, at full speed
    back_s: Array  # what the answer takes to the client
    start_s: Array
    end_s: Array  # of service, or when dropped
    status: Array  # int32


class Capacity(NamedTuple):
    """What nodes can do; leaves [nodes, *1] beside [nodes, *streams]."""

    cores: Array
    at_once: Array  # requests in service at once


class Served(NamedTuple):
    """What a slot did; leaves [*streams]."""

    dropped: Array  # int32
    failed: Array  # int32
    core_s: Array  # core-seconds of service


def nothing_held(num_nodes: int, places: int, streams: Streams) -> HeldRequests:
    """Empty nodes."""
    shape = (num_nodes, places, *streams)
    never, zero = jnp.full(shape, jnp.inf, jnp.float32), jnp.zeros(shape, jnp.float32)
    index, unknown = jnp.zeros(shape, jnp.int32), jnp.full(shape, UNKNOWN, jnp.int32)
    return HeldRequests(never, never, zero, index, zero, zero, zero, never, never, unknown)


def file(held: HeldRequests, places: Array, new: HeldRequests) -> HeldRequests:
    """Files requests under their places.

    Args:
        held: What the nodes hold.
        places: [seats, streams] flat places as `choose_slots` gives them; out of range for those not to be filed.
        new: Leaves [seats, *streams].

    Returns:
        What they hold then.
    """
    where = places.reshape(-1)

    def put(leaf: Array, value: Array) -> Array:
        flat = leaf.reshape(-1).at[where].set(value.reshape(-1), mode="drop", unique_indices=True)
        return flat.reshape(leaf.shape)

    return HeldRequests(*(put(leaf, value) for leaf, value in zip(held, new, strict=True)))


def serve(
    held: HeldRequests,
    capacity: Capacity,
    from_s: Array,
    until_s: Array,
    drop_served: bool,
    up: Array | None = None,
) -> tuple[HeldRequests, Served]:
    """One slot of service, to the boundary `until_s` and what happens there.

    Args:
        held: What the nodes hold.
        capacity: Of the nodes.
        from_s, until_s: [*streams] the slot.
        drop_served: Late requests are dropped even while they are served.
        up: [nodes, *streams] bool: the nodes that are up at `until_s`; None: all.

    Returns:
        What they hold then, and what happened.
    """
    begin, now = from_s[None, None], until_s[None, None]
    running = (held.start_s <= begin) & (held.end_s > begin)
    rate = jnp.minimum(1.0, capacity.cores / jnp.maximum(_count(running), 1.0))[:, None]
    ends = running & (held.left_s <= rate * (now - begin))
    end_s = jnp.where(ends, jnp.minimum(begin + held.left_s / rate, now), held.end_s)
    left_s = jnp.where(running, held.left_s - rate * (now - begin), held.left_s)
    worked_s = jnp.where(running, rate * (jnp.minimum(end_s, now) - begin), 0.0)
    open_ = jnp.isinf(end_s) & jnp.isfinite(held.arrives_s)
    fails = jnp.zeros_like(open_) if up is None else open_ & ~up[:, None]
    late = open_ & (held.late_s < now) & ~fails
    if not drop_served:
        late &= jnp.isinf(held.start_s)
    end_s = jnp.where(late | fails, now, end_s)
    status = jnp.where(ends, COMPLETED, jnp.where(late, DROPPED, jnp.where(fails, FAILED, held.status)))
    left_s, end_s, status = jax.lax.optimization_barrier((left_s, end_s, status))  # else computed again below
    held = held._replace(left_s=left_s, end_s=end_s, status=status)
    starts = _starting(held, capacity, now)
    held = held._replace(start_s=jnp.where(starts, now, held.start_s))
    return held, Served(_total(late), _total(fails), jnp.sum(worked_s, axis=(0, 1)))


def _total(mask: Array) -> Array:
    return jnp.sum(mask, axis=(0, 1), dtype=jnp.int32)


def _starting(held: HeldRequests, capacity: Capacity, now: Array) -> Array:
    """[nodes, places, *streams] bool: who starts at the boundary `now`."""
    open_ = jnp.isinf(held.end_s)
    running = open_ & (held.start_s < now)
    waiting = open_ & jnp.isinf(held.start_s) & (held.arrives_s <= now)
    key = jnp.where(waiting, held.key, jnp.inf)
    holding = jnp.where(running, -jnp.inf, key)  # who is served comes before all who wait
    served = waiting & (_ahead(holding, key, held.arrives_s, held.service) < held.replicas)
    key = jnp.where(served, held.key, jnp.inf)
    startable = (capacity.at_once - _count(running))[:, None]
    return served & (_ahead(key, key, held.arrives_s, None) < startable)


def _ahead(others: Array, own: Array, arrives_s: Array, service: Array | None) -> Array:
    """How many others at the same node come before: by key, then by arrival, then by place; of the same service only,
    where that is given. One pass over the places: unrolled, the compiler computed it all again for each of them.

    Args:
        others: [nodes, places, *streams] keys as they count for others; inf for those who do not count.
        own: [nodes, places, *streams] keys as they count for oneself.
        arrives_s: Ties.
        service: [nodes, places, *streams] int32 or None.

    Returns:
        [nodes, places, *streams] float32.
    """
    others, own, arrives_s = jax.lax.optimization_barrier((others, own, arrives_s))
    index = jnp.arange(own.shape[1]).reshape((1, -1) + (1,) * (own.ndim - 2))

    def add(place: Array, sofar: Array) -> Array:
        def other(leaf: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(leaf, place, 1, axis=1)

        key, came_s = other(others), other(arrives_s)
        earlier = (came_s < arrives_s) | ((came_s == arrives_s) & (place < index))
        counts = (key < own) | ((key == own) & (key < jnp.inf) & earlier)
        if service is not None:
            counts &= other(service) == service
        return sofar + jnp.where(counts, 1.0, 0.0)

    return jax.lax.fori_loop(0, own.shape[1], add, jnp.zeros(own.shape, jnp.float32))


def _count(mask: Array) -> Array:
    return jnp.sum(mask, axis=1, dtype=jnp.float32)


def revealed(held: HeldRequests, until_s: Array) -> tuple[Array, Array, Array]:
    """Starts, finishes and statuses as the access points know them at `until_s` [*streams]; inf where not yet.

    A start is known at once, the end of service when the answer is back.
    """
    now = until_s[None, None]
    finish_s = finishes(held)
    return held.start_s, jnp.where(finish_s <= now, finish_s, jnp.inf), held.status


def finishes(held: HeldRequests) -> Array:
    """When the answers are back, or the requests were dropped; inf where that is not settled."""
    return held.end_s + jnp.where(held.status == COMPLETED, held.back_s, 0.0)


def promote_urgent(held: HeldRequests, estimate_s: Array, until_s: Array) -> HeldRequests:
    """The nodes after a long slot of the hybrid strategy; `estimate_s` [services, *streams]."""
    expected = look_up(estimate_s, held.service)
    return held._replace(key=promote(held.key, held.late_s, expected, until_s[None, None]))
