"""Feature-first networks: axis 0 holds the features, any number of stream axes follow.

With features first a batch of streams is already the right-hand side of a matrix product, so nothing is transposed
between bookkeeping and network.
"""

from collections.abc import Callable, Sequence
from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree


class Dense(nn.Module):
    """An affine map of axis 0: [inputs, *streams] -> [features, *streams]."""

    features: int
    scale: float = 1.0

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """Applies the map; the kernel [inputs, features] is drawn LeCun normal times `scale`."""
        kernel_init = nn.initializers.variance_scaling(self.scale**2, "fan_in", "truncated_normal")
        kernel = self.param("kernel", kernel_init, (inputs.shape[0], self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        product = jax.lax.dot_general(kernel, inputs, (((0,), (0,)), ((), ())))
        return product + bias.reshape((-1,) + (1,) * (inputs.ndim - 1))


class MLP(nn.Module):
    """A multi-layer perceptron over axis 0: [inputs, *streams] -> [outputs, *streams].

    Attributes:
        hidden: Widths of the hidden layers.
        outputs: Width of the output.
        output_scale: Scale of the output layer at initialisation (small for policies: nearly uniform at first).
    """

    hidden: Sequence[int]
    outputs: int
    output_scale: float = 1.0
    activation: Callable[[Array], Array] = nn.relu

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """Applies the layers."""
        for width in self.hidden:
            inputs = self.activation(Dense(width)(inputs))
        return Dense(self.outputs, scale=self.output_scale)(inputs)


def apply(network: nn.Module, parameters: PyTree, inputs: Array) -> Array:
    """The output of a network that has one."""
    return cast(Array, network.apply(parameters, inputs))


def shifted(parameters: PyTree, layer: str, shift: Array) -> PyTree:
    """The parameters with `shift` [features] added to the biases of a layer; leaves may have member axes in front."""
    old = parameters["params"][layer]
    bias = old["bias"]
    return with_layer(parameters, layer, {**old, "bias": bias + jnp.broadcast_to(shift, bias.shape)})


def with_layer(parameters: PyTree, layer: str, values: PyTree) -> PyTree:
    """The parameters with another layer of that name."""
    return {**parameters, "params": {**parameters["params"], layer: values}}


def flatten_features(observation: PyTree, num_trailing: int) -> Array:
    """All leaves of an observation as one feature axis.

    Args:
        observation: Leaves [..., *trailing]; trailing axes (seats and streams) are the same for all leaves.
        num_trailing: Number of trailing axes.

    Returns:
        [features, *trailing], the leaves in tree order, each flattened in row-major order.
    """
    leaves = jax.tree.leaves(observation)
    trailing = leaves[0].shape[leaves[0].ndim - num_trailing :]
    return jnp.concatenate([leaf.reshape((-1, *trailing)) for leaf in leaves])
