"""Pieces of a batch: their sum is the whole's, and what is made of them is put together in order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.pieces import DECISIONS, map_over_pieces, sum_over_pieces


@pytest.mark.parametrize(("num_steps", "width"), [(12, 100), (7, 3), (1, 5), (6, 2 * DECISIONS)])
def test_pieces_make_the_whole(num_steps: int, width: int) -> None:
    random = np.random.default_rng(0)
    batch = {
        "features": jnp.asarray(random.normal(size=(3, 2, num_steps, width)), jnp.float32),
        "weight": jnp.asarray(random.random((num_steps, width)), jnp.float32),
    }
    weights = jnp.array([0.5, -1.0, 2.0])

    def loss(weights: jax.Array, part: dict) -> jax.Array:
        return jnp.sum(jnp.tanh(jnp.tensordot(weights, part["features"], axes=1)) * part["weight"][None])

    def gradient(part: dict) -> jax.Array:
        return jax.grad(loss)(weights, part)

    whole = jax.jit(gradient)(batch)
    np.testing.assert_allclose(jax.jit(lambda all: sum_over_pieces(gradient, all))(batch), whole, rtol=1e-4)
    doubled = jax.jit(lambda all: map_over_pieces(lambda part: 2.0 * part["features"], all))(batch)
    np.testing.assert_array_equal(doubled, 2.0 * batch["features"])
