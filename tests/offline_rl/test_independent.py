"""Independent learners see every seat as a stream of its own."""

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.independent import by_seat, independent
from offline_rl.networks import example_in
from twin.contracts import Trajectory

STEPS, FEATURES, CHOICES, SEATS, STREAMS = 5, 3, 4, 2, 6


def made_trajectory():
    random = np.random.default_rng(0)

    def drawn(*shape):
        return jnp.asarray(random.random(shape), jnp.float32)

    yes, streams = np.ones((STEPS, SEATS, STREAMS), bool), np.zeros((STEPS, STREAMS), bool)
    return Trajectory(
        observation=drawn(STEPS, FEATURES, SEATS, STREAMS),
        global_observation=drawn(STEPS + 1, 7, STREAMS),
        legal=jnp.asarray(np.ones((STEPS, CHOICES, SEATS, STREAMS), bool)),
        active=jnp.asarray(yes),
        action=jnp.asarray(random.integers(0, CHOICES, yes.shape), jnp.int32),
        reward=drawn(*yes.shape),
        settled=jnp.asarray(yes),
        decision_info=(),
        outcome=(),
        elapsed_s=drawn(STEPS, STREAMS),
        terminated=jnp.asarray(streams),
        done=jnp.asarray(streams),
        illegal=jnp.asarray(~yes),
    )


def test_a_seat_is_a_stream_with_its_own_view_and_worth():
    whole = made_trajectory()
    found = by_seat(whole)
    assert found.reward.shape == (STEPS - 1, 1, SEATS * STREAMS)
    for seat in range(SEATS):
        for stream in range(STREAMS):
            at = seat * STREAMS + stream
            for one, other in ((found.reward, whole.reward), (found.action, whole.action)):
                np.testing.assert_array_equal(one[:, 0, at], other[:-1, seat, stream])
            np.testing.assert_array_equal(found.elapsed_s[:, at], whole.elapsed_s[:-1, stream])
            np.testing.assert_array_equal(
                found.observation[..., 0, at], whole.observation[:-1, :, seat, stream]
            )
            np.testing.assert_array_equal(
                found.global_observation[..., at], whole.observation[..., seat, stream]
            )


def test_what_is_learned_of_seats_one_by_one_decides_for_all_of_them():
    """In one seat the first choice pays, in the other the last one; what a seat sees tells them apart."""
    whole = made_trajectory()
    apart = jnp.eye(FEATURES, SEATS)[..., None]
    pays = jnp.stack([whole.action[:, 0] == 0, whole.action[:, 1] == CHOICES - 1], axis=1)
    whole = whole._replace(
        observation=jnp.broadcast_to(apart, whole.observation.shape), reward=pays.astype(jnp.float32)
    )
    config = PPOConfig(
        horizon_s=0.01, num_minibatches=1, actor_hidden=(), critic_hidden=(), learning_rate=0.1, entropy=0.0
    )
    algorithm = independent(lambda one: ppo(one, config), example_in(whole))
    step = jax.jit(algorithm.step)
    state, _ = step(jax.random.key(1), algorithm.init(jax.random.key(0)), whole)
    choice = algorithm.greedy(state)(jax.random.key(2), whole.observation[0], whole.legal[0])
    np.testing.assert_array_equal(choice, np.broadcast_to([[0], [CHOICES - 1]], (SEATS, STREAMS)))
