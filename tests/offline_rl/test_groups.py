"""Two groups of seats on two clocks: a group's trajectory is that of its own decisions, and both learn what is best."""

import functools

import jax
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.algorithms import PPOConfig, ppo
from offline_rl.networks import example_of
from offline_rl.together import group_example, together
from offline_rl.training_loop import as_argument, in_twin, train, updates
from tests.two_clocks import FRAME, GROUPS, NUM_DEPLOYED, SLOT_S, WORTH, two_clocks
from twin.adapters import stepwise
from twin.groups import of_group
from twin.rollout import rollout

KEY = jax.random.key(0)
NUM_FRAMES, NUM_STREAMS = 4, 3
LENGTH = FRAME * NUM_FRAMES


def anything(key, _observation, legal):
    """Random choices of both groups, a few of them not legal."""
    return {
        name: jax.random.randint(key, mask.shape[1:], 0, mask.shape[0] + 1) for name, mask in legal.items()
    }


@functools.cache
def episodes(num_frames=1000, length=LENGTH):
    run = jax.jit(lambda key: rollout(key, two_clocks(num_frames), anything, length, (NUM_STREAMS,)))
    return jax.tree.map(np.asarray, run(KEY))


@functools.cache
def own(name, num_steps=None, **options):
    return jax.tree.map(np.asarray, jax.jit(lambda one: of_group(one, name, num_steps))(episodes(**options)))


def test_both_groups_are_in_one_trajectory_each_with_its_own_seats_and_activity():
    trajectory = episodes()
    for name, num_seats in GROUPS.items():
        for leaf in (
            trajectory.active,
            trajectory.reward,
            trajectory.settled,
            trajectory.illegal,
            trajectory.action,
        ):
            assert leaf[name].shape == (LENGTH, num_seats, NUM_STREAMS)
    assert trajectory.active["dispatch"].all()
    opens = np.arange(LENGTH) % FRAME == 0
    np.testing.assert_array_equal(trajectory.active["orchestrate"][:, 0, 0], opens)
    assert not trajectory.illegal["orchestrate"][~opens].any()
    assert trajectory.illegal["orchestrate"][opens].any()
    assert trajectory.illegal["dispatch"].any()
    assert trajectory.action["orchestrate"].max() == NUM_DEPLOYED - 1


def test_same_key_same_bits_and_no_second_trace():
    traced = []

    def policy(key, observation, legal):
        traced.append(1)
        return anything(key, observation, legal)

    run = jax.jit(lambda key: rollout(key, two_clocks(), policy, LENGTH, (NUM_STREAMS,)))
    one, num_traces = run(KEY), len(traced)
    other = run(jax.random.key(1))
    assert len(traced) == num_traces
    jax.tree.map(np.testing.assert_array_equal, one, episodes())
    assert not np.array_equal(one.reward["dispatch"], other.reward["dispatch"])


def test_every_decision_earns_what_came_of_it_however_late():
    """Recomputed from what was seen: a frame's worth goes to the orchestrator's decision at its beginning."""
    trajectory = episodes()
    kind, deployed = (np.argmax(one, axis=1) for one in trajectory.global_observation[:2])  # [T + 1, B]
    colour = trajectory.observation["dispatch"]["colour"][:, 0].astype(int)
    right = trajectory.action["dispatch"] == (colour + deployed[:-1, None]) % 2
    earned = np.where(right, WORTH[kind[:-1], deployed[:-1]][:, None], 0.0)
    np.testing.assert_allclose(trajectory.reward["dispatch"], earned, rtol=1e-6)
    of_frames = earned.mean(axis=1).reshape(NUM_FRAMES, FRAME, NUM_STREAMS)[:, 1:].sum(axis=1)
    np.testing.assert_allclose(own("orchestrate", NUM_FRAMES).reward[:, 0], of_frames, rtol=1e-6)
    assert trajectory.settled["orchestrate"][::FRAME].all()
    np.testing.assert_array_equal(deployed[1:][::FRAME], trajectory.action["orchestrate"][::FRAME, 0])


