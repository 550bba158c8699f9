"""Other doors lead into the same room: their own checkers are content, and the rewards add up to the rollout's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from tests.small_games import stopping
from tests.toys import toy_problem, toy_response
from tests.twin.mechanical import mechanical
from twin.adapters import stepwise
from twin.environment import environment
from twin.rollout import follow

LENGTH = 24
ENVIRONMENT = mechanical(length=1000, drawn=False, depth=8)
ENDING = mechanical(length=10, drawn=False, depth=8)
TOY = environment(toy_problem(), toy_response(noise=0.0, resolves_pending=True))
KEY = jax.random.key(0)


def legal_actions(length):
    """The last node for every request: legal under every rule."""
    return jnp.full((length, 1), 3, jnp.int32)


@pytest.mark.slow
def test_rewards_paid_step_by_step_add_up_to_those_credited_to_decisions():
    game = stepwise(ENVIRONMENT, LENGTH)
    reset, step = jax.jit(game.reset), jax.jit(game.step)
    episode, look = reset(KEY)
    total, ends = 0.0, []
    for index in range(LENGTH + 2):
        episode, look = step(jax.random.fold_in(KEY, index), episode, jnp.array([3], jnp.int32))
        total += float(look.reward.sum())
        ends.append(bool(look.truncated))
    assert ends == [False] * (LENGTH - 1) + [True] * 3
    trajectory = jax.jit(lambda: follow(KEY, ENVIRONMENT, legal_actions(LENGTH)))()
    assert total == pytest.approx(float(trajectory.reward.sum()))
    assert total > 0
    assert int(look.num_open) == int(np.sum(~np.asarray(trajectory.settled)))


@pytest.mark.slow
def test_several_seats_and_actions_of_several_parts_are_stepped_and_batched():
    game = stepwise(TOY, 12)
    keys = jax.random.split(KEY, 3)

    @jax.jit
    @jax.vmap
    def play(key):
        episode, look = game.reset(key)

        def one(carry, key_step):
            action = jax.tree.map(lambda mask: jnp.argmax(mask, axis=0).astype(jnp.int32), carry[1].legal)
            episode, look = game.step(key_step, carry[0], action)
            return (episode, look), look

        return jax.lax.scan(one, (episode, look), jax.random.split(key, 12))[1]

    looks = play(keys)
    assert looks.reward.shape == (3, 12, TOY.problem.num_seats)
    assert bool(looks.truncated[:, -1].all())
    assert not bool(looks.truncated[:, :-1].any())
    assert float(looks.reward.sum()) < 0  # costs
    assert int(looks.num_open[:, -1].sum()) == 0  # this response foretells every fate


@pytest.mark.parametrize("ends", [True, False])
def test_an_episode_that_ends_for_good_is_terminated_one_cut_short_truncated(ends):
    game = stepwise(stopping(ends=ends), 4)
    _, look = jax.jit(game.step)(KEY, game.reset(KEY)[0], jnp.zeros(1, jnp.int32))
    assert (bool(look.terminated), bool(look.truncated)) == (ends, not ends)


@pytest.mark.slow
def test_an_episode_that_is_cut_short_stays_so():
    game = stepwise(ENDING, LENGTH)
    step = jax.jit(game.step)
    episode, look = jax.jit(game.reset)(KEY)
    for index in range(12):
        episode, look = step(jax.random.fold_in(KEY, index), episode, jnp.array([3], jnp.int32))
    assert not bool(look.terminated)
    assert bool(look.truncated)
    assert float(look.reward.sum()) == 0.0
    with pytest.raises(ConfigError, match="episodes of 0 steps"):
        stepwise(ENDING, 0)


@pytest.mark.filterwarnings("ignore:.*(Box|observation|action).*:UserWarning")
def test_gymnasium_s_own_checker_is_content():
    pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from twin.adapters.gymnasium_env import SchedulingEnv

    env = SchedulingEnv(ENVIRONMENT, LENGTH)
    check_env(env, skip_render_check=True)
    observation, info = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(observation, again)
    assert info["action_mask"].any()
    total, done = 0.0, False
    while not done:
        mask = info["action_mask"]
        _, reward, terminated, truncated, info = env.step(env.action_space.sample(mask))
        total, done = total + reward, terminated or truncated
    assert 0 < total <= LENGTH
    with pytest.raises(ConfigError, match="pettingzoo"):
        SchedulingEnv(TOY, 4)


def test_pettingzoo_s_own_checker_is_content():
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test

    from twin.adapters.pettingzoo_env import SchedulingParallelEnv

    env = SchedulingParallelEnv(ENVIRONMENT, LENGTH, names=["dispatcher"])
    parallel_api_test(env, num_cycles=40)
    observations, infos = env.reset(seed=1)
    assert set(observations) == {"dispatcher"}
    assert infos["dispatcher"]["active"]
    with pytest.raises(ConfigError, match="names for"):
        SchedulingParallelEnv(ENVIRONMENT, LENGTH, names=["one", "two"])


@pytest.mark.slow
def test_a_minari_dataset_holds_what_the_trajectory_does(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    import minari

    from twin.adapters.minari_dataset import to_minari

    actions = jnp.broadcast_to(legal_actions(LENGTH)[..., None], (LENGTH, 1, 3))
    trajectory = jax.jit(lambda: follow(KEY, ENVIRONMENT, actions, (3,)))()
    hole = trajectory._replace(settled=trajectory.settled.at[7, 0, 1].set(False))
    to_minari(hole, "tests/history-v0", author="nobody", description="a test")
    dataset = minari.load_dataset("tests/history-v0")
    known = np.asarray(hole.active & hole.settled)[:, 0]
    assert dataset.total_steps == known.sum()
    lengths = sorted(len(episode.rewards) for episode in dataset.iterate_episodes())
    assert len(lengths) == 4  # the hole cuts one stream in two
    total = sum(float(episode.rewards.sum()) for episode in dataset.iterate_episodes())
    assert total == pytest.approx(float(np.asarray(hole.reward)[:, 0][known].sum()))
    first = dataset[0]
    assert first.observations.shape[0] == len(first.actions) + 1
