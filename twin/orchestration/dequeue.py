"""The order in which queues are served: the dequeue strategies of KMPS, at access points and at nodes.

Every queued request has a key; the smallest key goes first, of equal keys the one that entered first. So a strategy
is its key and nothing else:

    first come, first served     when it entered the queue
    delay greedy                 when it becomes late: closest to its time-out first
    time-series adaptive hybrid  the estimated time its service takes, shortest first; a request that would become late
                                 if it took as long as estimated is urgent from then on and goes before all others,
                                 the earliest deadline first

The hybrid's estimates follow what was observed, `E <- lambda E + (1 - lambda) T` for every long slot in which requests
of the service were completed, `T` their mean time (KMPS, eq. 3); at an access point from dispatch to answer, at a
node without the way there and back. Urgency is looked for once in a long slot, and is not taken back.

Source: KMPS, section III-A.3, algorithm 1 (lines 20-28), and figure 15 for the two baselines.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from twin.contracts import Array


class Dequeue(NamedTuple):
    """A dequeue strategy."""

    name: str
    description: str
    key: Callable[[Array, Array, Array], Array]  # (entered_s, late_s, estimate_s), any shape -> key
    adapts: bool = False  # keys follow estimates, and urgent requests are promoted


def _entered(entered_s: Array, _late_s: Array, _estimate_s: Array) -> Array:
    return entered_s


def _late(_entered_s: Array, late_s: Array, _estimate_s: Array) -> Array:
    return late_s


def _estimate(_entered_s: Array, _late_s: Array, estimate_s: Array) -> Array:
    return estimate_s


FIFO = Dequeue("fifo", "first come, first served", _entered)
DELAY_GREEDY = Dequeue("delay_greedy", "closest to its time-out first", _late)
HYBRID = Dequeue(
    "hybrid", "shortest estimated time first; urgent requests before all", _estimate, adapts=True
)


def promote(key: Array, late_s: Array, estimate_s: Array, clock_s: Array) -> Array:
    """Keys after a long slot under the hybrid strategy.

    Args:
        key: Keys so far, any shape; those of urgent requests are negative.
        late_s: When the requests become late, > 0.
        estimate_s: What their services are now estimated to take, >= 0.
        clock_s: Now.

    Returns:
        The estimate, or `-1 / late_s` for urgent requests: negative, and rising with the deadline.
    """
    urgent = (key < 0.0) | (late_s - estimate_s <= clock_s)
    return jnp.where(urgent, -1.0 / jnp.maximum(late_s, 1e-6), estimate_s)
