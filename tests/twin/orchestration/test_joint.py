"""Both time scales in one trajectory: the same system as slots alone, frames credited when they end."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.slots import SlotConfig, time_scaled
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import instance
from logs_schema.errors import ConfigError
from tests.evaluation.slot_runs import small_kais
from twin.contracts import Array, EnvironmentState, PyTree, Trajectory
from twin.environment import environment
from twin.groups import of_group
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import Scaling, as_orchestration
from twin.orchestration.joint import DISPATCH, ORCHESTRATE, joint_environment
from twin.orchestration.mechanics import slot_response
from twin.orchestration.paired import paired
from twin.orchestration.slots import slot_problem
from twin.rollout import rollout

FRAME, NUM_FRAMES, NUM_STREAMS = 6, 5, 4
SLOTS = SlotConfig(node_places=4, queue_places=6, slots_per_frame=FRAME)
FRAMES = FrameConfig(num_changes=2, samples_per_frame=3, history_s=4.0)
CASE = instance(time_scaled(small_kais(2, 2), SLOTS, 0.6), SLOTS)
EDGE, CHANCE = CASE.public, true_chance(CASE)


class Runs(NamedTuple):
    """The same keys and choices in the joint problem and in slots under an orchestrator, as NumPy."""

    trajectory: Trajectory
    joint: Any  # counts by slot [slots, *streams]
    alone: Any


def choose(key: Array, legal: PyTree) -> PyTree:
    """Dispatchers take a legal node by chance; changes are by chance, most of them impossible."""
    key_node, key_change = jax.random.split(key)
    score = jax.random.uniform(key, legal[DISPATCH].shape)
    node = jnp.argmax(jnp.where(legal[DISPATCH], score, -1.0), axis=0).astype(jnp.int32)
    shape = (FRAMES.num_changes, *node.shape[1:])
    where = jax.random.randint(key_node, shape, 0, EDGE.num_nodes)
    change = jax.random.randint(key_change, shape, 0, 2 * EDGE.num_services - 1)
    return {DISPATCH: node, ORCHESTRATE: Scaling(where, change)}


@pytest.fixture(scope="module")
def runs() -> Runs:
    joint = joint_environment(EDGE, CHANCE, FRAMES)
    num_slots = FRAME * NUM_FRAMES

    def both(key: Array) -> tuple:
        key_reset, key_steps = jax.random.split(key)

        def slot(
            pair: tuple[EnvironmentState, EnvironmentState], key: Array
        ) -> tuple[tuple[EnvironmentState, EnvironmentState], tuple]:
            one, two = pair
            key_policy, key_response = jax.random.split(key)
            action = choose(key_policy, joint.problem.legal(one.problem))
            one, step = joint.step(key_response, one, action)
            asked = as_orchestration(step.action[ORCHESTRATE], EDGE.num_services)
            response = slot_response(EDGE, CHANCE, lambda _key, _state: asked)
            alone = environment(slot_problem(EDGE), response)
            two, _ = alone.step(key_response, two, action[DISPATCH])
            return (one, two), (one.problem.slot.view.counts, two.problem.view.counts)

        alone = environment(slot_problem(EDGE), slot_response(EDGE, CHANCE))
        first = joint.reset(key_reset, (NUM_STREAMS,)), alone.reset(key_reset, (NUM_STREAMS,))
        keys = jax.random.split(key_steps, num_slots)
        policy = lambda key, _observation, legal: choose(key, legal)  # noqa: E731
        return rollout(key, joint, policy, num_slots, (NUM_STREAMS,)), *jax.lax.scan(slot, first, keys)[1]

    return Runs(*jax.tree.map(np.asarray, jax.jit(both)(jax.random.key(3))))


@pytest.mark.slow
def test_it_is_the_same_system_as_slots_under_an_orchestrator(runs: Runs) -> None:
    for one, two in zip(runs.joint, runs.alone, strict=True):
        np.testing.assert_array_equal(one, two)
    assert runs.joint.pulled_mib[-1].sum() > 0.0  # something was changed


@pytest.mark.slow
def test_an_orchestrator_decides_when_a_frame_begins_and_earns_when_it_ends(runs: Runs) -> None:
    begins = np.arange(FRAME * NUM_FRAMES) % FRAME == 0
    active, settled = (getattr(runs.trajectory, name)[ORCHESTRATE] for name in ("active", "settled"))
    np.testing.assert_array_equal(active, np.broadcast_to(begins[:, None, None], active.shape))
    np.testing.assert_array_equal(settled, active)  # every frame has ended
    totals = np.stack([runs.joint.arrived, runs.joint.on_time])[:, FRAME - 1 :: FRAME]
    in_frame = np.diff(totals, axis=1, prepend=0)
    outcome = runs.trajectory.outcome[ORCHESTRATE]
    for seat in range(FRAMES.num_changes):
        np.testing.assert_array_equal(outcome.arrived[begins, seat], in_frame[0])
        np.testing.assert_array_equal(outcome.on_time[begins, seat], in_frame[1])
    earned = runs.trajectory.reward[ORCHESTRATE].sum(axis=1)[begins]
    np.testing.assert_allclose(earned, in_frame[1] / np.maximum(in_frame[0], 1.0), rtol=1e-6)


@pytest.mark.slow
def test_an_orchestrator_sees_the_frame_as_it_begins_and_nothing_in_between(runs: Runs) -> None:
    begins = np.arange(FRAME * NUM_FRAMES) % FRAME == 0
    seen, legal = runs.trajectory.observation[ORCHESTRATE], runs.trajectory.legal[ORCHESTRATE]
    for leaf in (*seen, legal.node, legal.change.table):
        assert not leaf[~begins].any()
    assert legal.node[begins].all()  # nobody fails here
    for part, whole in zip(
        (seen.node, seen.service), runs.trajectory.global_observation[ORCHESTRATE], strict=True
    ):
        for seat in range(FRAMES.num_changes):
            np.testing.assert_array_equal(part[begins][:, :, :, seat], whole[:-1][begins])
    assert (seen.hosted[begins] > 0.0).any(axis=(1, 2, 3, 4)).all()


@pytest.mark.slow
def test_an_impossible_change_is_no_change_and_is_counted(runs: Runs) -> None:
    frames = of_group(jax.tree.map(jnp.asarray, runs.trajectory), ORCHESTRATE, NUM_FRAMES)
    assert frames.illegal.any()
    assert not np.asarray(frames.action.change)[np.asarray(frames.illegal)].all()
    np.testing.assert_allclose(frames.elapsed_s, FRAME * SLOTS.slot_s)


@pytest.mark.slow
def test_dispatchers_are_credited_as_without_an_orchestrator(runs: Runs) -> None:
    trajectory = runs.trajectory
    on_time = np.nansum(np.where(trajectory.settled[DISPATCH], trajectory.reward[DISPATCH], 0.0))
    assert 0 < on_time >= runs.joint.on_time[-1].sum()  # answers on their way back are settled too
    assert not trajectory.illegal[DISPATCH].any()


def test_paired_streams_meet_the_same_requests_and_blocks_must_come_out_even() -> None:
    chance = paired(CHANCE, 2)
    first, numbers = chance.first_s(jax.random.key(1), (4,)), chance.numbers(jax.random.key(2), (4,))
    for leaf in jax.tree.leaves((first, numbers)):
        np.testing.assert_array_equal(leaf[..., 0], leaf[..., 1])
        assert not np.array_equal(leaf[..., 1], leaf[..., 2])
    with pytest.raises(ConfigError, match=r"2 copies in streams \(3,\)"):
        chance.first_s(jax.random.key(1), (3,))
