"""Streams over the devices of a machine: one program, of which every device computes its share of the streams.

The streams of a tree of arrays trail, so its leaves are cut along the last axis. Only where an array lies is stated;
the compiler splits the work and adds the sums that cross devices (Y. Xu et al., GSPMD, 2021). Random bits do not
depend on the split. So the numbers are those of one device, up to the order in which sums are taken.

Gathers and scatters whose indices name the stream cannot be split: each device would first collect all of the array.
Where streams are `spread`, such code goes stream by stream (`is_spread`), with the same result.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from twin.contracts import PyTree

AXIS = "streams"
_SPREAD: ContextVar[bool] = ContextVar("spread", default=False)


def can_spread(num_streams: int) -> bool:
    """Whether there are several devices, and as many streams for each of them."""
    return _mesh().size > 1 and num_streams > 0 and num_streams % _mesh().size == 0


def is_spread() -> bool:
    """Whether what is traced now has its streams spread over devices."""
    return _SPREAD.get()


@contextmanager
def spreading() -> Iterator[None]:
    """What is traced inside has its streams spread over devices."""
    token = _SPREAD.set(True)
    try:
        yield
    finally:
        _SPREAD.reset(token)


def spread(tree: PyTree, num_streams: int) -> PyTree:
    """A tree with its streams spread over the devices of this machine, inside a jitted program.

    Args:
        tree: Leaves [..., num_streams]; others stay as they are.
        num_streams: Length of the last axis.

    Returns:
        The same tree; untouched where it cannot be spread (see `can_spread`).
    """
    if not can_spread(num_streams):
        return tree

    def placed(leaf: jax.Array) -> jax.Array:
        if leaf.ndim == 0 or leaf.shape[-1] != num_streams:
            return leaf
        spec = PartitionSpec(*(None,) * (leaf.ndim - 1), AXIS)
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(_mesh(), spec))

    return jax.tree.map(placed, tree)


@cache
def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), (AXIS,))
