"""What is not legal is replaced, leaf by leaf: choices, numbers, and either given the choice before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from tests.small_games import dosing, pairing
from twin.adapters import stepwise
from twin.contracts import Given, Interval
from twin.legality import any_legal, legalised, num_trailing
from twin.rollout import follow

KEY = jax.random.key(0)


def test_numbers_outside_are_brought_to_the_nearer_end_and_nan_to_the_lower():
    legal = Interval(jnp.zeros((1, 5)), jnp.full((1, 5), 2.0))
    action, illegal = legalised(jnp.array([[-1.0, 0.0, 1.5, 9.0, jnp.nan]]), legal)
    np.testing.assert_array_equal(action, [[0.0, 0.0, 1.5, 2.0, 0.0]])
    np.testing.assert_array_equal(illegal, [[True, False, False, True, True]])


def test_a_second_choice_is_judged_by_the_first_as_it_was_replaced():
    first = jnp.array([[True, False], [False, True]])[:, None]  # [choices, seat, streams]
    table = jnp.array([[[False, True], [True, True]], [[True, False], [False, False]]])[:, :, None]
    legal = {"a": first, "b": Given(table)}
    action, illegal = legalised({"a": jnp.array([[1, 1]]), "b": jnp.array([[0, 0]])}, legal)
    np.testing.assert_array_equal(action["a"], [[0, 1]])
    np.testing.assert_array_equal(action["b"], [[1, 0]])
    np.testing.assert_array_equal(illegal, [[True, False]])
    assert num_trailing(legal) == 2


def test_a_leaf_given_nothing_is_refused():
    with pytest.raises(ConfigError, match="behind a categorical leaf"):
        legalised(jnp.zeros((1,), jnp.int32), Given(jnp.ones((2, 2, 1), bool)))
    legal = (Interval(jnp.zeros(1), jnp.ones(1)), Given(jnp.ones((2, 2, 1), bool)))
    with pytest.raises(ConfigError, match="behind a categorical leaf"):
        any_legal(legal)


def test_the_environment_hands_on_legal_actions_alone():
    actions = {"amount": jnp.full((3, 2, 4), 7.0), "grade": jnp.full((3, 2, 4), 1, jnp.int32)}
    episodes = jax.jit(lambda: follow(KEY, dosing(), actions, (4,)))()
    assert np.all(np.asarray(episodes.action["amount"])[:, 0] == 2.5)
    assert np.all(np.asarray(episodes.action["amount"])[:, 1] == 1.0)
    assert np.all(episodes.illegal)
    pairs = {"first": jnp.zeros((3, 1, 4), jnp.int32), "second": jnp.ones((3, 1, 4), jnp.int32)}
    episodes = jax.jit(lambda: follow(KEY, pairing(), pairs, (4,)))()
    assert np.all(np.asarray(episodes.action["second"]) == 0)
    assert np.all(episodes.illegal)


def test_steps_of_other_kinds_of_leaves_are_taken_one_by_one():
    for system in (dosing(), pairing()):
        game = stepwise(system, 3)
        episode, look = jax.jit(game.reset)(KEY)
        _, look = jax.jit(game.step)(KEY, episode, any_legal(look.legal))
        assert look.reward.shape == (system.problem.num_seats,)