def test_a_group_s_clock_runs_from_decision_to_decision():
    frames, slots = own("orchestrate"), own("dispatch")
    shorter = own("orchestrate", NUM_FRAMES)
    jax.tree.map(np.testing.assert_array_equal, shorter.reward, frames.reward[:NUM_FRAMES])
    np.testing.assert_array_equal(frames.active[:, 0, 0], np.arange(LENGTH) < NUM_FRAMES)
    np.testing.assert_array_equal(shorter.elapsed_s, FRAME * SLOT_S)
    assert not frames.elapsed_s[NUM_FRAMES:].any()
    whole = episodes()
    for leaf, of_all in zip(shorter.global_observation, whole.global_observation, strict=True):
        np.testing.assert_array_equal(leaf, of_all[::FRAME])  # the last is what followed the last frame
    np.testing.assert_array_equal(shorter.observation, whole.observation["orchestrate"][::FRAME])
    np.testing.assert_array_equal(slots.reward, whole.reward["dispatch"])
    np.testing.assert_array_equal(slots.elapsed_s, whole.elapsed_s)
    jax.tree.map(np.testing.assert_array_equal, slots.global_observation, whole.global_observation)


@pytest.mark.slow
def test_an_end_between_two_decisions_is_the_end_of_the_first():
    """Cut short after two frames of four; and a frame that the trajectory's end leaves open is not settled."""
    frames = own("orchestrate", NUM_FRAMES, num_frames=2)
    np.testing.assert_array_equal(frames.active[:, 0, 0], [True, True, False, False])
    np.testing.assert_array_equal(frames.done[:, 0], [False, True, True, True])
    assert not frames.terminated.any()
    ended = episodes()._replace(terminated=np.arange(LENGTH)[:, None] == np.full(NUM_STREAMS, 6))
    found = jax.jit(lambda one: of_group(one, "orchestrate", NUM_FRAMES))(ended)
    np.testing.assert_array_equal(found.terminated[:, 0], [False, True, False, False])
    open_end = own("orchestrate", NUM_FRAMES, length=LENGTH - 2)
    np.testing.assert_array_equal(open_end.settled[:, 0, 0], [True, True, True, False])
    np.testing.assert_array_equal(open_end.elapsed_s[:, 0], [4.0, 4.0, 4.0, 2.0])


def learners():
    """A small learner for each group."""
    config = PPOConfig(
        horizon_s=0.1,
        learning_rate=1e-2,
        num_epochs=4,
        entropy=0.003,
        actor_hidden=(16,),
        critic_hidden=(16,),
    )
    example = example_of(two_clocks())
    return {name: ppo(group_example(example, name), config) for name in GROUPS}


@pytest.mark.slow
def test_dispatchers_and_orchestrator_learn_what_is_best():
    system, learner = two_clocks(), together(learners(), {"orchestrate": NUM_FRAMES})
    state, info = train(KEY, learner, in_twin(system, LENGTH, (32,)), 60)
    best = WORTH.max(axis=1)
    run = jax.jit(lambda key: rollout(key, system, learner.greedy(state), LENGTH, (64,)))
    trajectory = jax.tree.map(np.asarray, run(jax.random.key(1)))
    kind = np.argmax(trajectory.global_observation[0], axis=1)[:-1]
    # The first slot has what was there
    wanted = np.where(np.arange(LENGTH)[:, None] % FRAME == 0, 0.0, best[kind])
    later = np.arange(LENGTH) % FRAME > 0
    np.testing.assert_allclose(trajectory.reward["dispatch"].mean(axis=1)[later], wanted[later], rtol=1e-5)
    np.testing.assert_allclose(
        trajectory.reward["orchestrate"][::FRAME, 0], (FRAME - 1) * best[kind[::FRAME]], rtol=1e-5
    )
    assert float(info["orchestrate"].settled[0]) == 1.0
    assert float(info["dispatch"].reward[0]) < 0.5


def equal(one, two):
    """Same structure, same bits."""
    jax.tree.map(np.testing.assert_array_equal, one, two)


@pytest.mark.slow
def test_whoever_learns_makes_the_update_of_a_learner_alone_and_who_stands_still_none():
    """Bit for bit, from the same trajectory: both at once, and in the turn of either."""
    own, lengths = learners(), {"orchestrate": NUM_FRAMES}
    at_once, in_turns = together(own, lengths), together(own, lengths, updates_per_turn=2)
    start = jax.jit(at_once.init)(KEY)
    acts = jax.jit(lambda state: rollout(KEY, two_clocks(), at_once.policy(state), LENGTH, (8,)))
    trajectory, keys = acts(start), dict(zip(GROUPS, jax.random.split(KEY, 2), strict=True))
    alone = {
        name: jax.jit(
            lambda state, seen, name=name: own[name].step(
                keys[name], state, of_group(seen, name, lengths.get(name))
            )
        )(start.groups[name], trajectory)
        for name in GROUPS
    }
    found, info = jax.jit(at_once.step)(KEY, start, trajectory)
    equal(found.groups, {name: alone[name][0] for name in GROUPS})
    equal(info, {name: alone[name][1] for name in GROUPS})
    step = jax.jit(in_turns.step)
    for update, learns in enumerate(("dispatch", "dispatch", "orchestrate", "orchestrate", "dispatch")):
        found, info = step(KEY, start._replace(update=jax.numpy.int32(update)), trajectory)
        (stands,) = set(GROUPS) - {learns}
        equal((found.groups[learns], info[learns]), alone[learns])
        equal(found.groups[stands], start.groups[stands])
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(info[stands]))
        assert int(found.update) == update + 1


