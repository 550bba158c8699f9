"""What may be chosen: a mask for each categorical action leaf, an interval for each continuous one.

Where a second choice depends on the first, its legality holds one entry for every choice of the leaf before it: whoever
samples, scores or replaces an action goes through its leaves in tree order, and takes the entry of what was chosen.
"""

import jax
import jax.numpy as jnp

from logs_schema.errors import ConfigError
from twin.contracts import Array, Given, Interval, PyTree


def leaves_of(legal: PyTree) -> list[PyTree]:
    """The entry of a legality for every action leaf: masks, intervals, and either `Given` what is before."""
    return jax.tree.leaves(legal, is_leaf=_is_entry)


def like_action(legal: PyTree, leaves: list[PyTree]) -> PyTree:
    """`leaves` in the tree of the action that belongs to a legality."""
    return jax.tree.unflatten(jax.tree.structure(legal, is_leaf=_is_entry), leaves)


def num_trailing(legal: PyTree) -> int:
    """Number of trailing axes of a legality: seats and streams."""
    entry = leaves_of(legal)[0]
    return entry.low.ndim if isinstance(entry, Interval) else entry.ndim - 1  # the first leaf depends on none


def entry_at(entry: PyTree, before: Array | None) -> PyTree:
    """An entry of its own leaf alone: that of the choice `before` [seats, *streams] where it is `Given`.

    Raises:
        ConfigError: It depends on the choice of a leaf before it, and there is none.
    """
    if not isinstance(entry, Given):
        return entry
    if before is None or not jnp.issubdtype(before.dtype, jnp.integer):
        raise ConfigError(
            "an action leaf depends on the choice before it, and none stands there",
            where="Given",
            allowed="behind a categorical leaf, in tree order",
        )

    def at(leaf: Array) -> Array:
        axis = leaf.ndim - before.ndim - 1
        choices = jnp.arange(leaf.shape[axis], dtype=before.dtype).reshape((-1,) + (1,) * before.ndim)
        here = (choices == before[None]).reshape((1,) * axis + leaf.shape[axis : axis + 1] + before.shape)
        picked = jnp.where(here, leaf, jnp.zeros((), leaf.dtype))
        return jnp.any(picked, axis) if leaf.dtype == jnp.bool_ else jnp.sum(picked, axis)

    return jax.tree.map(at, entry.table)


def legalised(action: PyTree, legal: PyTree) -> tuple[PyTree, Array]:
    """Replaces what is not legal: a choice by the first legal one, a number by the nearest in its interval.

    Args:
        action: Leaves [seats, *streams], int32 choices or float32 numbers.
        legal: Beside every leaf a mask, an `Interval`, or either `Given` the choice before.

    Returns:
        The legal action and a mask [seats, *streams] of the seats at which something was replaced.
    """
    taken, replaced, before = [], [], None
    for value, entry in zip(jax.tree.leaves(action), leaves_of(legal), strict=True):
        allowed = entry_at(entry, before)
        choose = nearest_within if isinstance(allowed, Interval) else choose_legal
        before, illegal = choose(value, allowed)
        taken.append(before)
        replaced.append(illegal)
    return like_action(legal, taken), jnp.any(jnp.stack(replaced), axis=0)


def choose_legal(action: Array, legal: Array) -> tuple[Array, Array]:
    """Replaces illegal choices by the first legal one.

    Args:
        action: [seats, *streams] int32 choices.
        legal: [choices, seats, *streams] bool.

    Returns:
        The legal action (0 where nothing is legal) and a mask [seats, *streams] of the replaced ones.
    """
    choices = jnp.arange(legal.shape[0], dtype=jnp.int32).reshape((-1,) + (1,) * action.ndim)
    is_legal = jnp.any(legal & (choices == action[None]), axis=0)
    first = jnp.min(jnp.where(legal, choices, legal.shape[0]), axis=0)
    first = jnp.where(first < legal.shape[0], first, 0)
    return jnp.where(is_legal, action, first), ~is_legal


def nearest_within(action: Array, interval: Interval) -> tuple[Array, Array]:
    """Numbers [seats, *streams], replaced by the nearer end outside their interval (NaN: the lower), and which."""
    outside = ~((action >= interval.low) & (action <= interval.high))
    return jnp.where(jnp.isnan(action), interval.low, jnp.clip(action, interval.low, interval.high)), outside


def any_legal(legal: PyTree) -> PyTree:
    """Some action of the right shapes and types, leaves [seats, *streams]: first choices, lower ends."""
    before, taken = None, []
    for entry in leaves_of(legal):
        allowed = entry_at(entry, before)
        if isinstance(allowed, Interval):
            before = allowed.low
        else:
            before = choose_legal(jnp.zeros(allowed.shape[1:], jnp.int32), allowed)[0]
        taken.append(before)
    return like_action(legal, taken)


def _is_entry(node: PyTree) -> bool:
    return isinstance(node, Interval | Given)
