"""Rewards of the papers, by hand on a trajectory of two access points, three nodes and four slots."""

from collections import namedtuple
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from offline_rl.algorithm import Algorithm
from offline_rl.orchestration.advice import AdvisedObservation
from offline_rl.rewards import (
    KaisDispatchReward,
    KmpsChangeReward,
    KmpsDispatchReward,
    KmpsNodeReward,
    due,
    rewarded,
    settled_by_decision,
    settled_in_slot,
)
from twin.orchestration.slots import SLOT_NODE_FEATURES
from twin.placement.types import COMPLETED, DROPPED, Observation, PlacementOutcome

SLOT_S, NUM_SLOTS = 0.25, 4
ROW = {feature.name: row for row, feature in enumerate(SLOT_NODE_FEATURES)}


def dispatched(begin_s=0.0):
    """Seat 0 dispatches in slots 0 and 1, seat 1 in slot 0; the rest of it is not active.

    The first is back at .3 s, in time; the second is dropped when its deadline passes, at .9 s; the third is late: back
    at .7 s with a deadline at .5 s, which belongs to slot 1, as what ends at a boundary does.
    """
    shape = (NUM_SLOTS, 2, 1)
    active, arrival, deadline, finish = np.zeros(shape, bool), np.zeros(shape), np.ones(shape), np.ones(shape)
    status = np.full(shape, COMPLETED)
    for at, values in {(0, 0): (0.0, 0.4, 0.3), (1, 0): (0.2, 0.7, np.inf), (0, 1): (0.0, 0.5, 0.7)}.items():
        active[at], arrival[at], deadline[at], finish[at] = True, *values
    status[1, 0] = DROPPED
    node = np.zeros((NUM_SLOTS + 1, len(SLOT_NODE_FEATURES), 3, 2, 1))
    node[:, ROW["is_cloud"], 2] = 1.0
    node[:, ROW["free_cpu_cores"]] = np.array([1.0, 0.2, 0.0])[:, None, None]
    node[:, ROW["free_replica_memory"]] = np.array([0.5, 0.5, 0.0])[:, None, None]
    return SimpleNamespace(
        active=active,
        settled=np.ones(shape, bool),
        decision_info=SimpleNamespace(
            arrival_s=begin_s + arrival,
            deadline_s=deadline,
            clock_s=begin_s + SLOT_S * np.arange(NUM_SLOTS)[:, None, None] * np.ones(shape),
        ),
        outcome=PlacementOutcome(np.zeros(shape), begin_s + finish, status),
        elapsed_s=np.full((NUM_SLOTS, 1), SLOT_S),
        global_observation=Observation(node, node),
        reward=np.zeros(shape),
    )


