"""Orders of the waiting queue inside programs, as scores, lowest first.

`by_area` is float32, so that jobs whose areas differ by less than one part in ten million may tie. `by_priority`
follows any standing order to the letter: see `job_windows.standing_order`.
"""

import jax.numpy as jnp

from twin.contracts import Array
from twin.ordering.states import JobRequests


def by_arrival(queue: JobRequests, _clock: Array) -> Array:
    """First come, first served."""
    return queue.arrival


def by_area(queue: JobRequests, _clock: Array) -> Array:
    """Smallest requested area first (SAF)."""
    return queue.requested.astype(jnp.float32) * queue.processors.astype(jnp.float32)


def by_priority(queue: JobRequests, _clock: Array) -> Array:
    """In the standing order that the jobs bring along."""
    return queue.priority
