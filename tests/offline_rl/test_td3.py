"""TD3 on a system whose best action is known, and its replay buffer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.algorithms.td3 import TD3Config, td3
from offline_rl.deterministic import DeterministicNetworks, value_loss
from offline_rl.errors import TrainingError
from offline_rl.networks import Example
from offline_rl.replay import empty_buffer, sample_batch, with_transitions
from offline_rl.training_loop import train
from offline_rl.transitions import Transitions, transitions
from twin.contracts import Interval, Trajectory

KEY = jax.random.key(0)
DISCOUNT = 0.8
STREAMS, STEPS = 32, 6
TRAJECTORIES = 250


def interval(shape):
    return Interval(-jnp.ones(shape), jnp.ones(shape))


EXAMPLE = Example(
    jax.ShapeDtypeStruct((1, 1), jnp.float32),
    (Interval(*(jax.ShapeDtypeStruct((1,), jnp.float32),) * 2),),
    jax.ShapeDtypeStruct((1,), jnp.float32),
)


def experience(key, policy):
    """The state becomes the action, and a state x earns x at a price of a^2 for the action that left it.

    The action counts one step later: the best is `DISCOUNT / 2` everywhere, while greed takes 0.
    """
    key_first, key_steps = jax.random.split(key)
    first = jax.random.uniform(key_first, (1, STREAMS), minval=-1.0)

    def one(state, key):
        (action,) = policy(key, state[None], (interval((1, STREAMS)),))
        return action, (state, action, state - action**2)

    last, (states, actions, reward) = jax.lax.scan(one, first, jax.random.split(key_steps, STEPS))
    shape = (STEPS, 1, STREAMS)
    yes, no = jnp.ones(shape, bool), jnp.zeros(shape, bool)
    return Trajectory(
        observation=states[:, None], global_observation=jnp.concatenate([states, last[None]]),
        legal=(interval(shape),), active=yes, action=(actions,), reward=reward, settled=yes, decision_info=(),
        outcome=(), elapsed_s=jnp.ones((STEPS, STREAMS)), terminated=no[:, 0], done=no[:, 0], illegal=no,
    )  # fmt: skip


CONFIG = TD3Config(
    horizon_s=-1.0 / np.log(DISCOUNT), capacity=4000, batch=128, updates=10, exploration=0.2, random_share=0.2,
    target_rate=0.02, learning_rate=2e-3, hidden=(32, 32),
)  # fmt: skip


@pytest.mark.slow
def test_td3_finds_the_action_that_pays_later():
    algorithm = td3(EXAMPLE, CONFIG)
    state, info = train(KEY, algorithm, experience, TRAJECTORIES)
    seen = jnp.linspace(-0.8, 0.8, 9)[None, None]
    (action,) = algorithm.greedy(state)(KEY, seen, (interval((1, 9)),))
    np.testing.assert_allclose(action[0], DISCOUNT / 2, atol=0.1)
    assert np.all(np.isfinite(np.asarray(info.value_loss)))
    assert int(state.updates) == TRAJECTORIES * CONFIG.updates


def test_the_buffer_keeps_the_latest_and_draws_from_what_is_there():
    algorithm = td3(EXAMPLE, CONFIG)

    @jax.jit
    def acted(key):
        return transitions(experience(key, algorithm.policy(algorithm.init(key))), CONFIG.horizon_s)

    seen, added = acted(KEY), jax.jit(with_transitions)
    count = seen.weight.size
    buffer = empty_buffer(EXAMPLE, count + 10)
    once = added(buffer, seen)
    assert int(once.filled) == count
    batch = jax.jit(sample_batch, static_argnums=2)(once, KEY, 500)
    assert np.isin(np.asarray(batch.reward), np.asarray(seen.reward)).all()
    assert float(jnp.min(batch.weight)) == 1.0  # none of the empty places
    twice = added(once, jax.tree.map(lambda leaf: leaf + 1.0, seen))
    assert int(twice.filled) == count + 10
    assert int(twice.place) == (2 * count) % (count + 10)
    kept = np.sort(np.asarray(twice.stored.weight).ravel())
    np.testing.assert_array_equal(kept, np.sort(np.r_[np.ones(10), np.full(count, 2.0)]))


def test_choices_and_impossible_sizes_are_refused():
    with pytest.raises(TrainingError, match="td3 learns numbers"):
        td3(EXAMPLE._replace(legal=jax.ShapeDtypeStruct((3, 1), jnp.bool_)))
    with pytest.raises(TrainingError, match="1 or more"):
        TD3Config(batch=0)


def test_a_number_that_cannot_move_is_no_other_in_the_aim_of_the_values():
    """Values learn a fixed number at 0, where all logged ones are; noise would ask them for what they never saw."""
    networks = DeterministicNetworks.of(EXAMPLE, (4,))
    params, fixed = networks.init(KEY), (Interval(jnp.ones((1, 8)), jnp.ones((1, 8))),)
    seen, rows = jnp.linspace(-1.0, 1.0, 8)[None, None], jnp.ones((1, 8))
    batch = Transitions(seen, fixed, (rows,), rows, rows, rows, seen, fixed)
    loss = [value_loss(networks, params.pair, params, batch, KEY, noise, 0.5)[0] for noise in (0.0, 0.3)]
    assert float(loss[0]) == float(loss[1])
