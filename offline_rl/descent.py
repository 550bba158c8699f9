"""The gradient step that the learners share: Adam on gradients of bounded norm."""

import optax

from twin.contracts import PyTree


def clipped_adam(
    learning_rate: optax.ScalarOrSchedule, max_gradient_norm: float
) -> optax.GradientTransformation:
    """Adam on gradients scaled down to a global norm of at most `max_gradient_norm`."""
    return optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate))


def descend(
    optimizer: optax.GradientTransformation, gradient: PyTree, memory: PyTree, params: PyTree
) -> tuple[PyTree, PyTree]:
    """Parameters, and the optimizer's memory, after one step down the gradient."""
    change, memory = optimizer.update(gradient, memory, params)
    return optax.apply_updates(params, change), memory
