"""What is by chance in a cluster run by slots: the one argument in which its truth and its twin differ.

`slot_response` does the bookkeeping of queues, replicas and nodes; whatever it cannot compute it takes from a `Chance`:
who arrives when, how long ways and runs take, whether an offer is accepted, which nodes are up.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from twin.contracts import Array, PyTree, Streams
from twin.environment import beside
from twin.placement.types import Requests


class SlotAnswer(NamedTuple):
    """What becomes of the requests in hand where they are sent; leaves [seats, *streams]."""

    accepted: Array  # bool: the agent takes the offer
    way_there_s: Array  # until the input is at the node
    run_s: Array  # service there, alone on a core
    way_back_s: Array  # until the answer is with the client


class Chance(NamedTuple):
    """All chance of a day; `begin_s` is the time of day at which the episode's clock is zero."""

    begin_s: float | Array
    day_s: float  # time of day at which requests end to come, and the episode with them
    weekday: int  # 0 for Monday
    # (key, streams) -> what the next five are made of, for one slot
    numbers: Callable[[Array, Streams], PyTree]
    # (key, streams) -> [seats, *streams] first arrivals, on the clock
    first_s: Callable[[Array, Streams], Array]
    # (numbers, which of a slot's arrivals, when [seats, *streams]) -> the request, the gap to the next one
    arrival: Callable[[PyTree, int, Array], tuple[Requests, Array]]
    # (numbers, requests in hand, node [seats, *streams])
    answer: Callable[[PyTree, Requests, Array], SlotAnswer]
    # (numbers, available [nodes, *streams] before, clock_s [*streams]) -> available; without the first two at the start
    available: Callable[[PyTree | None, Array | None, Array], Array]
    fails: bool  # whether a node can ever be down
    # agent as `arrival` names it [seats, *streams] -> `agent` and `accepts_*` of `Requests`
    identity: Callable[[Array], dict[str, Any]]

    def time_of_day_s(self, clock_s: Array) -> Array:
        """The time of day at a time of the clock [..., *streams]."""
        return since_midnight(self.begin_s, clock_s)


def since_midnight(begin_s: float | Array, clock_s: Array) -> Array:
    """Times of day [..., *streams] on clocks that are zero at `begin_s`, one or [*streams]."""
    return beside(jnp.asarray(begin_s, jnp.float32), clock_s) + clock_s
