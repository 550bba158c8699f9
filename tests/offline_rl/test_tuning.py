"""Successive halving: the best of candidates with a known optimum, by paired plays of one compiled shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.errors import TrainingError
from offline_rl.rules.tuning import successive_halving

CANDIDATES = [{"price": jnp.float32(price)} for price in np.linspace(0.0, 1.0, 8)]
BEST = 5


def noisy(common: float, own: float, shapes: set):
    """A play whose optimum is candidate `BEST`, with luck that all of one key share, and luck of their own."""

    @jax.jit
    def play(params, keys):
        shapes.add((params["price"].shape, keys.shape))

        def one(price, key):
            shared = common * jax.random.normal(key)
            unshared = own * jax.random.normal(jax.random.fold_in(key, (1000.0 * price).astype(int)))
            return shared + unshared - (price - CANDIDATES[BEST]["price"]) ** 2

        return jax.vmap(one)(params["price"], keys)

    return play


def test_luck_that_all_share_decides_nothing() -> None:
    shapes: set = set()
    found = successive_halving(jax.random.key(0), noisy(100.0, 0.0, shapes), CANDIDATES)
    assert found.best == BEST
    assert shapes == {((8,), (8,))}  # one program
    assert sorted(found.num_plays.tolist()) == [1, 1, 1, 1, 3, 3, 7, 7]
    assert found.num_plays.sum() == 3 * 8


@pytest.mark.slow
def test_those_that_play_on_are_known_better() -> None:
    right = [
        successive_halving(jax.random.key(seed), noisy(1.0, 0.05, set()), CANDIDATES).best
        for seed in range(20)
    ]
    assert np.mean(np.abs(np.array(right) - BEST) <= 1) >= 0.9


def test_ties_go_to_the_first_and_odd_numbers_are_refused() -> None:
    def level(params, keys):
        return jnp.zeros(keys.shape)

    assert successive_halving(jax.random.key(0), level, CANDIDATES).best == 0
    assert successive_halving(jax.random.key(0), level, CANDIDATES[:1]).best == 0
    with pytest.raises(TrainingError, match="6 candidates"):
        successive_halving(jax.random.key(0), level, CANDIDATES[:6])
