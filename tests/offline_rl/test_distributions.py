"""Distributions against numerical integrals and enumerated tables; continuous and dependent choices are learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.algorithms import (
    BehaviourCloningConfig,
    PPOConfig,
    behaviour_cloning,
    conservative_q,
    implicit_q,
    ppo,
    regularised_imitation,
    td3_bc_choices,
)
from offline_rl.distributions import (
    SquashedNormal,
    agreement,
    greedy,
    joint_entropy,
    joint_kl,
    joint_log_prob,
    sample,
)
from offline_rl.errors import TrainingError
from offline_rl.losses import mask_logits
from offline_rl.networks import example_in, example_of
from offline_rl.training_loop import from_logs, in_twin, train
from tests.small_games import ALLOWED, CEILING, WORTH, best_dose, dosing, pairing
from twin.contracts import Given, Interval
from twin.rollout import follow, rollout

KEY = jax.random.key(0)
DOSING, PAIRING = dosing(), pairing()
CONFIG = PPOConfig(
    horizon_s=0.01,
    learning_rate=5e-3,
    num_epochs=4,
    entropy=0.003,
    actor_hidden=(32, 32),
    critic_hidden=(16,),
)
PLACES = (np.arange(200_000) + 0.5) / 200_000


def number(mean, log_deviation, low=-1.0, high=3.0):
    ends = Interval(jnp.full(1, low), jnp.full(1, high))
    return SquashedNormal(jnp.full(1, float(mean)), jnp.full(1, float(log_deviation)), ends)


def density(mean, log_deviation):
    """Of the place in the interval, by the change of variables, in double precision."""
    away = (np.log(PLACES / (1 - PLACES)) - mean) / np.exp(log_deviation)
    return np.exp(-0.5 * away**2 - log_deviation) / np.sqrt(2 * np.pi) / PLACES / (1 - PLACES)


@jax.jit
def measures(p, q, actions):
    """Log-probabilities of actions (a leading axis), entropy and divergence."""
    return jax.vmap(lambda action: joint_log_prob(p, action))(actions), joint_entropy(p), joint_kl(p, q)


@pytest.mark.parametrize(("mean", "log_deviation"), [(0.0, 0.0), (1.5, -1.0), (-2.0, 0.5)])
def test_a_squashed_normal_s_measures_are_those_of_numerical_integration(mean, log_deviation):
    known, other = density(mean, log_deviation), density(0.3, -0.2)
    assert known.mean() == pytest.approx(1.0, abs=1e-4)
    where = np.array([1_000, 60_000, 150_000])
    action = jnp.asarray(-1.0 + 4.0 * PLACES[where, None], jnp.float32)
    log_p, spread, away = measures(number(mean, log_deviation), number(0.3, -0.2), action)
    np.testing.assert_allclose(log_p[:, 0], np.log(known[where]), rtol=1e-3, atol=1e-4)
    held = known > 1e-12
    assert float(spread[0]) == pytest.approx(
        -np.sum(known[held] * np.log(known[held])) / len(PLACES), abs=2e-3
    )
    divergence = np.sum(known[held] * np.log(known[held] / other[held])) / len(PLACES)
    assert float(away[0]) == pytest.approx(divergence, abs=2e-3)


def test_numbers_are_drawn_inside_their_interval_by_their_density():
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (40_000,)), number(0.7, -0.3))
    drawn = np.asarray(jax.jit(sample)(KEY, many))
    assert drawn.min() >= -1.0
    assert drawn.max() <= 3.0
    mean = np.mean(density(0.7, -0.3) * PLACES)
    assert (drawn.mean() + 1.0) / 4.0 == pytest.approx(mean, abs=3e-3)
    assert float(greedy(number(0.7, -0.3))[0]) == pytest.approx(-1.0 + 4.0 / (1 + np.exp(-0.7)), rel=1e-5)


def test_an_interval_whose_ends_meet_leaves_nothing_to_decide_and_no_gradient_breaks_there():
    def measured(mean):
        p = number(0.0, 0.0, 2.0, 2.0)._replace(mean=mean)
        value = (
            joint_log_prob(p, jnp.full(1, 2.0)) + joint_entropy(p) + joint_kl(p, number(1.0, 0.0, 2.0, 2.0))
        )
        return jnp.sum(value)

    value, slope = jax.jit(jax.value_and_grad(measured))(jnp.full(1, 0.4))
    assert float(value) == 0.0
    assert float(slope[0]) == 0.0
    assert float(jax.jit(sample)(KEY, number(0.4, 1.0, 2.0, 2.0))[0]) == 2.0


def tables(seed):
    """A choice of 3, one of 2 that depends on it, one of 4 that depends on the second; some are not legal."""
    rng = np.random.default_rng(seed)
    legal = np.ones((2, 3, 1), bool)
    legal[1, 0] = False
    second = mask_logits(jnp.asarray(rng.normal(size=(2, 3, 1)), jnp.float32), jnp.asarray(legal))
    first, third = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((3, 1), (4, 2, 1)))
    return first, Given(second), Given(third)


def every_action():
    a, b, c = (
        one.reshape(-1) for one in np.meshgrid(np.arange(3), np.arange(2), np.arange(4), indexing="ij")
    )
    return tuple(jnp.asarray(one[:, None], jnp.int32) for one in (a, b, c))


def test_the_chain_rule_s_measures_are_those_of_the_enumerated_joint_distribution():
    p, q = tables(0), tables(1)
    log_p, spread, away = measures(p, q, every_action())
    log_p, log_q = (np.asarray(one)[:, 0].astype(float) for one in (log_p, measures(q, p, every_action())[0]))
    mass = np.exp(log_p)
    assert mass.sum() == pytest.approx(1.0, abs=1e-5)
    assert mass[4:8].max() == 0.0  # the first's 0 forbids the second's 1
    held = mass > 0
    assert float(spread[0]) == pytest.approx(-(mass[held] * log_p[held]).sum(), abs=1e-5)
    assert float(away[0]) == pytest.approx((mass[held] * (log_p - log_q)[held]).sum(), abs=1e-5)
    num = 40_000
    drawn = jax.jit(sample)(
        KEY, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[..., None], (*leaf.shape, num)), p)
    )
    number_of = np.ravel_multi_index([np.asarray(one)[0] for one in drawn], (3, 2, 4))
    frequency = np.bincount(number_of, minlength=24) / num
    np.testing.assert_allclose(frequency, mass, atol=4 * np.sqrt(0.25 / num))
    assert np.all(frequency[~held] == 0)
    best = greedy(p)
    assert bool(agreement(p, best)[0])
    assert not bool(agreement(p, (best[0], 1 - best[1], best[2]))[0])


def test_a_number_may_depend_on_a_choice():
    means = jnp.array([[-1.0], [2.0]])
    ends = Interval(jnp.zeros((2, 1)), jnp.array([[1.0], [10.0]]))
    leaf = SquashedNormal(means, jnp.zeros((2, 1)), ends)
    p = (jnp.log(jnp.array([[0.25], [0.75]])), Given(leaf))
    choice, amount = jax.jit(greedy)(p)
    assert int(choice[0]) == 1
    assert float(amount[0]) == pytest.approx(10.0 / (1 + np.exp(-2.0)), rel=1e-5)
    taken = (jnp.zeros((1, 1), jnp.int32), jnp.full((1, 1), 0.3))
    log_p, spread, _ = measures(p, p, taken)
    alone = [
        measures(one, one, taken[1]) for one in (number(-1.0, 0.0, 0.0, 1.0), number(2.0, 0.0, 0.0, 10.0))
    ]
    wanted = -0.25 * np.log(0.25) - 0.75 * np.log(0.75)
    wanted += 0.25 * float(alone[0][1][0]) + 0.75 * float(alone[1][1][0])
    assert float(spread[0]) == pytest.approx(wanted, abs=1e-5)
    assert float(log_p[0, 0]) == pytest.approx(np.log(0.25) + float(alone[0][0][0, 0]), abs=1e-5)


@pytest.mark.slow
def test_ppo_finds_the_best_number_and_choice():
    algorithm = ppo(example_of(DOSING), CONFIG)
    state, info = train(KEY, algorithm, in_twin(DOSING, 16, (64,)), 100)
    run = jax.jit(lambda key: rollout(key, DOSING, algorithm.greedy(state), 16, (64,)))
    episodes = jax.tree.map(np.asarray, run(jax.random.key(1)))
    assert float(np.max(info.illegal)) == 0.0
    assert episodes.reward[:, 0].mean() == pytest.approx(-1 / 48, abs=0.05)  # a random policy pays about 1.5
    amount, wanted = episodes.action["amount"][:, 0], episodes.global_observation[:-1, 0]
    assert np.abs(amount - np.minimum(wanted, CEILING)).mean() < 0.1
    assert np.all(episodes.action["amount"][:, 1] == 1.0)


@pytest.mark.slow
def test_cloning_learns_numbers_beside_choices():
    @jax.jit
    def expert(key):
        seen = rollout(key, DOSING, lambda _key, _seen, legal: greedy_of(legal), 16, (64,))
        best = jax.vmap(best_dose)(seen.global_observation[:-1])
        both = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.ones_like(leaf)], axis=1), best)
        return follow(key, DOSING, both, (64,))

    log = jax.tree.map(np.asarray, expert(KEY))
    algorithm = behaviour_cloning(
        example_in(log), BehaviourCloningConfig(learning_rate=1e-2, hidden=(32, 32))
    )
    state, info = train(KEY, algorithm, from_logs(log, 32), 200)
    assert not (log.illegal & log.active).any()
    assert np.asarray(info.agreement)[-10:].mean() > 0.9
    run = jax.jit(lambda key: rollout(key, DOSING, algorithm.greedy(state), 16, (64,)))
    assert float(run(jax.random.key(1)).reward[:, 0].mean()) > -0.15


def greedy_of(legal):
    """Some legal action of the dosing game."""
    return {"amount": legal["amount"].low, "grade": jnp.argmax(legal["grade"], axis=0).astype(jnp.int32)}


@pytest.mark.slow
def test_ppo_finds_the_best_pair_where_the_first_says_what_the_second_may_be():
    algorithm = ppo(example_of(PAIRING), CONFIG)
    state, info = train(KEY, algorithm, in_twin(PAIRING, 16, (64,)), 60)
    assert float(np.max(info.illegal)) == 0.0
    seen = np.eye(len(WORTH), dtype=np.float32)[:, None]
    legal = PAIRING.problem.legal(PAIRING.reset(KEY, (len(WORTH),)).problem)
    action = jax.tree.map(np.asarray, jax.jit(algorithm.greedy(state))(KEY, seen, legal))
    found = WORTH[np.arange(len(WORTH)), action["first"][0], action["second"][0]]
    best = np.where(ALLOWED, WORTH, -np.inf).max(axis=(1, 2))
    np.testing.assert_allclose(found, best)


@pytest.mark.slow
def test_a_clone_of_dependent_choices_is_as_sure_as_the_dependence_is():
    """The first is drawn evenly and the second follows from it: log 3 nats, not the log 9 of two free choices."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 3, (8, 1, 64)).astype(np.int32)
    follows = np.array([2, 0, 1])  # allowed, and different for every first
    log = jax.jit(
        lambda: follow(KEY, PAIRING, {"first": first, "second": follows[first].astype(np.int32)}, (64,))
    )()
    log = jax.tree.map(np.asarray, log)
    assert not log.illegal.any()
    algorithm = behaviour_cloning(example_in(log), BehaviourCloningConfig(learning_rate=2e-2, hidden=(16,)))
    _, info = train(KEY, algorithm, from_logs(log, 64), 150)
    assert float(info.loss[-1]) == pytest.approx(np.log(3.0), abs=0.05)


@pytest.mark.parametrize("make", [conservative_q, implicit_q, regularised_imitation, td3_bc_choices])
def test_learners_that_value_choices_refuse_other_leaves_by_name(make):
    with pytest.raises(TrainingError, match=f"{make.__name__} learns of choices.*Interval"):
        make(example_of(DOSING))
    with pytest.raises(TrainingError, match="Given"):
        make(example_of(PAIRING))
