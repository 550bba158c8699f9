"""What a baseline is: a policy that needs no training, and says so by its name."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp

from twin.contracts import Array, Policy
from twin.placement.types import Cluster


@dataclass(frozen=True)
class Baseline:
    """A rule of thumb that every learned policy has to beat.

    Attributes:
        name: As in tables and on the command line.
        description: One sentence.
        policy: Makes the policy for a cluster; it sees local observations only, as any policy does.
    """

    name: str
    description: str
    policy: Callable[[Cluster], Policy]


def best_legal(score: Array, legal: Array) -> Array:
    """The legal choice of the highest score; the first of equals, and 0 where nothing is legal.

    Args:
        score: [choices, seats, *streams], finite.
        legal: [choices, seats, *streams] bool.

    Returns:
        [seats, *streams] int32.
    """
    return jnp.argmax(jnp.where(legal, score, -jnp.inf), axis=0).astype(jnp.int32)
