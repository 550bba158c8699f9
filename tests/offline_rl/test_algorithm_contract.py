"""What every exported algorithm must keep to, whatever it learns by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl import algorithms
from offline_rl.networks import example_of
from tests.toys import toy_problem, toy_response
from twin.environment import environment
from twin.rollout import rollout

ENVIRONMENT = environment(toy_problem(), toy_response(length=40))
CONTINUOUS = "td3_bc"
"""Its actions are numbers, not choices: see `test_from_logs`."""
NAMES = [name for name in algorithms.__all__ if not name.endswith("Config") and name != CONTINUOUS]
KEY = jax.random.key(0)


def experience(policy, key=KEY):
    return jax.jit(lambda key: rollout(key, ENVIRONMENT, policy, 4, (4,)))(key)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_keeps_the_state_s_shape_repeats_its_bits_and_is_traced_once(name):
    algorithm = getattr(algorithms, name)(example_of(ENVIRONMENT))
    state = jax.jit(algorithm.init)(KEY)
    trajectory, traced = experience(algorithm.policy(state)), []

    def counted(key, state, trajectory):
        traced.append(1)
        return algorithm.step(key, state, trajectory)

    step = jax.jit(counted)
    one, info = step(KEY, state, trajectory)
    again, _ = step(KEY, state, trajectory)
    further, _ = step(jax.random.key(1), one, trajectory)
    assert len(traced) == 1
    for before, after, same, later in zip(*map(jax.tree.leaves, (state, one, again, further)), strict=True):
        assert before.shape == after.shape
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(after, same)
        assert bool(jnp.all(jnp.isfinite(later)))
    for value in jax.tree.leaves(info):
        assert value.shape == ()
        assert bool(jnp.isfinite(value))


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_ended_long_ago_teaches_nothing(name):
    algorithm = getattr(algorithms, name)(example_of(ENVIRONMENT))
    state = jax.jit(algorithm.init)(KEY)
    ended = environment(toy_problem(), toy_response(length=0, drawn=False))
    trajectory = jax.jit(lambda: rollout(KEY, ended, algorithm.policy(state), 4, (4,)))()
    assert not bool(jnp.any(trajectory.active))
    following, info = jax.jit(algorithm.step)(KEY, state, trajectory)
    losses = {field: float(value) for field, value in info._asdict().items() if field.endswith("loss")}
    assert losses == dict.fromkeys(losses, 0.0)
    assert losses
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(following))
