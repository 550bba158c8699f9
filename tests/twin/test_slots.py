"""Folds over the depth of a table: every slot once, from the last to the first, however deep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twin.contracts import Array
from twin.placement.slots import FEW_STREAMS, MAX_UNROLLED, fold_slots


@pytest.mark.parametrize("streams", [3, FEW_STREAMS + 1])
@pytest.mark.parametrize("depth", [1, 5, MAX_UNROLLED, MAX_UNROLLED + 1, 2 * MAX_UNROLLED + 1, 90])
def test_a_fold_meets_every_slot_once_from_the_last_to_the_first(
    depth: int, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twin.placement.slots.MAX_UNROLLED", MAX_UNROLLED)  # quick tests unroll less
    leaf = jnp.asarray(np.random.default_rng(depth).normal(size=(2, depth, streams)), jnp.float32)

    def per_slot(leaves: tuple[Array, ...], index: Array) -> tuple[Array, Array]:
        return leaves[0], jnp.full(leaves[0].shape, index)

    def combine(sofar: tuple[Array, Array], slot: tuple[Array, Array]) -> tuple[Array, Array]:
        in_turn = slot[1] == sofar[1] - 1
        return 0.5 * sofar[0] + slot[0], jnp.where(in_turn, slot[1], -depth)

    folded, last = jax.jit(lambda leaf: fold_slots(per_slot, combine, (leaf,)))(leaf)
    expected = np.asarray(leaf[:, depth - 1])
    for index in range(depth - 2, -1, -1):
        expected = 0.5 * expected + np.asarray(leaf[:, index])
    np.testing.assert_allclose(folded, expected, rtol=1e-5)
    assert np.all(np.asarray(last) == 0)
