"""The gradient step that the learners share: Adam on gradients of bounded norm, in minibatches of streams."""

import optax

from offline_rl.errors import TrainingError
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


def minibatch_width(num_streams: int, num_minibatches: int) -> int:
    """Streams in each of so many equal minibatches; TrainingError where they cannot be equal."""
    if num_streams % num_minibatches:
        raise TrainingError(
            f"{num_streams} streams cannot be cut into {num_minibatches} equal minibatches",
            advice="choose a number of streams that is a multiple of num_minibatches",
        )
    return num_streams // num_minibatches