@pytest.mark.slow
def test_nobody_is_asked_where_nothing_is_legal():
    own, state = learners(), together(learners()).init(KEY)
    seen, legal = jax.tree.map(lambda leaf: leaf[0], (episodes().observation, episodes().legal))
    asked = []

    def counted(name):
        def policy(_state):
            def act(_key, _observation, legal):
                jax.debug.callback(lambda: asked.append(name))
                return jax.numpy.ones(legal.shape[1:], jax.numpy.int32)

            return act

        return own[name]._replace(policy=policy)

    nothing = legal | {"orchestrate": np.zeros_like(legal["orchestrate"])}
    acts = together({name: counted(name) for name in GROUPS}).policy(state)(KEY, seen, nothing)
    jax.effects_barrier()
    assert asked == ["dispatch"]
    assert np.all(acts["dispatch"] == 1)
    assert not np.any(acts["orchestrate"])


@pytest.mark.slow
def test_a_run_in_turns_is_that_of_its_updates_and_a_second_one_is_not_traced_again():
    """Three updates in one program, against a loop over rollouts and updates of the learner whose turn it is."""
    own, lengths, traced = learners(), {"orchestrate": NUM_FRAMES}, []

    def step(key, state, trajectory):
        traced.append(1)
        return own["dispatch"].step(key, state, trajectory)

    watched = together(own | {"dispatch": own["dispatch"]._replace(step=step)}, lengths, updates_per_turn=2)
    experience, run = as_argument(in_twin(two_clocks(), LENGTH, (8,))), updates(watched, 3)
    start = jax.jit(watched.init)(KEY)
    found, _ = run(KEY, start, experience, 0)
    num_traces = len(traced)
    run(jax.random.key(1), found, experience, 3)
    assert len(traced) == num_traces
    groups = dict(start.groups)
    for update, learns in enumerate(("dispatch", "dispatch", "orchestrate")):
        key_experience, key_step = jax.random.split(jax.random.fold_in(KEY, update))

        def policy(key, seen, legal, groups=groups):
            return {
                name: own[name].policy(groups[name])(one, seen[name], legal[name])
                for name, one in zip(GROUPS, jax.random.split(key, 2), strict=True)
            }

        trajectory = rollout(key_experience, two_clocks(), policy, LENGTH, (8,))
        key = jax.random.split(key_step, 2)[list(GROUPS).index(learns)]
        trajectory = of_group(trajectory, learns, lengths.get(learns))
        groups[learns] = own[learns].step(key, groups[learns], trajectory)[0]
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6), found.groups, groups
    )


@pytest.mark.slow
def test_in_turns_both_learn_what_is_best_too():
    system, learner = two_clocks(), together(learners(), {"orchestrate": NUM_FRAMES}, updates_per_turn=4)
    state, info = train(KEY, learner, in_twin(system, LENGTH, (32,)), 80)
    run = jax.jit(lambda key: rollout(key, system, learner.greedy(state), LENGTH, (64,)))
    trajectory = jax.tree.map(np.asarray, run(jax.random.key(1)))
    kind = np.argmax(trajectory.global_observation[0], axis=1)[:-1]
    best = WORTH.max(axis=1)[kind[::FRAME]]
    np.testing.assert_allclose(trajectory.reward["orchestrate"][::FRAME, 0], (FRAME - 1) * best, rtol=1e-5)
    turn = np.arange(80) // 4 % 2
    np.testing.assert_array_equal(np.asarray(info["dispatch"].reward) > 0.0, turn == 0)


def test_groups_that_are_not_there_and_adapters_of_one_kind_of_seat_say_so():
    with pytest.raises(ConfigError, match="a group 'nobody'"):
        of_group(episodes(), "nobody")
    with pytest.raises(ConfigError, match="17 steps"):
        of_group(episodes(), "dispatch", LENGTH + 1)
    with pytest.raises(ConfigError, match="clocks of their own"):
        stepwise(two_clocks(), 4)
