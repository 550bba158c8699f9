"""Algorithms on the toy, whose best joint action is known by enumeration."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.algorithms import (
    BehaviourCloningConfig,
    CMMACConfig,
    PPOConfig,
    behaviour_cloning,
    cmmac,
    ppo,
)
from offline_rl.errors import TrainingError
from offline_rl.networks import Example, example_in, example_of
from offline_rl.training_loop import from_logs, in_twin, train
from tests.toys import Batch, best_action, best_and_random, toy_problem, toy_response
from twin.environment import environment
from twin.rollout import follow, rollout

ENVIRONMENT = environment(toy_problem(), toy_response(length=40))
QUIET = environment(toy_problem(), toy_response(noise=0.0, resolves_pending=True))
SMALL = PPOConfig(
    horizon_s=0.01,
    learning_rate=5e-3,
    num_epochs=4,
    entropy=0.003,
    actor_hidden=(32, 32),
    critic_hidden=(32,),
)
CLONING = BehaviourCloningConfig(learning_rate=1e-2, hidden=(64, 64))


def batches(observation: Batch) -> Batch:
    """The batches that a trajectory met, from its global observations [T + 1, ...]."""
    met = jax.tree.map(lambda leaf: leaf[:-1], observation)
    return met._replace(up=met.up > 0)


@jax.jit
def enumerated(observation: Batch):
    """Mean cost of the optimum and of a random policy."""
    best, random = jax.vmap(best_and_random)(batches(observation))
    return best.mean(), random.mean()


def advantage_over_random(policy) -> float:
    """1 for the enumerated optimum, 0 for a uniformly random policy, on expected costs."""

    @jax.jit
    def costs(key):
        trajectory = rollout(key, QUIET, policy, 16, (64,))
        cost = -jnp.sum(trajectory.reward, axis=1)
        return jnp.all(trajectory.settled), trajectory.global_observation, cost.mean()

    settled, observation, cost = costs(jax.random.key(99))
    best, random = map(float, enumerated(observation))
    assert settled
    return (random - float(cost)) / (random - best)


@functools.cache
def expert_trajectory():
    """A trajectory along the enumerated optimum.

    The batches do not depend on the actions, so that two passes find it.
    """
    key, streams = jax.random.key(5), (128,)

    @jax.jit
    def along(actions):
        trajectory = follow(key, ENVIRONMENT, actions, streams)
        return trajectory, jax.vmap(best_action)(batches(trajectory.global_observation))

    any_action = {name: np.zeros((16, 2, *streams), np.int32) for name in ("edge", "urgent")}
    return jax.tree.map(np.asarray, along(along(any_action)[1])[0])


@pytest.mark.slow
def test_ppo_comes_within_five_percent_of_the_enumerated_optimum():
    algorithm = ppo(example_of(ENVIRONMENT), SMALL)
    state, info = train(jax.random.key(0), algorithm, in_twin(ENVIRONMENT, 16, (64,)), 120)
    assert advantage_over_random(algorithm.greedy(state)) > 0.95
    info = jax.tree.map(np.asarray, info)
    assert info.reward.shape == (120,)
    assert info.reward[-10:].mean() > info.reward[:3].mean() + 1.0
    assert 0.9 < info.settled.mean() < 1.0  # late outcomes at the end of a rollout stay open
    assert float(info.illegal.max()) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("central", [True, False])
def test_cmmac_and_plain_actor_critic_come_within_ten_percent_of_the_optimum(central):
    """With an entropy bonus of .003 it settles early, since nothing clips its steps: .23 to .84 in four seeds."""
    config = CMMACConfig(
        0.01, central=central, learning_rate=3e-3, entropy=0.05, actor_hidden=(32, 32), critic_hidden=(32,)
    )
    algorithm = cmmac(example_of(ENVIRONMENT), config)
    state, info = train(jax.random.key(0), algorithm, in_twin(ENVIRONMENT, 16, (64,)), 300)
    assert advantage_over_random(algorithm.greedy(state)) > 0.9
    assert float(info.value_loss[-10:].mean()) < float(info.value_loss[:3].mean())


@functools.cache
def cloned():
    """A clone of the expert: the algorithm, its state, the curves."""
    trajectory = expert_trajectory()
    assert not (trajectory.illegal & trajectory.active).any()
    algorithm = behaviour_cloning(example_in(trajectory), CLONING)
    return algorithm, *train(jax.random.key(1), algorithm, from_logs(trajectory, 32), 200)


@pytest.mark.slow
def test_cloning_recovers_a_deterministic_expert():
    algorithm, state, info = cloned()
    assert np.asarray(info.agreement)[-10:].mean() > 0.98
    assert advantage_over_random(algorithm.greedy(state)) > 0.97


@pytest.mark.slow
def test_ppo_starts_as_the_clone_and_stays_near_it():
    _, state, _ = cloned()
    near = PPOConfig(
        horizon_s=0.01, kl_to_clone=10.0, actor_hidden=CLONING.hidden, critic_hidden=(32,), learning_rate=1e-3
    )
    learner = ppo(example_of(ENVIRONMENT), near, clone=state.actor)
    warm, curves = train(jax.random.key(2), learner, in_twin(ENVIRONMENT, 8, (32,)), 20)
    assert float(curves.kl_to_clone[0]) < 0.02  # it starts as the clone
    assert float(curves.kl_to_clone.max()) < 0.1  # and stays near it
    assert advantage_over_random(learner.greedy(warm)) > 0.95


@pytest.mark.slow
def test_decisions_without_an_outcome_do_not_move_the_policy():
    algorithm = ppo(example_of(ENVIRONMENT), SMALL)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    trajectory = jax.jit(lambda key: rollout(key, ENVIRONMENT, algorithm.policy(state), 4, (8,)))(
        jax.random.key(1)
    )
    trajectory = jax.tree.map(np.asarray, trajectory)
    hidden = ~trajectory.settled
    assert (hidden & trajectory.active).any()
    other = trajectory._replace(
        action={
            "edge": np.where(hidden, 2 - trajectory.action["edge"], trajectory.action["edge"]),
            "urgent": np.where(hidden, 1 - trajectory.action["urgent"], trajectory.action["urgent"]),
        }
    )
    step = jax.jit(algorithm.step)
    one, _ = step(jax.random.key(2), state, trajectory)
    two, _ = step(jax.random.key(2), state, other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(jax.tree.leaves(one.params.actor)[0], jax.tree.leaves(state.params.actor)[0])


@pytest.mark.slow
def test_inactive_and_replaced_decisions_are_not_cloned():
    trajectory = expert_trajectory()
    algorithm = behaviour_cloning(example_in(trajectory), CLONING)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    nothing = trajectory._replace(active=np.zeros_like(trajectory.active))
    replaced = trajectory._replace(illegal=np.ones_like(trajectory.illegal))
    step = jax.jit(algorithm.step)
    for useless in (nothing, replaced):
        _, info = step(jax.random.key(1), state, useless)
        assert float(info.loss) == 0.0
        assert float(info.gradient_norm) == 0.0
    _, info = step(jax.random.key(1), state, trajectory)
    assert float(info.loss) == pytest.approx(float(info.entropy), abs=0.05)  # nearly uniform at first


@pytest.mark.slow
def test_the_two_examples_agree():
    trajectory = expert_trajectory()
    shapes = [
        jax.tree.map(lambda leaf: leaf.shape, example)
        for example in (example_in(trajectory), example_of(QUIET))
    ]
    assert shapes[0] == shapes[1]
    assert isinstance(example_in(trajectory), Example)


def test_ppo_refuses_a_foreign_clone_and_uneven_minibatches():
    example = example_of(ENVIRONMENT)
    cloning = behaviour_cloning(example, BehaviourCloningConfig(hidden=(8,)))
    foreign = jax.jit(cloning.init)(jax.random.key(0))
    with pytest.raises(TrainingError, match="not an actor of this configuration"):
        ppo(example, SMALL, clone=foreign.actor)
    algorithm = ppo(example, SMALL)
    with pytest.raises(TrainingError, match="6 streams cannot be cut into 4"):
        train(jax.random.key(0), algorithm, in_twin(ENVIRONMENT, 4, (6,)), 1)
    with pytest.raises(TrainingError, match="exactly one stream axis"):
        train(jax.random.key(0), algorithm, in_twin(ENVIRONMENT, 4, ()), 1)
