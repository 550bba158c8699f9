"""Gradient descent: one step, and many steps on batches that keys draw, in one scan."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from twin.contracts import Array, PyTree


def clipped_adam(
    learning_rate: optax.ScalarOrSchedule, max_gradient_norm: float
) -> optax.GradientTransformation:
    """Adam on gradients scaled down to a global norm of at most `max_gradient_norm`."""
    return optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate))


def descend(
    optimizer: optax.GradientTransformation, gradient: PyTree, optimizer_state: PyTree, params: PyTree
) -> tuple[PyTree, PyTree]:
    """Parameters, and the optimizer's state, after one step down the gradient."""
    change, optimizer_state = optimizer.update(gradient, optimizer_state, params)
    return optax.apply_updates(params, change), optimizer_state


def descend_in_batches(
    optimizer: optax.GradientTransformation,
    loss: Callable[[PyTree, Any], Array],
    draw: Callable[[Array], Any],
    keys: Array,
    params: PyTree,
    optimizer_state: PyTree = None,
) -> tuple[PyTree, PyTree, Array]:
    """One step for each key, down the gradient of the loss on the batch that the key draws.

    Args:
        optimizer: Whose steps.
        loss: (parameters, batch) -> mean loss.
        draw: Key -> batch.
        keys: [steps] PRNG keys.
        params: To begin with.
        optimizer_state: To begin with; fresh if not given.

    Returns:
        Parameters, the optimizer's state, and the losses [steps], each before its step.
    """

    def one(carry: tuple[PyTree, PyTree], key: Array) -> tuple[tuple[PyTree, PyTree], Array]:
        params, optimizer_state = carry
        found, gradient = jax.value_and_grad(loss)(params, draw(key))
        return descend(optimizer, gradient, optimizer_state, params), found

    first = (params, optimizer.init(params) if optimizer_state is None else optimizer_state)
    (params, optimizer_state), losses = jax.lax.scan(one, first, keys)
    return params, optimizer_state, losses
