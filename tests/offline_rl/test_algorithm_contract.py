"""What every exported algorithm must keep to, whatever it learns by."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl import algorithms
from offline_rl.networks import Actor, Critic, actor, critic, example_of
from tests.toys import toy_problem, toy_response
from twin.environment import environment
from twin.rollout import rollout

ENVIRONMENT = environment(toy_problem(), toy_response(length=40))
CONTINUOUS = ("td3", "td3_bc")
"""Their actions are numbers, not choices: see `test_td3` and `test_from_logs`."""
STEPWISE = ("gpg", "gpo")
"""They take an actor of their own: see `test_stepwise_learners`."""
NAMES = [
    name
    for name in algorithms.__all__
    if not name.endswith("Config") and name not in (*CONTINUOUS, *STEPWISE)
]
COSTLY = ("advantage_weighted", "cmmac", "conservative_q", "ddpg", "implicit_q", "td3_bc_choices")
"""Their steps take more than a second or two to compile."""
BY_COST = [pytest.param(name, marks=[pytest.mark.slow] * (name in COSTLY)) for name in NAMES]
KEY = jax.random.key(0)


class Built:
    """An algorithm, its first state and its step: compiled once for all tests, traces counted."""

    def __init__(self, name):
        self.algorithm, self.num_traces = getattr(algorithms, name)(example_of(ENVIRONMENT)), 0
        self.state = jax.jit(self.algorithm.init)(KEY)
        self.step = jax.jit(self._counted)

    def _counted(self, key, state, trajectory):
        self.num_traces += 1
        return self.algorithm.step(key, state, trajectory)


built = functools.cache(Built)


@functools.cache
def episodes(*, ended=False):
    """Four steps of four streams under random choices; or of streams that had ended before the first step."""

    def anything(key, _observation, legal):
        return jax.tree.map(lambda mask: jax.random.randint(key, mask.shape[1:], 0, mask.shape[0]), legal)

    system = environment(toy_problem(), toy_response(length=0 if ended else 40))
    return jax.jit(lambda key: rollout(key, system, anything, 4, (4,)))(KEY)


@pytest.mark.parametrize("name", BY_COST)
def test_a_step_keeps_the_state_s_shape_repeats_its_bits_and_is_traced_once(name):
    subject, trajectory = built(name), episodes()
    one, info = subject.step(KEY, subject.state, trajectory)
    again, _ = subject.step(KEY, subject.state, trajectory)
    further, _ = subject.step(jax.random.key(1), one, trajectory)
    assert subject.num_traces == 1
    for before, after, same, later in zip(
        *map(jax.tree.leaves, (subject.state, one, again, further)), strict=True
    ):
        assert before.shape == after.shape
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(after, same)
        assert np.all(np.isfinite(later))
    for value in jax.tree.leaves(info):
        assert value.shape == ()
        assert np.isfinite(value)


@pytest.mark.parametrize("name", NAMES)
def test_its_networks_are_handed_observations_as_they_are(name):
    """So that a network may be made for sets or graphs: leaves [..., seats, T, B], whatever the tree."""
    example, trajectory, met = example_of(ENVIRONMENT), episodes(), []

    def ranks(tree):
        return jax.tree.map(lambda leaf: len(leaf.shape), tree)

    def watched(params, observation, legal):
        met.append(ranks(observation))
        return plain.logits(params, observation, legal)

    def watched_value(params, observation, num_trailing):
        met.append(ranks(observation))
        return valuer.value(params, observation, num_trailing)

    plain, valuer = actor(example, (8,)), critic(example, (8,))
    extra = {"value_network": Critic(valuer.init, watched_value)} if name == "ppo" else {}
    algorithm = getattr(algorithms, name)(example, network=Actor(plain.init, watched), **extra)
    jax.eval_shape(algorithm.step, KEY, jax.eval_shape(algorithm.init, KEY), trajectory)
    of_seats = jax.tree.map(lambda rank: rank + 2, ranks(example.observation))
    of_streams = jax.tree.map(lambda rank: rank + 2, ranks(example.global_observation))
    assert of_seats in met
    assert (of_streams in met) == (name == "ppo")
    assert all(one in (of_seats, of_streams) for one in met)


@pytest.mark.parametrize("name", BY_COST)
def test_its_policies_choose_one_legal_action_for_every_seat(name):
    subject = built(name)
    seen, legal = jax.tree.map(lambda leaf: leaf[0], (episodes().observation, episodes().legal))

    @jax.jit
    def decide(state):
        return [
            policy(state)(KEY, seen, legal) for policy in (subject.algorithm.policy, subject.algorithm.greedy)
        ]

    for action in decide(subject.state):
        for chosen, mask in zip(jax.tree.leaves(action), jax.tree.leaves(legal), strict=True):
            assert chosen.shape == mask.shape[1:]
            assert jnp.issubdtype(chosen.dtype, jnp.integer)
            assert np.take_along_axis(np.asarray(mask), np.asarray(chosen)[None], axis=0).all()


@pytest.mark.parametrize("name", BY_COST)
def test_a_stream_that_ended_long_ago_teaches_nothing(name):
    subject, trajectory = built(name), episodes(ended=True)
    assert not np.any(trajectory.active)
    following, info = subject.step(KEY, subject.state, trajectory)
    losses = {field: float(value) for field, value in info._asdict().items() if field.endswith("loss")}
    assert losses == dict.fromkeys(losses, 0.0)
    assert losses
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(following))
