"""GPG and GPO on a game whose optimum is known, and what their actor's probabilities are."""

import functools
from itertools import product
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.algorithms import GPGConfig, GPOConfig, gpg, gpo
from offline_rl.orchestration.graph_encoder import GraphConfig
from offline_rl.orchestration.stepwise_actor import ChangeView, StepwiseConfig, stepwise_actor
from offline_rl.training_loop import in_twin, train
from tests.replicas_wanted import NUM_CHANGES, NUM_SERVICES, points_of, read, view_of, wanted
from twin.rollout import rollout

SMALL = StepwiseConfig(GraphConfig(16, (16,)), hidden=(32, 16))
KEY = jax.random.key(0)


@functools.cache
def built(num_points, nodes_a_point, config=SMALL):
    """The game, and the actor for its topology."""
    system = wanted(num_points, nodes_a_point)
    topology = points_of(num_points, nodes_a_point)
    return system, stepwise_actor(view_of(system), read, topology, NUM_CHANGES, config)


def worth(system, actor, params):
    """Share of the best possible that a policy which draws reaches, over 1,024 states."""

    @jax.jit
    def play(key):
        def policy(key, observation, legal):
            return actor.choose(params, key, observation, legal)

        episodes = rollout(key, system, policy, 4, (256,))
        here = jnp.repeat(
            episodes.observation.point[:, 0, :, 0] > 0.5,
            episodes.observation.node.shape[2] // episodes.observation.point.shape[2],
            1,
        )
        rooms = jnp.sum(here & (episodes.observation.node[:, 0, :, 0] > 0.5), axis=1)
        return jnp.sum(episodes.reward), jnp.sum(jnp.minimum(rooms, 2.0) / 2.0)

    earned, best = play(jax.random.key(9))
    return float(earned / best)


@functools.cache
def trained(learner, num_updates=60):
    system, actor = built(2, 3)
    state, info = train(KEY, learner(actor), in_twin(system, 4, (64,)), num_updates)
    return state.actor, jax.tree.map(np.asarray, info)


def by_gpg(actor):
    return gpg(actor, GPGConfig(horizon_s=0.01, learning_rate=5e-3))


def by_gpo(actor):
    return gpo(actor, GPOConfig(horizon_s=0.01, learning_rate=5e-3))


def by_single_critic(actor):
    return gpo(actor, GPOConfig(horizon_s=0.01, learning_rate=5e-3, dual=False))


@pytest.mark.slow
def test_gpg_finds_the_optimum_which_needs_the_second_choice_to_see_the_first():
    params, info = trained(by_gpg)
    assert info.reward[0] * NUM_CHANGES < 0.3
    assert worth(*built(2, 3), params) > 0.95
    assert info.impossible.max() == 0.0  # filtered


@pytest.mark.slow
def test_what_gpg_learned_on_six_nodes_decides_among_a_hundred():
    params, _ = trained(by_gpg)
    assert worth(*built(10, 10), params) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("learner", [by_gpo, by_single_critic])
def test_gpo_finds_the_optimum_with_two_critics_and_with_one(learner):
    params, info = trained(learner)
    assert worth(*built(2, 3), params) > 0.95
    assert info.value_loss[-5:].mean() < info.value_loss[:5].mean()


@pytest.mark.slow
def test_trained_on_five_access_points_of_eight_nodes_used_on_ten_with_a_hundred():
    system, actor = built(5, 8)
    state, _ = train(KEY, by_gpo(actor), in_twin(system, 4, (64,)), 100)
    assert worth(system, actor, state.actor) > 0.95
    assert worth(*built(10, 10), state.actor) > 0.95


@pytest.mark.slow
def test_unfiltered_choices_are_counted_where_they_are_impossible_and_become_rare():
    system, actor = built(2, 3, StepwiseConfig(GraphConfig(16, (16,)), hidden=(32, 16), filtered=False))
    _, info = train(KEY, by_gpg(actor), in_twin(system, 4, (64,)), 100)
    assert info.impossible[0] > 0.5
    assert info.impossible[-5:].mean() < 0.2


def few(num_nodes=3):
    """A view of one service with `able` drawn, and the actor for it."""
    random = np.random.default_rng(0)
    shapes = (2, num_nodes), (1, 1), (1, 1), (1, 1, num_nodes)
    node, point, service, pair = (random.normal(size=shape).astype(np.float32) for shape in shapes)
    able = np.array([[[True, False, True]], [[False, True, True]]])
    view = ChangeView(node, point, service, pair, able, np.array([True, True, True]))
    return view, stepwise_actor(view, lambda seen, _: seen, (0, 0, 0), NUM_CHANGES, SMALL)


