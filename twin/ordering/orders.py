"""Orders of the waiting queue inside programs: the rules of `twin.ordering.rules` as scores, lowest first.

Scores are whole numbers where the rule allows it, else float32, so that jobs whose true scores differ by less than one
part in ten million may tie. `by_priority` follows any standing order to the letter: see `job_windows.standing_order`.
"""

import jax.numpy as jnp

from twin.contracts import Array
from twin.ordering.machine import PARTS
from twin.ordering.rules.unicef import SMALLEST_LOGARITHM
from twin.ordering.states import JobRequests


def by_arrival(queue: JobRequests, _clock: Array) -> Array:
    """First come, first served."""
    return queue.arrival


def by_requested(queue: JobRequests, _clock: Array) -> Array:
    """Shortest requested time first (SJF)."""
    return queue.requested


def by_area(queue: JobRequests, _clock: Array) -> Array:
    """Smallest requested area first (SAF)."""
    return queue.requested.astype(jnp.float32) * queue.processors.astype(jnp.float32)


def by_processors(queue: JobRequests, _clock: Array) -> Array:
    """Largest job first (LJF)."""
    return -queue.processors


def by_priority(queue: JobRequests, _clock: Array) -> Array:
    """In the standing order that the jobs bring along."""
    return queue.priority


def by_wfp3(queue: JobRequests, clock: Array) -> Array:
    """WFP3: largest (wait / requested)^3 x processors first."""
    relative = _wait(queue, clock) / queue.requested.astype(jnp.float32)
    return -(relative * relative * relative) * queue.processors.astype(jnp.float32)


def by_unicef(queue: JobRequests, clock: Array) -> Array:
    """UNICEF: largest wait / (log2(processors) x requested) first."""
    logarithm = jnp.log2(queue.processors.astype(jnp.float32) / PARTS)
    size = jnp.maximum(logarithm, SMALLEST_LOGARITHM)
    return -_wait(queue, clock) / (size * queue.requested.astype(jnp.float32))


def by_f1(queue: JobRequests, _clock: Array) -> Array:
    """F1: lowest log10(requested) x processors + 870 log10(arrival), in ticks since the episode began."""
    arrival = jnp.log10(jnp.maximum(queue.arrival, 1).astype(jnp.float32))
    size = jnp.log10(queue.requested.astype(jnp.float32)) * queue.processors.astype(jnp.float32) / PARTS
    return size + 870.0 * arrival


def _wait(queue: JobRequests, clock: Array) -> Array:
    return (clock[None] - queue.arrival).astype(jnp.float32)
