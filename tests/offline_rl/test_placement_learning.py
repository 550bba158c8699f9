"""Learning on the placement problem, where the best decision is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.algorithms import PPOConfig, ppo
from offline_rl.networks import example_of
from offline_rl.training_loop import in_twin, train
from tests.twin.mechanical import ACCEPTED, FAVOURITE, mechanical
from twin.rollout import rollout

ENVIRONMENT = mechanical(length=1000)


@pytest.mark.slow
def test_ppo_learns_which_node_suits_which_service():
    config = PPOConfig(
        horizon_s=0.1,
        learning_rate=5e-3,
        num_epochs=4,
        entropy=0.003,
        actor_hidden=(32,),
        critic_hidden=(32,),
    )
    algorithm = ppo(example_of(ENVIRONMENT), config)
    state, info = train(jax.random.key(0), algorithm, in_twin(ENVIRONMENT, 32, (32,)), 60)
    run = jax.jit(lambda key: rollout(key, ENVIRONMENT, algorithm.greedy(state), 32, (64,)))
    trajectory = run(jax.random.key(1))
    assert float(info.reward[0]) < 0.5
    assert float(info.reward[-5:].mean()) > 0.8 * ACCEPTED
    # The last vocabularies: services, queue
    service = jnp.argmax(trajectory.observation.request[:, -5:-1, 0], axis=1)
    agrees = np.asarray(trajectory.action[:, 0] == jnp.asarray(FAVOURITE)[service])
    assert agrees.mean() > 0.98
    reward = np.asarray(trajectory.reward)[np.asarray(trajectory.settled)]
    np.testing.assert_allclose(reward.mean(), ACCEPTED, atol=4 * np.sqrt(0.09 / reward.size) + 0.02)
