"""Returns against hand-worked series."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.returns import above_block, elapsed_discount, generalised_advantage, temporal_difference


def test_discount_is_one_over_e_after_the_horizon_and_one_when_no_time_passes():
    discount = elapsed_discount(jnp.array([0.0, 600.0, 1200.0]), 600.0)
    np.testing.assert_allclose(discount, [1.0, np.exp(-1), np.exp(-2)], rtol=1e-6)


def test_temporal_difference_by_hand():
    error = temporal_difference(
        jnp.array([1.0, 0.0]), jnp.array([0.5, 1.0]), jnp.array([2.0, 3.0]), jnp.array([3.0, 1.0])
    )
    np.testing.assert_allclose(error, [0.5, -2.0])


def test_generalised_advantage_by_hand():
    # A_2 = 4; A_1 = 2 + .5 * .5 * 4 = 3; A_0 = 1 + 1 * .5 * 3 = 2.5
    advantage = generalised_advantage(
        jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 0.5, 0.9]), jnp.full(3, 0.5)
    )
    np.testing.assert_allclose(advantage, [2.5, 3.0, 4.0])


def test_lambda_one_is_the_discounted_return_bootstrapped_at_truncation():
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=6), rng.normal(size=7)
    discount = rng.uniform(0.2, 1.0, size=6)
    error = temporal_difference(*(jnp.asarray(x) for x in (reward, discount, value[:-1], value[1:])))
    advantage = generalised_advantage(error, jnp.asarray(discount), jnp.ones(6))
    later = value[-1]
    for step in range(5, -1, -1):
        later = reward[step] + discount[step] * later
        assert float(advantage[step]) == pytest.approx(later - value[step], abs=1e-5)


def test_a_zero_discount_cuts_a_trace_in_two():
    error = jax.random.normal(jax.random.key(0), (8,))
    discount, decay = jnp.full(8, 0.9).at[3].set(0.0), jnp.full(8, 0.95)
    whole = generalised_advantage(error, discount, decay)
    parts = [generalised_advantage(error[a:b], discount[a:b], decay[a:b]) for a, b in ((0, 4), (4, 8))]
    np.testing.assert_array_equal(whole, jnp.concatenate(parts))


def test_steps_after_the_end_pass_through():
    # No reward, no time, a value that stands still: the series before them does not notice.
    reward, elapsed_s = jnp.array([1.0, -1.0, 0.0, 0.0]), jnp.array([30.0, 60.0, 0.0, 0.0])
    value = jnp.array([0.3, 0.7, 0.2, 0.2, 0.2])
    discount = elapsed_discount(elapsed_s, 100.0)
    error = temporal_difference(reward, discount, value[:-1], value[1:])
    advantage = generalised_advantage(error, discount, jnp.full(4, 0.9))
    short = generalised_advantage(error[:2], discount[:2], jnp.full(2, 0.9))
    np.testing.assert_allclose(advantage, [*short, 0.0, 0.0], atol=1e-7)


def test_what_a_stream_has_above_its_block_of_copies():
    value, counts = np.array([[1.0, 3.0, 10.0, 20.0]]), np.array([[True, True, True, False]])
    np.testing.assert_allclose(above_block(value, counts, 2), [[-1.0, 1.0, 0.0, 0.0]])
    everything = np.ones_like(counts)
    np.testing.assert_allclose(above_block(value, everything, 1), value - 8.5)
