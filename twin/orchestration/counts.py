"""What slot mode counts while it runs: requests by what became of them, traffic, energy."""

from typing import NamedTuple

import jax.numpy as jnp

from twin.contracts import Array, Streams
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.nodes import HeldRequests, Served, finishes
from twin.orchestration.queues import Entered
from twin.placement.types import COMPLETED


class Counts(NamedTuple):
    """Totals since the beginning; leaves [*streams]. Numbers of requests are int32, the others float32.

    `arrived = turned_away + dropped_waiting + sent + those at the access points`, and
    `sent = refused + dropped_at_node + failed + finished + those at the nodes or on their way`.
    """

    arrived: Array
    turned_away: Array  # the access point's queue was full
    dropped_waiting: Array  # late at the access point
    sent: Array
    refused: Array  # by the agent, or by a node without a place
    dropped_at_node: Array  # late at a node, or on the way
    failed: Array  # with their node
    finished: Array  # the answer is with the client
    on_time: Array  # of those, within the deadline
    forwarded_mib: Array  # inputs sent to another site or to the cloud
    pulled_mib: Array  # images pulled; with `forwarded_mib` the scheduling cost of KaiS, section V
    core_s: Array  # core-seconds of service
    energy_j: Array  # idle nodes, busy cores, traffic (KMPS, figure 10)


def nothing_counted(streams: Streams) -> Counts:
    """All totals zero."""
    number, amount = jnp.zeros(streams, jnp.int32), jnp.zeros(streams, jnp.float32)
    return Counts(*[number] * 9, *[amount] * 4)


class Sent(NamedTuple):
    """The requests that were in hand and left."""

    sent: Array  # [seats, *streams] bool
    accepted: Array  # [seats, *streams] bool
    forwarded_mib: Array  # [*streams] inputs that left their site
    moved_mib: Array  # [*streams] inputs and answers


class Events(NamedTuple):
    """What happened in a slot."""

    sent: Sent
    entered: Entered
    dropped_waiting: Array  # [*streams] int32
    served: Served
    pulled_mib: Array  # [*streams]


def counted(
    case: EdgeCloud, counts: Counts, events: Events, held: HeldRequests, from_s: Array, until_s: Array
) -> Counts:
    """The totals after a slot.

    Args:
        case: For the power.
        counts: Totals before.
        events: What happened.
        held: What the nodes hold after the slot.
        from_s, until_s: [*streams] the slot.
    """
    finish_s = finishes(held)
    back = (held.status == COMPLETED) & (finish_s > from_s[None, None]) & (finish_s <= until_s[None, None])
    sent, power = events.sent, case.config.power
    idle_j = power.idle_w_per_node * case.cluster.num_nodes * case.config.slot_s
    energy_j = idle_j + power.busy_w_per_core * events.served.core_s + power.j_per_mib * sent.moved_mib
    new = Counts(
        arrived=events.entered.arrived,
        turned_away=events.entered.turned_away,
        dropped_waiting=events.dropped_waiting,
        sent=_number(sent.sent),
        refused=_number(sent.sent & ~sent.accepted),
        dropped_at_node=events.served.dropped,
        failed=events.served.failed,
        finished=jnp.sum(back, axis=(0, 1), dtype=jnp.int32),
        on_time=jnp.sum(back & (finish_s <= held.late_s), axis=(0, 1), dtype=jnp.int32),
        forwarded_mib=sent.forwarded_mib,
        pulled_mib=events.pulled_mib,
        core_s=events.served.core_s,
        energy_j=energy_j + power.j_per_mib * events.pulled_mib,
    )
    return Counts(*(total + more for total, more in zip(counts, new, strict=True)))


def _number(mask: Array) -> Array:
    return jnp.sum(mask, axis=0, dtype=jnp.int32)
