"""A replay buffer: transitions of past trajectories, from which batches are drawn; the oldest are overwritten first."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.networks import Example
from offline_rl.transitions import Transitions
from twin.contracts import Array, Interval, PyTree


class ReplayBuffer(NamedTuple):
    """Transitions, the oldest overwritten first."""

    stored: Transitions  # leaves [..., capacity]
    filled: Array  # [] int32
    place: Array  # [] int32, of the next one


def empty_buffer(example: Example, capacity: int) -> ReplayBuffer:
    """A buffer of nothing, for transitions of these shapes; actions are numbers or choices."""

    def zeros(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape, capacity), leaf.dtype), tree)

    def of_action(entry: PyTree) -> Array:
        is_number = isinstance(entry, Interval)
        return jnp.zeros((*seats, capacity), jnp.float32 if is_number else jnp.int32)

    seats = jax.tree.leaves(example.legal)[0].shape[-1:]
    number = jnp.zeros((*seats, capacity))
    action = jax.tree.map(of_action, example.legal, is_leaf=lambda entry: isinstance(entry, Interval))
    observation, legal = zeros(example.observation), zeros(example.legal)
    stored = Transitions(observation, legal, action, number, number, number, observation, legal)
    return ReplayBuffer(stored, jnp.int32(0), jnp.int32(0))


def with_transitions(buffer: ReplayBuffer, new: Transitions) -> ReplayBuffer:
    """The buffer with transitions, leaves [..., T - 1, B]; the last ones where there are more than it holds."""
    capacity = buffer.stored.weight.shape[-1]
    flat = jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:-2], -1)[..., -capacity:], new)
    count = flat.weight.shape[-1]
    where = (buffer.place + jnp.arange(count)) % capacity
    stored = jax.tree.map(
        lambda old, leaf: old.at[..., where].set(leaf.astype(old.dtype)), buffer.stored, flat
    )
    return ReplayBuffer(
        stored, jnp.minimum(buffer.filled + count, capacity), (buffer.place + count) % capacity
    )


def subsample(whole: Transitions, key: Array, number: int) -> Transitions:
    """At most `number` moments of a trajectory, leaves [..., 1, moments]; drawn without replacement."""
    count = whole.weight.shape[-2] * whole.weight.shape[-1]
    chosen = jax.random.permutation(key, count)[:number]
    return jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:-2], 1, count)[..., chosen], whole)


def sample_batch(buffer: ReplayBuffer, key: Array, batch: int) -> Transitions:
    """A batch, leaves [..., batch, 1]; drawn with replacement."""
    chosen = jax.random.randint(key, (batch,), 0, jnp.maximum(buffer.filled, 1))
    return jax.tree.map(lambda leaf: leaf[..., chosen, None], buffer.stored)
