"""The actor's distribution: masked, sampled without bias, the same for one stream and for many."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.distributions import agreement, greedy, joint_entropy, joint_kl, joint_log_prob, sample
from offline_rl.losses import MASKED_LOGIT, mask_logits
from offline_rl.networks import (
    Actor,
    Example,
    actor,
    critic,
    example_of,
    greedy_policy,
    near_best_policy,
    sampling_policy,
)
from tests.toys import JOINT, toy_problem, toy_response
from twin.environment import environment

ENVIRONMENT = environment(toy_problem(), toy_response())
EXAMPLE = example_of(ENVIRONMENT)
ACTOR = actor(EXAMPLE, (8,))
LOGITS = jax.jit(ACTOR.logits)


@functools.partial(jax.jit, static_argnums=0)
def seen(streams):
    """Observation, legality and global observation of a fresh toy."""
    state = ENVIRONMENT.reset(jax.random.key(2), streams).problem
    problem = ENVIRONMENT.problem
    return problem.observe(state), problem.legal(state), problem.observe_global(state)


def test_samples_follow_the_probabilities_and_never_an_illegal_choice():
    legal = jnp.array([[True, True], [False, True], [True, True], [False, True]])
    logits = mask_logits(jnp.array([[0.0, 2.0], [9.0, 1.0], [1.0, -30.0], [9.0, 0.0]]), legal)
    num = 20_000
    drawn = np.asarray(sample(jax.random.key(0), jnp.broadcast_to(logits[..., None], (4, 2, num))))
    frequency = np.stack([(drawn == choice).mean(axis=1) for choice in range(4)])
    probability = np.asarray(jax.nn.softmax(logits, axis=0))
    np.testing.assert_allclose(frequency, probability, atol=4 * np.sqrt(0.25 / num))
    assert np.all(frequency[~np.asarray(legal)] == 0)


def test_leaves_and_seats_are_drawn_independently():
    logits = {"edge": jnp.zeros((2, 2, 4000)), "urgent": jnp.zeros((2, 2, 4000))}
    drawn = sample(jax.random.key(1), logits)
    series = np.concatenate([np.asarray(drawn["edge"]), np.asarray(drawn["urgent"])])
    off_diagonal = np.corrcoef(series) - np.eye(4)
    assert np.abs(off_diagonal).max() < 0.07


def test_one_legal_choice_is_certain_and_none_gives_no_nan():
    legal = jnp.array([[False, False], [False, True], [False, False]])
    logits = mask_logits(jnp.ones((3, 2)), legal)
    drawn = np.asarray(sample(jax.random.key(0), jnp.broadcast_to(logits[..., None], (3, 2, 50))))
    assert np.all(drawn[1] == 1)
    assert np.all((drawn[0] >= 0) & (drawn[0] < 3))
    np.testing.assert_array_equal(greedy(logits), [0, 1])


def test_joint_quantities_agree_with_the_enumerated_joint_distribution():
    rng = np.random.default_rng(0)
    logits, other = (
        {"edge": jnp.asarray(rng.normal(size=(3, 1))), "urgent": jnp.asarray(rng.normal(size=(2, 1)))}
        for _ in range(2)
    )
    pairs = np.unique(JOINT[:, :2], axis=0)
    log_p, log_q = (
        np.array(
            [joint_log_prob(one, {"edge": jnp.array([e]), "urgent": jnp.array([u])})[0] for e, u in pairs]
        )
        for one in (logits, other)
    )
    p = np.exp(log_p)
    assert p.sum() == pytest.approx(1.0, abs=1e-5)
    assert float(joint_entropy(logits)[0]) == pytest.approx(-(p * log_p).sum(), abs=1e-5)
    assert float(joint_kl(logits, other)[0]) == pytest.approx((p * (log_p - log_q)).sum(), abs=1e-5)
    best = pairs[np.argmax(log_p)]
    assert bool(agreement(logits, {"edge": jnp.array([best[0]]), "urgent": jnp.array([best[1]])})[0])
    assert not bool(agreement(logits, {"edge": jnp.array([best[0]]), "urgent": jnp.array([1 - best[1]])})[0])


def test_streams_do_not_meet_in_the_networks():
    observation, legal, everything = seen((5,))
    params = ACTOR.init(jax.random.key(0))
    logits = LOGITS(params, observation, legal)
    valuer = critic(EXAMPLE, (8,))
    weights, value_of = valuer.init(jax.random.key(1)), jax.jit(valuer.value, static_argnums=2)
    value = value_of(weights, everything, 1)
    for stream in range(5):
        one = jax.tree.map(lambda leaf, stream=stream: leaf[..., stream], (observation, legal, everything))
        alone = LOGITS(params, *one[:2])
        for left, right in zip(jax.tree.leaves(alone), jax.tree.leaves(logits), strict=True):
            np.testing.assert_allclose(left, right[..., stream], rtol=1e-4)
        assert float(value_of(weights, one[2], 0)) == pytest.approx(float(value[stream]), rel=1e-4)


def test_a_fresh_actor_is_nearly_uniform_over_what_is_legal():
    observation, legal, _ = seen((64,))
    logits = LOGITS(ACTOR.init(jax.random.key(0)), observation, legal)
    assert np.all(np.asarray(logits["edge"])[~np.asarray(legal["edge"])] == MASKED_LOGIT)
    uniform = sum(np.log(np.asarray(mask).sum(axis=0)) for mask in legal.values())
    np.testing.assert_allclose(joint_entropy(logits), uniform, atol=1e-2)


def test_a_seat_sees_its_own_observation_only():
    observation, legal, _ = seen((4,))
    params = ACTOR.init(jax.random.key(0))
    changed = jax.tree.map(lambda leaf: leaf.at[:, 1].add(1.0), observation)
    before, after = (LOGITS(params, one, legal)["urgent"] for one in (observation, changed))
    np.testing.assert_array_equal(before[:, 0], after[:, 0])
    assert not np.array_equal(before[:, 1], after[:, 1])


def test_policies_give_legal_actions_of_the_action_s_shape():
    observation, legal, _ = seen((6,))
    params = ACTOR.init(jax.random.key(0))
    for make in (sampling_policy, greedy_policy):
        action = jax.jit(make(ACTOR, params))(jax.random.key(5), observation, legal)
        for leaf, mask in zip(jax.tree.leaves(action), jax.tree.leaves(legal), strict=True):
            assert leaf.dtype == jnp.int32
            assert bool(jnp.all(jnp.take_along_axis(mask, leaf[None], axis=0)))


def test_an_example_holds_shapes_of_one_stream():
    assert isinstance(EXAMPLE, Example)
    observation, legal, everything = seen(())
    assert jax.tree.map(jnp.shape, EXAMPLE) == jax.tree.map(
        jnp.shape, Example(observation, legal, everything)
    )


def test_probabilities_are_shares_of_the_legal_outputs_made_positive():
    """KaiS, equations 4 and 5: with p = exp(x) > 0, a legal choice's probability is p over the sum of legal p."""
    seen, mask = (
        np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(3, 2),
        np.array([[1, 1], [0, 1], [1, 1]]) > 0,
    )
    network = actor(Example(seen, mask, None), (8,))
    params = jax.tree.map(lambda leaf: 30.0 * leaf, network.init(jax.random.key(0)))
    output = np.exp(np.asarray(network.logits(params, seen, np.ones_like(mask))))
    wanted = output * mask / np.sum(output * mask, axis=0)
    found = jax.nn.softmax(network.logits(params, seen, mask), axis=0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_choices_near_the_best_are_drawn_evenly_and_no_others():
    logits = jnp.array([1.0, 0.97, 0.5, 0.99, 2.0])
    legal = jnp.array([True, True, True, True, False])
    network = Actor(lambda _key: None, lambda _params, seen, mask: mask_logits(seen, mask))
    wide = [jnp.broadcast_to(leaf[:, None, None], (5, 1, 6000)) for leaf in (logits, legal)]
    drawn = np.asarray(near_best_policy(network, None, 0.02)(jax.random.key(0), *wide))
    np.testing.assert_allclose([np.mean(drawn == one) for one in range(5)], [0.5, 0, 0, 0.5, 0], atol=0.03)
