"""An episode that ends for good is worth nothing afterwards; one that is cut short goes on where nobody looks.

In `stopping` both look the same, step by step, and what is best differs: to go on if a stop ends everything, to stop
if it does not.
"""

import functools

import jax
import numpy as np
import pytest

from offline_rl import algorithms
from offline_rl.algorithm import cut_short
from offline_rl.algorithms import (
    AdvantageWeightedConfig,
    ConservativeQConfig,
    ImplicitQConfig,
    PPOConfig,
    advantage_weighted,
    conservative_q,
    implicit_q,
    ppo,
)
from offline_rl.networks import actor, example_in, example_of
from offline_rl.training_loop import from_logs, in_twin, train
from offline_rl.transitions import pairs_from_logs, transitions
from tests.small_games import GO_PAYS, STEP_S, stopping
from twin.rollout import rollout

DISCOUNT = 0.9
HORIZON_S = float(-STEP_S / np.log(DISCOUNT))
KEY = jax.random.key(0)
STOP, GO = 0, 1
SEEN, EVERYTHING = np.ones((1, 1, 1), np.float32), np.ones((2, 1, 1), bool)


@functools.cache
def logged(*, ends=True, num_steps=12, stop_pays=1.0):
    """Episodes of a coin's decisions, as NumPy arrays."""

    def coin(key, _observation, legal):
        return jax.random.randint(key, legal.shape[1:], 0, 2)

    run = jax.jit(lambda key: rollout(key, stopping(ends=ends, stop_pays=stop_pays), coin, num_steps, (256,)))
    return jax.tree.map(np.asarray, run(KEY))


def chosen(algorithm, state):
    return int(jax.jit(algorithm.greedy(state))(KEY, SEEN, EVERYTHING)[0, 0])


@pytest.mark.parametrize("ends", [True, False])
def test_a_trajectory_says_whether_an_end_is_for_good(ends):
    walks = logged(ends=ends)
    stops = (walks.action[:, 0] == STOP) & walks.active[:, 0]
    np.testing.assert_array_equal(walks.terminated, stops & ends)
    np.testing.assert_array_equal(walks.done, np.cumsum(stops, axis=0) > 0)
    assert stops.sum(axis=0).max() == 1
    assert stops.any(axis=0).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("ends", [True, False])
def test_ppo_goes_on_where_a_stop_ends_everything_and_stops_where_it_does_not(ends):
    config = PPOConfig(
        horizon_s=HORIZON_S, learning_rate=1e-2, num_epochs=4, actor_hidden=(8,), critic_hidden=(8,)
    )
    system = stopping(ends=ends)
    algorithm = ppo(example_of(system), config)
    state, _ = train(KEY, algorithm, in_twin(system, 8, (32,)), 40)
    assert chosen(algorithm, state) == (GO if ends else STOP)


@pytest.mark.slow
@pytest.mark.parametrize("ends", [True, False])
def test_advantage_weighting_prefers_what_is_best_under_the_log_s_own_values(ends):
    """A coin's value is 0.75 / 0.55 where a stop ends everything: it loses by stopping, and gains by it elsewhere."""
    config = AdvantageWeightedConfig(
        HORIZON_S, gae_lambda=0.0, temperature=3.0, learning_rate=1e-2, hidden=(8,)
    )
    algorithm = advantage_weighted(example_in(logged(ends=ends)), config)
    state, info = train(KEY, algorithm, from_logs(logged(ends=ends), 64), 300)
    assert chosen(algorithm, state) == (GO if ends else STOP)
    if ends:
        assert float(info.value[-1]) == pytest.approx((1 - DISCOUNT) * 0.75 / 0.55, rel=0.1)


@pytest.mark.slow
def test_a_transition_into_the_end_counts_and_a_last_step_that_ends_is_not_lost():
    """Conservative Q-learning without conservatism finds the values of both choices from episodes of two steps."""
    best = (1 - DISCOUNT) * np.array([1.0, GO_PAYS / (1 - DISCOUNT)])
    config = ConservativeQConfig(HORIZON_S, alpha=0.0, target_rate=0.05, learning_rate=1e-2, hidden=(8,))
    walks = logged(num_steps=2)
    algorithm = conservative_q(example_in(walks), config)
    state, _ = train(KEY, algorithm, pairs_from_logs(walks, 128), 600)
    found = actor(example_in(walks), config.hidden).logits(state.params, SEEN, EVERYTHING)
    np.testing.assert_allclose(np.asarray(found)[:, 0, 0], best, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(("stop_pays", "best"), [(1.0, GO), (8.0, STOP)])
def test_implicit_q_weighs_what_a_stop_pays_against_all_that_would_follow(stop_pays, best):
    walks = logged(stop_pays=stop_pays)
    config = ImplicitQConfig(HORIZON_S, expectile=0.9, target_rate=0.05, learning_rate=1e-2, hidden=(8,))
    algorithm = implicit_q(example_in(walks), config)
    state, _ = train(KEY, algorithm, pairs_from_logs(walks, 128), 400)
    assert chosen(algorithm, state) == best


def test_after_an_end_for_good_the_discount_is_zero_and_the_next_decision_is_not_needed():
    walks = logged()
    seen = jax.tree.map(np.asarray, jax.jit(lambda one: transitions(one, HORIZON_S))(walks))
    np.testing.assert_array_equal(seen.weight[0], walks.active[:-1, 0])
    wanted = np.where(walks.terminated[:-1], 0.0, DISCOUNT)
    counts = seen.weight[0] > 0
    np.testing.assert_allclose(seen.discount[0][counts], wanted[counts], rtol=1e-6)
    cut = jax.jit(lambda one: transitions(one, HORIZON_S))(logged(ends=False))
    np.testing.assert_array_equal(np.asarray(cut.weight)[0], logged(ends=False).active[1:, 0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "advantage_weighted"])
def test_the_last_request_of_a_window_is_not_valued_twice(name):
    """After it the clock stands still and the request stays in hand: the value that follows holds its reward."""
    walks = logged(ends=False, num_steps=4)
    last = np.arange(4)[:, None] == 3
    walks = walks._replace(
        done=np.broadcast_to(last, walks.done.shape), elapsed_s=np.where(last, 0.0, walks.elapsed_s)
    )
    np.testing.assert_array_equal(cut_short(walks), np.broadcast_to(last, walks.done.shape))
    algorithm = getattr(algorithms, name)(example_in(walks))
    step = jax.jit(algorithm.step)
    after = [
        step(KEY, algorithm.init(KEY), walks._replace(reward=walks.reward + pays * last[:, None]))[0].params
        for pays in (np.float32(0.0), np.float32(100.0))
    ]
    jax.tree.map(np.testing.assert_array_equal, *after)


@pytest.mark.slow
def test_what_is_seen_where_nothing_is_decided_is_worth_nothing_to_advantage_weighting():
    """As behind the end of a window of few requests."""
    walks = logged(ends=False, num_steps=4)
    nobody = np.broadcast_to(np.arange(4)[:, None, None] == 3, walks.active.shape)
    walks = walks._replace(active=walks.active & ~nobody, done=np.zeros_like(walks.done))
    algorithm = advantage_weighted(example_in(walks))
    step = jax.jit(algorithm.step)
    seen = [
        jax.tree.map(lambda leaf, far=far: np.where(nobody[:, None], far, leaf), walks.observation)
        for far in (np.float32(0.0), np.float32(100.0))
    ]
    after = [step(KEY, algorithm.init(KEY), walks._replace(observation=one))[0].params for one in seen]
    jax.tree.map(np.testing.assert_array_equal, *after)
