"""Folds over the depth of a table: every slot once, from the last to the first, however deep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twin.contracts import Array
from twin.placement.slots import FEW_STREAMS, MAX_UNROLLED, MOST_WHOLE, fold_slots, num_filled
from twin.placement.types import EMPTY


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


@pytest.mark.parametrize("streams", [3, FEW_STREAMS + 1])
@pytest.mark.parametrize("filled", [0, 1, 17, 100, MOST_WHOLE + 6, MOST_WHOLE + 7])
def test_of_a_deep_table_what_was_never_filled_is_not_looked_at(filled: int, streams: int) -> None:
    draws = np.random.default_rng(filled)
    decision = np.full((2, MOST_WHOLE + 7, streams), EMPTY)
    decision[0, :filled] = 3
    amount = jnp.asarray(draws.normal(size=decision.shape), jnp.float32)

    def per_slot(leaves: tuple[Array, ...], index: Array) -> tuple[Array, Array]:
        held = leaves[0] != EMPTY
        return jnp.where(held, leaves[1], 0.0), jnp.full(held.shape, index)

    def combine(sofar: tuple[Array, Array], slot: tuple[Array, Array]) -> tuple[Array, Array]:
        return sofar[0] + slot[0], jnp.maximum(sofar[1] + 1, slot[1])  # counts slots, from the last

    def folded(decision: Array, until: Array | None) -> tuple[Array, Array]:
        return fold_slots(per_slot, combine, (decision, amount), until)

    table = jnp.asarray(decision)
    assert int(num_filled(table)) == filled
    some, seen = jax.jit(lambda table: folded(table, num_filled(table)))(table)
    whole, every = jax.jit(lambda table: folded(table, None))(table)
    np.testing.assert_array_equal(some, whole)  # to the bit
    assert np.all(np.asarray(every) == 2 * (MOST_WHOLE + 6))
    looked_at = np.asarray(seen) - (MOST_WHOLE + 6) + 1
    block = MAX_UNROLLED if streams > FEW_STREAMS else 4
    assert np.all((looked_at >= filled) & (looked_at <= filled + 2 * block))
