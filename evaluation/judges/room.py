"""Room for what policies hold in flight, where a simulated system has no bound of its own.

Tables of requests in flight have as many slots a node as the log suggests (`twin.placement.peaks.depth_of`). A policy
that piles its requests onto few nodes holds more there; what finds no slot is never settled, and its value is wrong.
Such policies are simulated again, alone, with more slots: most never need it, and the cost grows with the slots.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax.numpy as jnp

from twin.contracts import Array, Trajectory

Found = TypeVar("Found")


def lost_in(simulated: Trajectory) -> Array:
    """[T, seats, *streams] bool: requests that were accepted and found no slot, so that nothing is known of them
    (`Decisions.lost` of a whole trajectory, in a program)."""
    return simulated.active & ~simulated.settled & jnp.isnan(simulated.outcome.finish_s)


def with_room(
    simulate: Callable[[int, Sequence[int]], Sequence[Found]],
    num_policies: int,
    depths: Sequence[int],
    overflows: Callable[[Found], bool],
) -> list[Found]:
    """The results of all policies, each of the first depth at which nothing overflows, or of the last one.

    Args:
        simulate: (slots a node, numbers of policies) -> their results, in that order.
        num_policies: Their number.
        depths: Slots a node, growing; see `evaluation.simulator.truth.depths_of`.
        overflows: Whether some requests of a result found no slot.
    """
    found = list(simulate(depths[0], range(num_policies)))
    for depth in depths[1:]:
        again = [place for place, one in enumerate(found) if overflows(one)]
        if not again:
            break
        for place, one in zip(again, simulate(depth, again), strict=True):
            found[place] = one
    return found
