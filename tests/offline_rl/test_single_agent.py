"""Learners in which one agent decides for all seats: DDPG and the actor-critic that KMPS compares with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.algorithms import CMMACConfig, DDPGConfig, cmmac, ddpg
from offline_rl.errors import TrainingError
from offline_rl.networks import Example, actor
from offline_rl.training_loop import train
from offline_rl.transitions import transitions
from twin.contracts import Interval, Trajectory
from twin.networks import MLP

KEY = jax.random.key(0)
DISCOUNT, STREAMS, STEPS, SEATS = 0.8, 32, 6, 2
LEVELS = jnp.linspace(-1.0, 1.0, 5)
EXAMPLE = Example(
    jax.ShapeDtypeStruct((1, SEATS), jnp.float32),
    jax.ShapeDtypeStruct((len(LEVELS), SEATS), jnp.bool_),
    jax.ShapeDtypeStruct((SEATS,), jnp.float32),
)
CONFIG = DDPGConfig(
    horizon_s=-1.0 / np.log(DISCOUNT), capacity=4000, batch=128, updates=10, exploration=0.3, target_rate=0.05,
    learning_rate=2e-3, actor_hidden=(32,), critic_hidden=(32, 32),
)  # fmt: skip


def experience(key, policy, num_steps=STEPS, num_streams=STREAMS):
    """A seat's state becomes the level that it chose; a state x earns x, less the square of the level chosen there.

    A level counts one step later: the best is the one nearest to `DISCOUNT / 2`, while greed takes 0. The last level is
    never legal in the second seat.
    """
    key_first, key_steps = jax.random.split(key)
    first = jax.random.uniform(key_first, (SEATS, num_streams), minval=-1.0)
    legal = jnp.ones((len(LEVELS), SEATS, num_streams), bool).at[-1, 1].set(False)

    def one(state, key):
        action = policy(key, state[None], legal)
        level = LEVELS[action]
        return level, (state, action, state - level**2)

    last, (states, actions, reward) = jax.lax.scan(one, first, jax.random.split(key_steps, num_steps))
    yes = jnp.ones(states.shape, bool)
    return Trajectory(
        observation=states[:, None], global_observation=jnp.concatenate([states, last[None]]),
        legal=jnp.broadcast_to(legal, (num_steps, *legal.shape)), active=yes, action=actions, reward=reward,
        settled=yes, decision_info=(), outcome=(), elapsed_s=jnp.ones((num_steps, num_streams)),
        terminated=~yes[:, 0], done=~yes[:, 0], illegal=~yes,
    )  # fmt: skip


@pytest.mark.slow
def test_ddpg_finds_the_choice_that_pays_later():
    algorithm = ddpg(EXAMPLE, CONFIG)
    state, info = train(KEY, algorithm, experience, 150)
    seen = jnp.stack([jnp.linspace(-0.8, 0.8, 9), jnp.linspace(0.8, -0.8, 9)])[None]
    legal = jnp.ones((len(LEVELS), SEATS, 9), bool)
    best = np.argmin(np.abs(np.asarray(LEVELS) - DISCOUNT / 2))
    assert np.mean(np.asarray(algorithm.greedy(state)(KEY, seen, legal)) == best) > 0.9
    assert np.isfinite(np.asarray(info.value_loss)).all()


@pytest.mark.slow
def test_the_value_of_ddpg_is_moved_towards_its_defining_equation():
    """The loss of a first update, by hand from the parameters as they were."""
    config = DDPGConfig(**{**CONFIG.__dict__, "updates": 1, "capacity": 1, "batch": 4})
    algorithm = ddpg(EXAMPLE, config)
    state = jax.jit(algorithm.init)(KEY)
    trajectory = jax.jit(lambda: experience(KEY, algorithm.policy(state), 2, 1))()
    seen = jax.tree.map(lambda leaf: leaf[..., 0, 0], transitions(trajectory, config.horizon_s))
    following = algorithm.greedy(state)(KEY, seen.next_observation[..., None], seen.next_legal[..., None])[
        ..., 0
    ]
    critic = MLP(config.critic_hidden, SEATS)

    def value(observation, action):
        units = (np.arange(len(LEVELS))[:, None] == np.asarray(action)[None]).astype(np.float32)
        inputs = np.concatenate([np.asarray(observation).ravel(), units.ravel()])
        return np.asarray(critic.apply(state.params.critic, inputs[:, None]))[:, 0]

    aim = seen.reward + DISCOUNT * value(seen.next_observation, following)
    found = value(seen.observation, seen.action)
    _, info = jax.jit(algorithm.step)(KEY, state, trajectory)
    assert float(info.value_loss) == pytest.approx(float(np.mean((found - aim) ** 2)), rel=1e-4)
    assert float(info.value) == pytest.approx(float(np.mean(found)), rel=1e-4)


@pytest.mark.slow
def test_the_buffer_of_ddpg_holds_all_parts_of_several_trajectories():
    steps, streams = 41, 8
    config = DDPGConfig(**{**CONFIG.__dict__, "updates": 1, "capacity": 400, "batch": 4})
    algorithm = ddpg(EXAMPLE, config)
    state, step = jax.jit(algorithm.init)(KEY), jax.jit(algorithm.step)
    made = jax.jit(lambda state: experience(KEY, algorithm.policy(state), steps, streams))(state)
    place = jnp.broadcast_to(jnp.arange(steps * streams).reshape(steps, 1, streams), made.reward.shape)
    # Every trajectory is longer than its share, and observes the places of its moments
    for number in range(5):
        told = (place + 1000.0 * number)[:, None]
        state, _ = step(jax.random.key(number), state, made._replace(observation=told))
    kept = np.asarray(state.buffer.stored.observation[0, 0]).astype(int)
    assert len(set(kept)) == len(kept) == 400
    assert set(kept // 1000) == {1, 2, 3, 4}
    for number in range(1, 5):
        slots = kept[kept // 1000 == number] % 1000 // streams
        assert len(slots) == 100
        assert slots.min() < 5
        assert steps - 6 < slots.max() < steps - 1
    same, _ = step(jax.random.key(4), state, made)
    again, _ = step(jax.random.key(4), state, made)
    np.testing.assert_array_equal(same.buffer.stored.observation, again.buffer.stored.observation)


def test_ddpg_explores_legal_choices_and_decides_without_drawing():
    algorithm = ddpg(EXAMPLE, CONFIG)
    state = jax.jit(algorithm.init)(KEY)
    seen = jnp.zeros((1, SEATS, 600))
    legal = jnp.ones((len(LEVELS), SEATS, 600), bool).at[-1, 1].set(False)
    tried = np.asarray(algorithm.policy(state)(KEY, seen, legal))
    taken = np.asarray(algorithm.greedy(state)(KEY, seen, legal))
    assert set(tried[0]) == set(range(5))
    assert set(tried[1]) == set(range(4))
    assert len(set(taken[0])) == len(set(taken[1])) == 1
    assert (tried[0] == taken[0]).mean() == pytest.approx(0.7 + 0.3 / 5, abs=0.06)


def deciding_every_second_step():
    """An episode in which all seats decide at steps 0, 2, 4, and nothing is legal between."""
    made = jax.jit(lambda: experience(KEY, actor_of_anything))()
    decides = jnp.arange(STEPS) % 2 == 0
    acts = made.active & decides[:, None, None]
    return made._replace(active=acts, settled=acts, legal=made.legal & acts[:, None]), decides


def actor_of_anything(key, _observation, legal):
    return jax.random.randint(key, legal.shape[1:], 0, 4)


@pytest.mark.slow
def test_ddpg_learns_where_nobody_decides_twice_in_a_row():
    algorithm = ddpg(EXAMPLE, DDPGConfig(**{**CONFIG.__dict__, "updates": 1, "actor_hidden": (8,)}))
    trajectory, _ = deciding_every_second_step()
    assert not np.asarray(transitions(trajectory, 1.0).weight).any()
    assert np.asarray(transitions(trajectory, 1.0, between=True).weight).all()
    state, info = jax.jit(algorithm.step)(KEY, jax.jit(algorithm.init)(KEY), trajectory)
    assert float(info.value_loss) > 0.0
    assert np.isfinite(jax.tree.leaves(jax.tree.map(lambda leaf: float(jnp.sum(leaf)), state.params))).all()


@pytest.mark.slow
def test_what_is_earned_between_a_seat_s_decisions_moves_the_value_of_cmmac_and_no_decision():
    algorithm = cmmac(EXAMPLE, CMMACConfig(num_minibatches=1, actor_hidden=(8,), critic_hidden=(8,)))
    trajectory, decides = deciding_every_second_step()
    step, state = jax.jit(algorithm.step), jax.jit(algorithm.init)(KEY)
    more = trajectory._replace(reward=trajectory.reward + ~decides[:, None, None])
    one, other = (step(KEY, state, seen)[0].params for seen in (trajectory, more))
    away = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), one, other)
    assert max(jax.tree.leaves(away.critic)) > 1e-5
    assert max(jax.tree.leaves(away.actor)) < 1e-5


@pytest.mark.slow
def test_what_every_step_earns_alike_moves_no_decision_of_cmmac():
    algorithm = cmmac(EXAMPLE, CMMACConfig(num_minibatches=1, actor_hidden=(8,), critic_hidden=(8,)))
    trajectory, _ = deciding_every_second_step()
    step, state = jax.jit(algorithm.step), jax.jit(algorithm.init)(KEY)
    actors = [
        step(KEY, state, trajectory._replace(reward=trajectory.reward + alike))[0].params.actor
        for alike in (0.0, 3.0)
    ]
    away = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), *actors)
    assert max(jax.tree.leaves(away)) < 1e-5


def test_ddpg_refuses_numbers_and_impossible_sizes():
    number = jax.ShapeDtypeStruct((1,), jnp.float32)
    with pytest.raises(TrainingError, match="ddpg learns of choices"):
        ddpg(EXAMPLE._replace(legal=Interval(number, number)))
    with pytest.raises(TrainingError, match="1 or more"):
        DDPGConfig(updates=0)


@pytest.mark.slow
@pytest.mark.parametrize("single", [True, False])
def test_to_a_single_agent_only_the_sum_of_the_seats_rewards_matters(single):
    """Rewards that change places between the seats are the same to one agent, and not to one agent a seat."""
    algorithm = cmmac(EXAMPLE, CMMACConfig(single=single, num_minibatches=1, critic_hidden=(8,)))

    @jax.jit
    def both():
        state = algorithm.init(KEY)
        trajectory = experience(KEY, algorithm.policy(state))
        other = trajectory._replace(reward=trajectory.reward[:, ::-1])
        return [algorithm.step(KEY, state, one)[0] for one in (trajectory, other)]

    moved, swapped = both()
    away = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), moved.params, swapped.params)
    assert (max(jax.tree.leaves(away)) < 1e-6) == single


@pytest.mark.slow
def test_a_single_agent_learns_nothing_of_a_step_whose_reward_it_does_not_know_in_full():
    """The second seat's outcome of one step is not known: what the first one earned there moves nothing."""
    algorithm = cmmac(
        EXAMPLE, CMMACConfig(single=True, num_minibatches=1, actor_hidden=(8,), critic_hidden=(8,))
    )

    @jax.jit
    def both():
        state = algorithm.init(KEY)
        trajectory = experience(KEY, algorithm.policy(state))
        settled = trajectory.settled.at[2, 1].set(False)
        rewards = (trajectory.reward.at[2, 0].add(more) for more in (0.0, 5.0))
        each = (trajectory._replace(settled=settled, reward=reward) for reward in rewards)
        return [algorithm.step(KEY, state, one)[0].params for one in each]

    away = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), *both())
    assert max(jax.tree.leaves(away)) < 1e-6


def test_a_joint_actor_decides_in_a_seat_by_what_the_others_see():
    seen, legal = jnp.zeros((1, SEATS, 3)), jnp.ones((len(LEVELS), SEATS, 3), bool)
    other = seen.at[0, 1].set(5.0)
    for joint in (True, False):
        network = actor(EXAMPLE, (8,), joint=joint)
        params = network.init(KEY)
        logits = network.logits(params, seen, legal)
        assert logits.shape == legal.shape
        moved = jnp.abs(network.logits(params, other, legal) - logits).max(axis=(0, 2))
        assert (float(moved[0]) > 0.0) == joint
        assert float(moved[1]) > 0.0
    with pytest.raises(TrainingError, match="single with central"):
        CMMACConfig(single=True, central=False)
