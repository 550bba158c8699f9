"""The hybrid strategy's estimates of service times: `E <- lambda E + (1 - lambda) T` (KMPS, eq. 3).

`T` is the mean over the service's requests completed in a long slot: at access points from dispatch to the answer, at
nodes the service alone. Before anything is known, `E` is the mean work that the service declares.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Streams
from twin.orchestration import nodes, queues
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.nodes import HeldRequests
from twin.orchestration.queues import Queues
from twin.placement.features import one_hot
from twin.placement.types import COMPLETED, InFlight


class Estimates(NamedTuple):
    """Estimates of services; leaves [services, *streams]."""

    eap_s: Array  # from dispatch to answer
    node_s: Array  # of service alone
    eap_sum_s: Array  # over the requests completed in this long slot
    node_sum_s: Array
    completed: Array  # how many those are


def first_estimates(case: EdgeCloud, streams: Streams) -> Estimates | None:
    """What services declare; None where no strategy uses it."""
    if not case.adapts:
        return None
    work_s = case.work_s.reshape((-1,) + (1,) * len(streams))
    expected = jnp.broadcast_to(work_s, (len(case.work_s), *streams))
    zero = jnp.zeros(expected.shape, jnp.float32)
    return Estimates(expected, expected, zero, zero, zero)


def response_aux(
    estimates: Estimates, held: HeldRequests, table: InFlight, from_s: Array, until_s: Array
) -> Estimates:
    """Notes the requests whose service ended in the slot.

    Args:
        estimates: So far.
        held: What the nodes hold after the slot.
        table: The bookkeeping's table before it, which holds when requests were sent.
        from_s, until_s: [*streams] the slot.
    """
    begin, now = from_s[None, None], until_s[None, None]
    ended = (held.status == COMPLETED) & (held.end_s > begin) & (held.end_s <= now)
    whole_s = nodes.finishes(held) - table.arrival_s
    service_s = held.end_s - held.start_s
    flat = tuple(
        leaf.reshape((-1, *from_s.shape))
        for leaf in (ended, jnp.where(ended, whole_s, 0.0), jnp.where(ended, service_s, 0.0), held.service)
    )
    whose = one_hot(flat[3], estimates.eap_s.shape[0])

    def by_service(value: Array) -> Array:
        return jnp.sum(jnp.where(whose, value[None], 0.0), axis=1)

    return estimates._replace(
        eap_sum_s=estimates.eap_sum_s + by_service(flat[1]),
        node_sum_s=estimates.node_sum_s + by_service(flat[2]),
        completed=estimates.completed + by_service(flat[0]),
    )


def learn(
    case: EdgeCloud, estimates: Estimates, waiting: Queues, held: HeldRequests, slot: Array, until_s: Array
) -> tuple[Estimates, Queues, HeldRequests]:
    """At the end of a long slot, new estimates, and the requests that have become urgent promoted."""
    config = case.config

    def moved(past_s: Array, sum_s: Array) -> Array:
        mean_s = sum_s / jnp.maximum(estimates.completed, 1.0)
        mixed_s = config.estimate_memory * past_s + (1.0 - config.estimate_memory) * mean_s
        return jnp.where(estimates.completed > 0.0, mixed_s, past_s)

    def promote() -> tuple[Estimates, Queues, HeldRequests]:
        eap_s = moved(estimates.eap_s, estimates.eap_sum_s)
        node_s = moved(estimates.node_s, estimates.node_sum_s)
        zero = jnp.zeros_like(eap_s)
        return (
            Estimates(eap_s, node_s, zero, zero, zero),
            queues.promote_urgent(waiting, eap_s, until_s) if config.eap_queue.adapts else waiting,
            nodes.promote_urgent(held, node_s, until_s) if config.node_queue.adapts else held,
        )

    return jax.lax.cond(slot % config.slots_per_promotion == 0, promote, lambda: (estimates, waiting, held))
