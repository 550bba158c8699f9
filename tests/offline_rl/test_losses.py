"""Losses against hand-worked numbers and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl import losses

LOGITS = jnp.log(jnp.array([[0.5, 0.2], [0.25, 0.3], [0.25, 0.5]]))  # [choices, batch]


def test_masked_probabilities_are_renormalised_over_what_is_legal():
    legal = jnp.array([[True, False], [True, True], [False, True]])
    masked = losses.mask_logits(LOGITS, legal)
    np.testing.assert_allclose(
        jax.nn.softmax(masked, axis=0), [[2 / 3, 0], [1 / 3, 3 / 8], [0, 5 / 8]], atol=1e-6
    )
    np.testing.assert_allclose(losses.log_prob(masked, jnp.array([0, 2])), np.log([2 / 3, 5 / 8]), rtol=1e-5)


def test_entropy_and_kl_in_closed_form():
    p = np.exp(np.asarray(LOGITS))
    np.testing.assert_allclose(losses.entropy(LOGITS), -(p * np.log(p)).sum(0), rtol=1e-5)
    uniform = jnp.zeros((3, 2))
    np.testing.assert_allclose(losses.entropy(uniform), np.log([3.0, 3.0]), rtol=1e-6)
    np.testing.assert_allclose(losses.kl_divergence(LOGITS, uniform), (p * np.log(3 * p)).sum(0), rtol=1e-5)
    np.testing.assert_allclose(losses.kl_divergence(LOGITS, LOGITS + 7.0), [0, 0], atol=1e-6)


def test_one_legal_choice_has_no_entropy_and_nothing_legal_gives_no_nan():
    legal = jnp.array([[False, False], [True, False], [False, False]])

    def total(logits):
        masked = losses.mask_logits(logits, legal)
        parts = (
            losses.entropy(masked),
            losses.kl_divergence(masked, masked),
            losses.log_prob(masked, jnp.array([1, 0])),
        )
        return sum(jnp.sum(part) for part in parts)

    np.testing.assert_allclose(losses.entropy(losses.mask_logits(LOGITS, legal))[0], 0.0)
    assert jnp.isfinite(total(LOGITS))
    assert jnp.all(jnp.isfinite(jax.grad(total)(LOGITS)))


def test_masked_choices_get_no_gradient():
    legal = jnp.array([[True, True], [True, False], [False, True]])
    gradient = jax.grad(lambda x: jnp.sum(losses.log_prob(losses.mask_logits(x, legal), jnp.array([0, 2]))))(
        LOGITS
    )
    assert jnp.all(jnp.where(legal, gradient != 0, gradient == 0))


def test_clipped_surrogate_by_hand():
    log_ratio = jnp.log(jnp.array([1.5, 1.5, 0.5, 0.5, 1.1]))
    advantage = jnp.array([1.0, -1.0, 1.0, -1.0, 2.0])
    loss = losses.clipped_surrogate(log_ratio, advantage, 0.2)
    np.testing.assert_allclose(loss, [-1.2, 1.5, -0.5, 0.8, -2.2], rtol=1e-5)


def test_huber_by_hand():
    np.testing.assert_allclose(losses.huber(jnp.array([0.5, -1.0, 3.0, -3.0]), 1.0), [0.125, 0.5, 2.5, 2.5])


def test_weighted_mean_ignores_what_has_no_weight():
    value, weight = jnp.array([1.0, 4.0, jnp.nan]), jnp.array([1.0, 3.0, 0.0])
    assert float(losses.weighted_mean(value, weight)) == 13 / 4
    assert float(losses.weighted_mean(value, jnp.zeros(3))) == 0.0


def test_standardised_by_hand_and_blind_to_what_has_no_weight():
    value, weight = jnp.array([1.0, 3.0, jnp.nan]), jnp.array([1.0, 1.0, 0.0])
    np.testing.assert_allclose(losses.standardised(value, weight)[:2], [-1.0, 1.0], rtol=1e-5)


def test_choice_error_is_the_squared_distance_from_the_choice_over_all_leaves():
    shares = (np.array([[0.5, 0.0], [0.2, 0.0], [0.3, 1.0]]), np.array([[0.6, 0.0], [0.4, 1.0]]))
    found = losses.choice_error(shares, (jnp.array([1, 2]), jnp.array([0, 0])))
    np.testing.assert_allclose(found, [0.25 + 0.64 + 0.09 + 0.32, 2.0], rtol=1e-6)


def test_what_is_better_than_usual_is_cloned_more_up_to_a_largest_weight():
    advantage, scale = jnp.array([0.0, 2.0, -2.0, 6.0, 1e6]), jnp.array(2.0)
    found = losses.preference(advantage, scale, 0.5, 4.0)
    np.testing.assert_allclose(found, [1.0, np.exp(0.5), np.exp(-0.5), 4.0, 4.0], rtol=1e-5)
    np.testing.assert_allclose(losses.preference(jnp.zeros(2), jnp.array(0.0), 3.0, 4.0), 1.0)


def test_a_ratio_that_is_cut_off_and_an_advantage_have_no_gradient():
    log_ratio, advantage = jnp.log(jnp.array([1.5, 1.1, 0.5])), jnp.array([1.0, 2.0, -1.0])
    of_ratio, of_advantage = jax.grad(lambda *x: losses.clipped_surrogate(*x, 0.2).sum(), (0, 1))(
        log_ratio, advantage
    )
    np.testing.assert_allclose(of_ratio, [0.0, -2.2, 0.0], rtol=1e-5)
    np.testing.assert_array_equal(of_advantage, 0.0)


def test_sums_and_shares_count_what_has_weight():
    value, weight = jnp.array([1.0, 4.0, jnp.nan]), jnp.array([1.0, 3.0, 0.0])
    assert float(losses.weighted_sum(value, weight)) == 13.0
    np.testing.assert_allclose(losses.shares(weight), [0.25, 0.75, 0.0])
    np.testing.assert_array_equal(losses.shares(jnp.zeros(3)), 0.0)
