"""Single slots of the table in flight, and folds over all slots of a node; built for speed on processors.

A table leaf is [nodes, depth, *streams]. One request enters and one leaves per seat and step, so a slot is read by a
gather and written by a scatter, in place, instead of passing over the whole leaf. What must look at every slot (the
load of a node, the first free slot) folds over the depth in one fused pass, `MAX_UNROLLED` slots at a time, or fewer:
several times faster than one reduction after another (measured with 640 streams).
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.devices import is_spread
from twin.placement.types import EMPTY

MAX_UNROLLED = 16
"""Deeper tables fold in a loop over blocks of so many: 32 at a time, rollouts took up to a quarter longer."""
FEW_STREAMS, FEW_UNROLLED = 512, 4
"""With so few streams blocks are shorter: they take as long or up to 8 % longer, and compile in 70 % of the time."""
MOST_WHOLE = 128
"""Tables with more slots are folded only as far as they were ever filled."""

VIEW_SLOTS = 32
"""Slots that take about as long as all else that a step does with a node."""

Folded = TypeVar("Folded")


def num_views(num_nodes: int, depth: int) -> int:
    """Nodes that a step takes as long with: slots are passed over at every step, so a node with more than `MOST_WHOLE`
    counts as one for each `VIEW_SLOTS`."""
    return num_nodes if depth <= MOST_WHOLE else num_nodes * depth // VIEW_SLOTS


def place(table_shape: tuple[int, ...], node: Array, slot: Array, exists: Array) -> Array:
    """Where slots lie in a flattened table leaf.

    Args:
        table_shape: [nodes, depth, *streams].
        node: [*streams] int32.
        slot: [*streams] int32.
        exists: [*streams] bool: there is such a slot.

    Returns:
        [streams] int32 flat positions, out of range where there is none: nothing is written there.
    """
    depth, streams = table_shape[1], int(np.prod(table_shape[2:], dtype=int))
    position = (node * depth + slot).reshape(-1) * streams + jnp.arange(streams, dtype=jnp.int32)
    return jnp.where(exists.reshape(-1), position, int(np.prod(table_shape, dtype=int)))


def slot_at(table_shape: tuple[int, ...], position: Array) -> Array:
    """[*streams] int32: the slots of positions [streams] from `place`; the depth where there is none."""
    depth, streams = table_shape[1], table_shape[2:]
    slot = position // int(np.prod(streams, dtype=int)) % depth
    return jnp.where(position < int(np.prod(table_shape, dtype=int)), slot, depth).reshape(streams)


def read(leaf: Array, position: Array, missing: float | int) -> Array:
    """[*streams] the leaf's values at the positions; `missing` where there is none."""
    if is_spread():
        return _read_by_stream(leaf, position, missing)
    values = leaf.reshape(-1).at[position].get(mode="fill", fill_value=missing)
    return values.reshape(leaf.shape[2:])


def write(leaf: Array, position: Array, value: Array) -> Array:
    """The leaf [*more, nodes, depth, *streams] with `value` [*more, *streams] at the positions, in place."""
    streams = position.shape[0]
    rows = max(1, value.size // streams) if value.ndim else 1
    if is_spread():
        return _write_by_stream(leaf, position, value, rows)
    size = leaf.size // rows
    row = jnp.arange(rows, dtype=jnp.int32)[:, None]
    everywhere = jnp.where((position < size)[None], row * size + position[None], leaf.size).reshape(-1)
    new = jnp.broadcast_to(value, (rows * streams,)) if value.ndim == 0 else value.reshape(-1)
    flat = leaf.reshape(-1).at[everywhere].set(new, mode="drop", unique_indices=True)
    return flat.reshape(leaf.shape)


def _read_by_stream(leaf: Array, position: Array, missing: float | int) -> Array:
    """`read` without a stream among the indices, so that devices can share the streams."""
    streams = position.shape[0]

    def read_one(column: Array, at: Array) -> Array:
        return column.at[at].get(mode="fill", fill_value=missing)

    return jax.vmap(read_one, (1, 0))(leaf.reshape(-1, streams), position // streams)


def _write_by_stream(leaf: Array, position: Array, value: Array, rows: int) -> Array:
    """`write` without a stream among the indices; `value` has so many rows."""
    streams = position.shape[0]

    def write_one(columns: Array, at: Array, new: Array) -> Array:
        return columns.at[:, at].set(new, mode="drop")

    new = jnp.broadcast_to(value, (rows, streams)) if value.ndim == 0 else value.reshape(rows, streams)
    written = jax.vmap(write_one, (2, 0, 1), 2)(leaf.reshape(rows, -1, streams), position // streams, new)
    return written.reshape(leaf.shape)


def num_filled(decision: Array) -> Array:
    """Number of slots up to the last that ever held a request on any node of any stream, from the table's `decision`
    [nodes, depth, *streams]: requests take the first free slot, and slots are never emptied."""
    other_axes = tuple(axis for axis in range(decision.ndim) if axis != 1)
    ever = jnp.any(decision != EMPTY, axis=other_axes)
    # no `jnp.arange`: with it the compiler folds twice what two observations of one state fold
    return jnp.max(jnp.where(ever, np.arange(1, decision.shape[1] + 1, dtype=np.int32), 0))


def fold_slots(
    per_slot: Callable[[tuple[Array, ...], Array], Folded],
    combine: Callable[[Folded, Folded], Folded],
    leaves: tuple[Array, ...],
    until: Array | None = None,
) -> Folded:
    """Combines what `per_slot` makes of every slot, over the depth.

    Args:
        per_slot: (one slot's leaves [nodes, *streams], its index) -> pytree of arrays.
        combine: Two such pytrees into one.
        leaves: [nodes, depth, *streams].
        until: Number of the slots that matter, a scalar: what `per_slot` makes of others changes nothing. Of tables of
            more than `MOST_WHOLE` slots no others are looked at, save in the block of the last; None: all matter.

    Returns:
        The pytree combined over all slots, from the last to the first.
    """
    depth = leaves[0].shape[1]
    # Traced and lowered once for all slots; the compiler puts it in place of every call.
    once = jax.jit(per_slot)

    def at(index: int | Array) -> Folded:
        if isinstance(index, int):
            return once(
                tuple(jax.lax.index_in_dim(leaf, index, 1, False) for leaf in leaves), jnp.int32(index)
            )
        unsigned = index.astype(jnp.uint32)  # else every slice first tests whether it counts from the end
        slices = tuple(jax.lax.dynamic_index_in_dim(leaf, unsigned, 1, False) for leaf in leaves)
        return once(slices, index)

    def block(sofar: Folded, last: int | Array, length: int) -> Folded:
        for back in range(length):
            sofar = combine(sofar, at(last - back))
        return jax.lax.optimization_barrier(sofar)

    few = int(np.prod(leaves[0].shape[2:], dtype=int)) <= FEW_STREAMS
    length = min(MAX_UNROLLED, FEW_UNROLLED) if few else MAX_UNROLLED
    num_blocks, rest = divmod(depth - 1, length)
    total = block(at(depth - 1), depth - 2, rest)
    if num_blocks == 0:
        return total
    last = depth - 2 - rest

    def further(number: Array, sofar: Folded) -> Folded:
        return block(sofar, last - number * length, length)

    skipped: int | Array = 0
    if until is not None and depth > MOST_WHOLE:
        skipped = jax.lax.clamp(0, jax.lax.div(last + 1 - until, length), num_blocks)
    return jax.lax.fori_loop(skipped, num_blocks, further, total)
