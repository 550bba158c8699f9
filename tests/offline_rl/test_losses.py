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
