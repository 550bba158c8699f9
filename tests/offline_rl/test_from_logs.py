"""Learners from logs alone, on a process whose best values are known by iteration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.progress import SilentProgress
from offline_rl.algorithms import (
    AdvantageWeightedConfig,
    ChoicesTD3BCConfig,
    ConservativeQConfig,
    ImplicitQConfig,
    RegularisedImitationConfig,
    TD3BCConfig,
    advantage_weighted,
    conservative_q,
    implicit_q,
    regularised_imitation,
    td3_bc,
    td3_bc_choices,
)
from offline_rl.errors import TrainingError
from offline_rl.networks import Actor, actor, example_in
from offline_rl.recipes.held_out_value import held_out_value
from offline_rl.recipes.log_learners import learn_from_log, tuned_as
from offline_rl.training_loop import from_logs, train
from offline_rl.transitions import pairs_from_logs, transitions
from tests.offline_rl.walks import (
    DISCOUNT,
    FOLLOWING,
    HORIZON_S,
    NUM_ACTIONS,
    NUM_STATES,
    REWARD,
    altered,
    as_trajectory,
    best_values,
    every_state,
    logged_walks,
)
from twin.contracts import Interval

KEY = jax.random.key(0)
WALKS = logged_walks()
BEST = best_values().argmax(axis=1)
EVERYTHING = np.ones((NUM_ACTIONS, 1, NUM_STATES), bool)


@jax.jit
def drawn_from(experience):
    return experience(KEY, None)


@jax.jit
def transitions_of(trajectory):
    return transitions(trajectory, HORIZON_S)


def decisions(algorithm, state):
    return np.asarray(algorithm.greedy(state)(KEY, every_state(), EVERYTHING))[0]


@pytest.mark.slow
def test_without_conservatism_q_learning_finds_the_best_values():
    config = ConservativeQConfig(HORIZON_S, alpha=0.0, target_rate=0.05, learning_rate=5e-3, hidden=(32,))
    algorithm = conservative_q(example_in(WALKS), config)
    state, info = train(KEY, algorithm, pairs_from_logs(WALKS, 128), 800)
    values = actor(example_in(WALKS), config.hidden).logits(state.params, every_state(), EVERYTHING)
    np.testing.assert_allclose(np.asarray(values)[:, 0].T, best_values(), atol=0.03)
    assert np.array_equal(decisions(algorithm, state), BEST)
    assert float(info.loss[-1]) < 1e-3


@pytest.mark.slow
def test_conservatism_keeps_to_what_the_log_has_tried():
    """The best action of state 2 is missing from the log: its value is not known, so it must not be chosen."""
    partial = logged_walks(never=[(2, int(BEST[2]))])
    config = ConservativeQConfig(HORIZON_S, alpha=0.3, target_rate=0.05, learning_rate=5e-3, hidden=(32,))
    algorithm = conservative_q(example_in(partial), config)
    state, _ = train(KEY, algorithm, pairs_from_logs(partial, 128), 600)
    assert decisions(algorithm, state)[2] != BEST[2]


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
def test_implicit_q_finds_the_best_of_what_was_logged(missing):
    walks = logged_walks(never=[(2, int(BEST[2]))]) if missing else WALKS
    config = ImplicitQConfig(HORIZON_S, expectile=0.9, target_rate=0.05, learning_rate=5e-3, hidden=(32,))
    algorithm = implicit_q(example_in(walks), config)
    state, _ = train(KEY, algorithm, pairs_from_logs(walks, 128), 500)
    found = decisions(algorithm, state)
    assert (found[2] != BEST[2]) if missing else np.array_equal(found, BEST)


@pytest.mark.slow
@pytest.mark.parametrize("q_weight", [20.0, 0.01])
def test_td3_bc_of_choices_finds_the_best_or_stays_with_the_log_as_it_is_weighted(q_weight):
    config = ChoicesTD3BCConfig(HORIZON_S, q_weight, target_rate=0.05, learning_rate=5e-3, hidden=(32,))
    algorithm = td3_bc_choices(example_in(WALKS), config)
    state, info = train(KEY, algorithm, pairs_from_logs(WALKS, 128), 500)
    if q_weight > 1.0:
        assert np.array_equal(decisions(algorithm, state), BEST)
    else:  # choices at random are cloned: |p - a|^2 is least at 1/A each
        assert float(info.distance[-1]) == pytest.approx(1.0 - 1.0 / NUM_ACTIONS, abs=0.05)


def test_a_policy_is_worth_on_held_out_windows_what_its_decisions_earn_at_once():
    """A log of choices at random over known rewards: what the best choice of every state earns, and the worst."""
    table = Actor(
        lambda _key: jnp.zeros((NUM_ACTIONS, NUM_STATES)),
        lambda params, observation, _legal: jnp.tensordot(params, observation, axes=1),
    )
    half = WALKS.active.shape[-1] // 2
    first, second = (
        jax.tree.map(lambda leaf, part=part: leaf[..., part], WALKS)
        for part in (slice(half), slice(half, None))
    )
    indifferent = table.init(KEY)  # as the log was; the worths are hardly learned in so few steps
    value = held_out_value(KEY, first, second, example_in(WALKS), table, indifferent, 5, half, is_share=False)
    visits = np.bincount(np.argmax(second.observation, axis=1).ravel(), minlength=NUM_STATES)
    for sign, earned in ((1.0, REWARD.max(axis=1)), (-1.0, REWARD.min(axis=1))):
        assert value(jnp.asarray(sign * REWARD.T)) == pytest.approx(
            np.average(earned, weights=visits), abs=0.05
        )


@pytest.mark.slow
def test_a_learner_is_tuned_on_held_out_windows_and_the_search_is_kept():
    network = actor(example_in(WALKS), (8,))
    clone = jax.tree.map(jnp.zeros_like, network.init(KEY))
    learned, searches = learn_from_log(
        KEY, WALKS, example_in(WALKS), network, clone, HORIZON_S, ("cql",), (0, 1), 60, 0.25, SilentProgress()
    )
    search = searches["cql"]
    assert search.value.shape == (4, 3)
    assert search.value[tuple(search.chosen)] == search.value.max()
    assert len(set(zip(search.horizon_s.tolist(), search.weight.tolist(), strict=True))) == 4
    assert all(len(leaf) == 2 for leaf in jax.tree.leaves(learned["cql"]))
    told = tuned_as(search)
    assert (told["held_out_value"], told["num_updates"]) == (search.value.max(), (search.chosen[1] + 1) * 20)


@pytest.mark.slow
def test_advantage_weighting_improves_on_the_log_by_one_step():
    """The best decision against the values of the random walk itself, found by solving its linear equations."""
    mean = np.zeros((NUM_STATES, NUM_STATES))
    np.add.at(mean, (np.arange(NUM_STATES)[:, None], FOLLOWING), 1 / NUM_ACTIONS)
    values = np.linalg.solve(np.eye(NUM_STATES) - DISCOUNT * mean, (1 - DISCOUNT) * REWARD.mean(axis=1))
    one_step = ((1 - DISCOUNT) * REWARD + DISCOUNT * values[FOLLOWING]).argmax(axis=1)
    config = AdvantageWeightedConfig(
        HORIZON_S, gae_lambda=0.0, temperature=3.0, learning_rate=5e-3, hidden=(32,)
    )
    algorithm = advantage_weighted(example_in(WALKS), config)
    state, info = train(KEY, algorithm, from_logs(WALKS, 32), 500)
    assert np.array_equal(decisions(algorithm, state), one_step)
    assert float(info.value[-1]) == pytest.approx(values.mean(), rel=0.1)


@pytest.mark.slow
def test_the_paper_s_imitation_shrinks_probabilities_as_its_equation_says():
    """Two logged choices at 3 : 1 in one state. Minimising |p - a|^2 + lambda |p|^2 over p gives a closed form."""
    states = np.zeros((1, 400), int)
    actions = (np.arange(400)[None] % 4 == 0).astype(int)
    log = as_trajectory(states, actions, last=states[0])
    for weight in (0.0, 0.4):
        algorithm = regularised_imitation(
            example_in(log), RegularisedImitationConfig(weight, learning_rate=1e-2, hidden=(16,))
        )
        state, _ = train(KEY, algorithm, from_logs(log, 400), 600)
        # share / (1 + lambda), shifted so that the probabilities sum to one
        share = np.array([0.75, 0.25, 0.0])
        wanted = share / (1 + weight) + (1 - 1 / (1 + weight)) / 3
        drawn = jax.jit(algorithm.policy(state))
        many = np.repeat(every_state()[..., :1], 8000, axis=-1)
        taken = np.asarray(drawn(KEY, many, np.ones((NUM_ACTIONS, 1, 8000), bool)))
        np.testing.assert_allclose(np.bincount(taken.ravel(), minlength=3) / 8000, wanted, atol=0.03)


def test_virtual_streams_are_regularised_and_not_imitated():
    half = regularised_imitation(
        example_in(WALKS), RegularisedImitationConfig(virtual_share=0.5, hidden=(8,))
    )
    state, step = jax.jit(half.init)(KEY), jax.jit(half.step)
    one = step(KEY, state, WALKS)[0]
    changed = WALKS._replace(action=altered(WALKS.action, np.s_[..., 32:], 0))
    jax.tree.map(np.testing.assert_array_equal, one, step(KEY, state, changed)[0])
    changed = WALKS._replace(action=altered(WALKS.action, np.s_[..., :32], 0))
    two = step(KEY, state, changed)[0]
    assert not np.array_equal(jax.tree.leaves(one.actor)[1], jax.tree.leaves(two.actor)[1])


@pytest.mark.slow
def test_td3_bc_goes_from_the_log_towards_what_earns_more():
    """Reward -(a - target)^2, logged actions spread around 0: the policy moves to the target as the weight grows."""
    random, target = np.random.default_rng(1), np.array([0.5, -0.4])
    logged = random.uniform(-0.9, 0.9, (2, 2, 1, 512)).astype(np.float32)  # [T, dimensions, seats, B]
    reward = -np.sum((logged - target[None, :, None, None]) ** 2, axis=1)
    walks = as_trajectory(np.zeros((2, 512), int), np.zeros((2, 512), int), last=np.zeros(512, int))
    ends = Interval(np.full((2, 1, 512), -1.0, np.float32), np.ones((2, 1, 512), np.float32))
    log = walks._replace(action=(logged[:, 0], logged[:, 1]), reward=reward, legal=(ends, ends))
    config = TD3BCConfig(horizon_s=0.1, q_weight=20.0, learning_rate=3e-3, hidden=(32, 32))
    algorithm = td3_bc(example_in(log), config)
    state, _ = train(KEY, algorithm, from_logs(log, 256), 500)
    decide = jax.jit(algorithm.greedy(state))
    one = jnp.ones((1, 1))
    action = decide(KEY, every_state()[..., :1], (Interval(-one, one), Interval(-one, one)))
    np.testing.assert_allclose([float(leaf[0, 0]) for leaf in action], target, atol=0.12)
    held = decide(KEY, every_state()[..., :1], (Interval(one, 5 * one), Interval(2 * one, 2 * one)))
    assert float(held[1][0, 0]) == 2.0
    assert float(held[0][0, 0]) == pytest.approx(3.0 + 2.0 * float(action[0][0, 0]), rel=1e-5)
    with pytest.raises(TrainingError, match="learns numbers"):
        td3_bc(example_in(WALKS))


def test_transitions_leave_out_what_is_not_known():
    seen = jax.tree.map(np.asarray, transitions_of(WALKS))
    np.testing.assert_allclose(seen.discount, DISCOUNT, rtol=1e-6)
    np.testing.assert_allclose(
        seen.reward, (1 - DISCOUNT) * np.moveaxis(WALKS.reward, 0, 1)[:, :-1], rtol=1e-4
    )
    np.testing.assert_array_equal(seen.next_observation[..., :-1, :], seen.observation[..., 1:, :])
    assert float(seen.weight.min()) == 1.0
    open_end = WALKS._replace(
        settled=altered(WALKS.settled, 3, False),
        illegal=altered(WALKS.illegal, 5, True),
        active=altered(WALKS.active, 9, False),
    )
    weight = np.asarray(transitions_of(open_end).weight)[0, :, 0]
    assert np.flatnonzero(weight == 0).tolist() == [3, 5, 8, 9]


def test_pairs_are_consecutive_steps_of_one_stream():
    pairs = drawn_from(pairs_from_logs(WALKS, 200))
    assert pairs.active.shape == (2, 1, 200)
    state = np.argmax(np.asarray(pairs.global_observation), axis=1)  # [3, B]
    np.testing.assert_array_equal(FOLLOWING[state[0], np.asarray(pairs.action)[0, 0]], state[1])
    np.testing.assert_array_equal(FOLLOWING[state[1], np.asarray(pairs.action)[1, 0]], state[2])
    with pytest.raises(TrainingError, match="pairs of steps"):
        pairs_from_logs(WALKS._replace(active=WALKS.active[:1]), 4)
    with pytest.raises(TrainingError, match="no transition"):
        transitions(WALKS._replace(active=WALKS.active[:1]), HORIZON_S)


def test_a_pair_s_first_step_is_a_last_one_only_to_end_the_episode():
    ends = np.arange(WALKS.terminated.shape[1]) % 2 == 0
    walks = WALKS._replace(terminated=altered(WALKS.terminated, -1, ends))
    pairs = drawn_from(pairs_from_logs(walks, 2000))
    seen = jax.tree.map(np.asarray, transitions_of(pairs))
    state, following = (np.argmax(one[:, 0, 0], axis=0) for one in (seen.observation, seen.next_observation))
    is_last, counts = ~np.asarray(pairs.active)[1, 0], seen.weight[0, 0] > 0
    assert 0 < is_last.sum() < 200
    np.testing.assert_array_equal(is_last & counts, np.asarray(pairs.terminated)[0])
    np.testing.assert_array_equal(seen.discount[0, 0] == 0, is_last & counts)
    inside = np.arange(2000)[~is_last]
    assert counts[inside].all()
    np.testing.assert_array_equal(FOLLOWING[state, np.asarray(pairs.action)[0, 0]][inside], following[inside])


@pytest.mark.parametrize("drawing", [from_logs, pairs_from_logs])
def test_a_program_is_not_traced_again_for_other_data_of_the_same_size(drawing):
    traced = []

    @jax.jit
    def rewards(experience):
        traced.append(drawing)
        return experience(KEY, None).reward

    one, other = (
        np.asarray(rewards(drawing(WALKS._replace(reward=WALKS.reward + more), 4))) for more in (0, 1)
    )
    assert len(traced) == 1
    np.testing.assert_allclose(other, one + 1.0, rtol=1e-6)