@pytest.mark.slow
def test_probabilities_of_all_pairs_of_changes_add_up_to_one():
    """By enumeration: no node twice, nothing impossible; what is asked for first moves what comes second."""
    view, actor = few()
    params = actor.init(KEY)
    all_taken = np.array(list(product(range(3), range(3), range(3), range(3))), np.int32).T
    wide = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[..., None], all_taken.shape[1], -1), view)
    action = {"a_node": all_taken[0::2], "change": all_taken[1::2]}
    judged = jax.jit(lambda one: actor.judge(params, wide, None, one))(action)
    each = np.exp(np.asarray(judged.node_log_prob + judged.change_log_prob).sum(axis=0))
    assert each.sum() == pytest.approx(1.0, abs=1e-5)
    assert each[all_taken[0] == all_taken[2]].max() < 1e-12
    able = np.concatenate([np.ones((1, 3), bool), view.able[:, 0]])
    impossible = ~able[all_taken[1], all_taken[0]], ~able[all_taken[3], all_taken[2]]
    np.testing.assert_array_equal(judged.impossible, impossible)
    assert each[impossible[0] | impossible[1]].max() < 1e-12
    first = np.exp(np.asarray(judged.node_log_prob[0]))
    of_node = np.array([first[all_taken[0] == node][0] for node in range(3)])
    np.testing.assert_allclose(judged.node_entropy[0], -np.sum(of_node * np.log(of_node)), rtol=1e-4)


@pytest.mark.slow
def test_what_corrects_a_rule_begins_as_the_rule():
    """Best by the rule: one more at node 2; node 1, whose score is higher, has no room. Then one less at node 1, since
    a second one at node 2 is worth less."""
    view, _ = few()
    table = np.array([[0.0, 0.0, 0.0], [1.0, 5.0, 2.0], [0.5, 1.5, 0.5]], np.float32)
    actor = stepwise_actor(
        view, lambda seen, _: seen, (0, 0, 0), NUM_CHANGES, SMALL, lambda _view, asked: table - asked
    )
    legal = {"a_node": view.up, "change": view.up}
    chosen = jax.jit(actor.choose)(actor.init(KEY), None, view, legal)
    np.testing.assert_array_equal(chosen["a_node"], [2, 1])
    np.testing.assert_array_equal(chosen["change"], [1, 2])
    judged = actor.judge(actor.init(KEY), view, legal, chosen)
    of_node = np.array([1.0, 1.5, 2.0])
    np.testing.assert_allclose(judged.node_log_prob[0], 2.0 - np.log(np.exp(of_node).sum()), rtol=1e-4)


@pytest.mark.slow
def test_draws_have_the_probabilities_that_they_are_judged_by():
    view, actor = few()
    params = jax.tree.map(lambda leaf: 3.0 * leaf, actor.init(jax.random.key(2)))
    wide = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[..., None], 4000, -1), view)
    legal = {"a_node": wide.up, "change": wide.up}
    draw = jax.jit(lambda key: actor.choose(params, key, wide, legal))
    drawn = jax.tree.map(np.asarray, draw(KEY))
    judged = jax.jit(lambda one: actor.judge(params, wide, None, one))(drawn)
    for node in range(3):
        here = drawn["a_node"][0] == node
        assert here.any()
        wanted_share = np.exp(np.asarray(judged.node_log_prob)[0][here][0])
        assert here.mean() == pytest.approx(wanted_share, abs=0.03)
    likeliest = jax.jit(lambda: actor.choose(params, None, wide, legal))()
    best = np.asarray(judged.node_log_prob)[0].argmax()
    assert np.asarray(likeliest["a_node"])[0, 0] == drawn["a_node"][0, best]
    assert NUM_SERVICES == 3


@pytest.mark.slow
def test_no_gradient_of_the_critics_reaches_the_actor():
    """Of a single decision the advantage, less its mean, is 0: only the critics have something to learn."""
    view, _ = few()
    actor = stepwise_actor(view, lambda seen, _: seen, (0, 0, 0), 1, SMALL)
    learner = gpo(actor, GPOConfig(entropy=0.0, num_minibatches=1))
    state = learner.init(KEY)
    one = np.ones((1, 1, 1), bool)
    trajectory = SimpleNamespace(
        observation=jax.tree.map(lambda leaf: np.asarray(leaf)[None, ..., None], view),
        legal=None,
        action={"a_node": np.full((1, 1, 1), 2), "change": np.zeros((1, 1, 1), int)},
        active=one,
        settled=one,
        reward=np.ones((1, 1, 1), np.float32),
        elapsed_s=np.ones((1, 1), np.float32),
        terminated=np.zeros((1, 1), bool),
    )
    following, _ = jax.jit(lambda key, state: learner.step(key, state, trajectory))(KEY, state)
    for before, after in zip(*map(jax.tree.leaves, (state.actor, following.actor)), strict=True):
        np.testing.assert_array_equal(before, after)
    assert any(
        np.any(before != after)
        for before, after in zip(*map(jax.tree.leaves, (state.critics, following.critics)), strict=True)
    )
