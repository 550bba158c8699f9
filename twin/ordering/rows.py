"""Single rows of tables [rows, *streams]: read, written and counted, one row for every stream, in place."""

import jax.numpy as jnp

from twin.contracts import Array


def numbers(num_rows: int, like: Array) -> Array:
    """[rows, *ones] int32: 0, 1, ... beside a `like` [*streams]."""
    return jnp.arange(num_rows, dtype=jnp.int32).reshape((-1,) + (1,) * like.ndim)


def get(leaf: Array, row: Array) -> Array:
    """[*streams] the leaf's values in the rows [*streams]; those of the last row where there is no such row."""
    flat = leaf.reshape(leaf.shape[0], -1)
    inside = jnp.clip(row.reshape(-1), 0, leaf.shape[0] - 1)
    return flat[inside, jnp.arange(flat.shape[1])].reshape(row.shape)


def put(leaf: Array, row: Array, value: Array) -> Array:
    """The leaf with `value` [*streams] in the rows [*streams]; nothing is written where there is no such row."""
    flat = leaf.reshape(leaf.shape[0], -1)
    stream = jnp.arange(flat.shape[1])
    value = jnp.broadcast_to(value, row.shape).reshape(-1).astype(leaf.dtype)
    beyond = jnp.where(row < 0, leaf.shape[0], row).reshape(-1)
    return flat.at[beyond, stream].set(value, mode="drop", unique_indices=True).reshape(leaf.shape)


def add(leaf: Array, row: Array, value: Array) -> Array:
    """The leaf with `value` [*streams] added in the rows [*streams]; nothing where there is no such row."""
    return put(leaf, row, get(leaf, row) + value.astype(leaf.dtype))


def take_rows(leaf: Array, row: Array) -> Array:
    """[more, *streams] the leaf's values in the rows [more, *streams]; those of the last row where there is none."""
    flat = leaf.reshape(leaf.shape[0], -1)
    inside = jnp.clip(row.reshape(row.shape[0], -1), 0, leaf.shape[0] - 1)
    return flat[inside, jnp.arange(flat.shape[1])[None]].reshape(row.shape)


def first_row(which: Array) -> Array:
    """[*streams] int32: the first row of `which` [rows, *streams] that is true; the number of rows where none is."""
    rows = numbers(which.shape[0], which[0])
    return jnp.min(jnp.where(which, rows, which.shape[0]), axis=0)


def best_row(score: Array, which: Array) -> Array:
    """[*streams] int32: the row of the lowest score [rows, *streams] among those of `which`, the first of equals.

    A score that is not a number is never chosen. The number of rows where `which` is nowhere true.
    """
    worst = jnp.iinfo(score.dtype).max if jnp.issubdtype(score.dtype, jnp.integer) else jnp.inf
    lowest = jnp.min(jnp.where(which, score, worst), axis=0)
    found = first_row(which & (score == lowest[None]))
    return jnp.where(found < which.shape[0], found, first_row(which))


def without(leaf: Array, row: Array) -> Array:
    """The leaf without the rows [*streams]: what stands behind moves up by one; all of it stays where there is none."""
    rows = numbers(leaf.shape[0], row)
    return jnp.where(rows < row[None], leaf, jnp.concatenate([leaf[1:], leaf[-1:]]))
