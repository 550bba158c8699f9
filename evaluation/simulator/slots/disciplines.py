"""How the cores of a node are shared by the requests that its replicas serve; a request uses one core at most.

    reserved           a request starts when its replica and a core are idle, and keeps the core to its end
    processor sharing  a request starts when its replica is idle; n requests share c cores, each at min(1, c / n)

With one replica more than there are ever requests, the second is the queue M/G/1-PS (M/G/c-PS) in the limit of short
slots: mean response `E[S] / (1 - load)` with one core, whatever the law of the work.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from twin.contracts import Array


class Discipline(NamedTuple):
    """How cores are shared."""

    name: str
    description: str
    rate: Callable[
        [Array, Array], Array
    ]  # (requests served [nodes, ...], cores [nodes, 1...]) -> speed of each
    startable: Callable[[Array, Array], Array]  # (served, cores) -> how many more may start [nodes, ...]


def _whole(served: Array, _cores: Array) -> Array:
    return jnp.ones_like(served)


def _idle(served: Array, cores: Array) -> Array:
    return cores - served


def _share(served: Array, cores: Array) -> Array:
    return jnp.minimum(1.0, cores / jnp.maximum(served, 1.0))


def _any_number(served: Array, _cores: Array) -> Array:
    return jnp.full_like(served, jnp.inf)


RESERVED = Discipline("reserved", "a core for each request that is served", _whole, _idle)
SHARED = Discipline("shared", "processor sharing among the requests that are served", _share, _any_number)
