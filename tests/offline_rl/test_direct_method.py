"""The direct method: the worth of every choice, whatever the log preferred; one decision ahead and no further."""

import jax
import numpy as np
import pytest

from offline_rl.algorithms import DirectMethodConfig, direct_method
from offline_rl.networks import actor, example_in
from offline_rl.training_loop import from_logs, train
from tests.offline_rl.walks import (
    NUM_ACTIONS,
    NUM_STATES,
    REWARD,
    altered,
    best_values,
    every_state,
    logged_walks,
)

KEY = jax.random.key(0)
EVERYTHING = np.ones((NUM_ACTIONS, 1, NUM_STATES), bool)
SQUARED = DirectMethodConfig(is_share=False, learning_rate=5e-3, weight_decay=0.0, hidden=(32,))


def learned(config, walks, num_updates=400):
    algorithm = direct_method(example_in(walks), config)
    state, info = train(KEY, algorithm, from_logs(walks, 16), num_updates)
    scores = actor(example_in(walks), config.hidden).logits(state.actor, every_state(), EVERYTHING)
    return np.asarray(scores)[:, 0].T, info


@pytest.mark.slow
def test_scores_are_mean_rewards_and_greed_looks_one_decision_ahead():
    scores, _ = learned(SQUARED, logged_walks())
    np.testing.assert_allclose(scores, REWARD, atol=0.03)
    assert scores.argmax(axis=1)[0] != best_values().argmax(axis=1)[0]


def test_scores_of_shares_are_log_odds():
    """Successes drawn with known probabilities, one pair of them unsettled and worth nothing to the learner."""
    walks, probability = logged_walks(num_streams=256), 0.1 + 0.8 * REWARD / REWARD.max()
    state = np.asarray(walks.observation)[:, :, 0].argmax(axis=1)
    action = np.asarray(walks.action)[:, 0]
    success = np.random.default_rng(1).random(state.shape) < probability[state, action]
    open_ = (state == 1) & (action == 2)
    walks = walks._replace(
        reward=np.where(open_, 1.0, success)[:, None].astype(np.float32), settled=~open_[:, None]
    )
    config = DirectMethodConfig(learning_rate=5e-3, weight_decay=0.0, hidden=(32,))
    scores, info = learned(config, walks, 600)
    found = 1.0 / (1.0 + np.exp(-scores))
    known = np.ones((NUM_STATES, NUM_ACTIONS), bool)
    known[1, 2] = False
    np.testing.assert_allclose(found[known], probability[known], atol=0.05)
    assert float(info.reward[-1]) == pytest.approx(success[~open_].mean(), abs=0.05)


def test_decisions_that_were_not_the_behaviours_own_teach_nothing():
    """Of the rewards of decisions that the environment replaced nothing is learned."""
    walks = logged_walks()
    spoilt = altered(walks.reward, (slice(None), 0, slice(0, 32)), 50.0)
    replaced = altered(walks.illegal, (slice(None), 0, slice(0, 32)), True)
    scores, _ = learned(SQUARED, walks._replace(reward=spoilt, illegal=replaced))
    np.testing.assert_allclose(scores, REWARD, atol=0.06)