@pytest.mark.parametrize("begin_s", [0.0, 50.0])  # without a warm-up, and after one of 200 slots
def test_requests_are_settled_in_the_slot_of_their_answer_or_of_their_deadline(begin_s):
    on_time, late = settled_in_slot(dispatched(begin_s))
    np.testing.assert_array_equal(on_time[..., 0], [[0, 0], [1, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(late[..., 0], [[0, 0], [0, 1], [0, 0], [1, 0]])


def test_on_a_clock_that_leaves_out_idle_slots_requests_are_settled_in_the_step_that_passes_then():
    """Slot 2, in which nobody decides, is left out, as `twin.groups.of_group` does; a padded row follows the last."""
    every = dispatched(begin_s=50.0)
    rows = np.array([0, 1, 3, 2])
    own = jax.tree.map(
        lambda leaf: leaf[rows], (every.active, every.settled, vars(every.decision_info), every.outcome)
    )
    elapsed = SLOT_S * np.array([1.0, 2.0, 1.0, 0.0])[:, None]
    seen = SimpleNamespace(
        active=own[0],
        settled=own[1],
        decision_info=SimpleNamespace(**own[2]),
        outcome=own[3],
        elapsed_s=elapsed,
    )
    on_time, late = settled_in_slot(seen)
    np.testing.assert_array_equal(on_time[..., 0], [[0, 0], [1, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(late[..., 0], [[0, 0], [0, 1], [1, 0], [0, 0]])


def test_what_happened_in_a_slot_is_known_whatever_becomes_of_the_request_dispatched_in_it():
    fields = vars(dispatched())
    Seen = namedtuple("Seen", fields)
    fields["settled"] = np.zeros_like(fields["active"])
    learner = Algorithm(None, lambda _key, state, trajectory: (state, trajectory), None, None)
    for by_decision, known in ((False, fields["active"]), (True, due(SimpleNamespace(**fields)))):
        reward = KmpsDispatchReward(by_decision=by_decision)
        _, seen = rewarded(learner, reward).step(None, None, Seen(**fields))
        np.testing.assert_array_equal(seen.settled, known)
        np.testing.assert_array_equal(seen.reward, reward(SimpleNamespace(**fields)))


def test_reward_of_kais_falls_with_late_requests_and_with_imbalance():
    found = np.asarray(KaisDispatchReward(epsilon=2.0)(dispatched()))
    nu = 1.0 / (1.0 + np.exp(-0.5 * (0.4 + 0.0)))  # usage 0 and .8 of cores, .5 and .5 of memory
    late_share = np.array([0.0, 0.5, 0.0, 1.0])
    np.testing.assert_allclose(found[:, 0, 0], np.exp(-late_share - 2.0 * nu), rtol=1e-6)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])


def test_reward_of_kmps_counts_each_seat_s_own_and_overloaded_nodes():
    quiet = np.asarray(KmpsDispatchReward(overload=1.0)(dispatched()))
    np.testing.assert_allclose(quiet[..., 0], [[0, 0], [1, -1], [0, 0], [-1, 0]])
    crowded = np.asarray(KmpsDispatchReward(overload=1.0, limit=0.75)(dispatched()))
    np.testing.assert_allclose(crowded, quiet - 0.5)


def test_by_decision_a_request_counts_where_it_was_dispatched_if_its_deadline_passes_in_time():
    """A fourth request, of seat 1 in slot 2, is back at .8 s, before the end; its deadline at 1.1 s is not."""
    seen = dispatched()
    seen.active[2, 1], seen.decision_info.arrival_s[2, 1], seen.outcome.finish_s[2, 1] = True, 0.5, 0.8
    seen.decision_info.deadline_s[2, 1] = 0.6
    on_time, late = settled_by_decision(seen)
    np.testing.assert_array_equal(on_time[..., 0], [[1, 0], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(late[..., 0], [[0, 1], [1, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(due(seen)[..., 0], [[1, 1], [1, 0], [0, 0], [0, 0]])
    worth = np.asarray(KmpsDispatchReward(overload=1.0, by_decision=True)(seen))
    np.testing.assert_allclose(worth[..., 0], [[1, -1], [-1, 0], [0, 0], [0, 0]])
    nu = 1.0 / (1.0 + np.exp(-0.5 * (0.4 + 0.0)))
    worth = np.asarray(KaisDispatchReward(by_decision=True)(seen))
    np.testing.assert_allclose(worth[..., 0], np.exp(-np.asarray(late[..., 0]) - nu), rtol=1e-6)


def test_rewards_of_kmps_for_nodes_and_changes():
    """Two frames, H = 1: two of four on time, then three; then both nodes are equally busy. Service 2 is in demand."""
    ones = np.ones((2, 1, 1))
    node, service = np.zeros((2, 5, 2, 1, 1)), np.zeros((2, 4, 3, 1, 1))
    node[0, 3, 0], node[1, 3] = 1.0, 1.0
    service[:, 0, 1:], service[:, 3, 2] = np.log1p(1.0), np.log1p(5.0)
    frames = SimpleNamespace(
        observation=SimpleNamespace(node=node, service=service),
        outcome=SimpleNamespace(arrived=4.0 * ones, on_time=np.array([2.0, 3.0])[:, None, None]),
        action=SimpleNamespace(change=np.array([2, 1])[:, None, None]),
        settled=ones > 0,
    )
    nodes = np.asarray(KmpsNodeReward(gain=1.0, imbalance=0.5)(frames))
    np.testing.assert_allclose(nodes[:, 0, 0], [0.0, 0.25], atol=1e-5)
    changes = np.asarray(KmpsChangeReward(wanted=0.3, unwanted=0.2)(frames))
    np.testing.assert_allclose(changes[:, 0, 0], [0.3, -0.2], rtol=1e-6)
    advised = SimpleNamespace(**{**vars(frames), "observation": AdvisedObservation(frames.observation, None)})
    for reward in (KmpsNodeReward(), KmpsChangeReward()):
        np.testing.assert_array_equal(reward(advised), reward(frames))
    frames.action.change[:] = 4  # removals earn nothing
    assert not np.asarray(KmpsChangeReward()(frames)).any()
    assert np.asarray(nodes)[1] == pytest.approx(0.25, abs=1e-5)
    node[:] = 0.0  # a cluster without requests is not out of balance
    np.testing.assert_allclose(KmpsNodeReward(gain=0.0)(frames), 0.0)
