"""Policies that hold more in flight than the tables of a simulated system have slots for."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from evaluation.comparison.shifts import TestDays
from evaluation.judges.judge import Evaluation
from evaluation.judges.room import lost_in, with_room
from evaluation.problems.placement.seeds import joined, overflow_of
from evaluation.simulator.laws import constant
from evaluation.simulator.mechanics import NUM_SLOTS
from evaluation.simulator.truth import depths_of
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import PROCESSOR_SHARING, World
from tests.evaluation.made import made_decisions
from tests.evaluation.worlds import queue, truth_of, uniform_policy
from twin.contracts import Trajectory
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.types import REJECTED
from twin.rollout import rollout


def test_only_what_overflows_is_simulated_again_and_the_last_depth_is_kept_as_it_is():
    needed, asked = {0: 8, 1: 32, 2: 1000}, []

    def simulate(depth, chosen):
        asked.append((depth, list(chosen)))
        return [(one, depth) for one in chosen]

    found = with_room(simulate, 3, (8, 32, 128), lambda one: one[1] < needed[one[0]])
    assert found == [(0, 8), (1, 32), (2, 128)]
    assert asked == [(8, [0, 1, 2]), (32, [1, 2]), (128, [2])]


def test_lost_is_what_was_asked_and_of_which_nothing_is_known():
    outcome = SimpleNamespace(finish_s=np.array([np.nan, 4.0, np.nan, np.nan]))
    active, settled = np.array([True, True, False, True]), np.array([False, False, False, True])
    simulated = SimpleNamespace(active=active, settled=settled, outcome=outcome)
    assert lost_in(simulated).tolist() == [True, False, False, False]


def overloaded(discipline: str | None = None) -> World:
    """A node of one core, three times as much to do as it can: two of three requests stay."""
    world = queue(1, 3.0, constant())
    return (
        world
        if discipline is None
        else replace(world, nodes=(replace(world.nodes[0], discipline=discipline),))
    )


def played(world: World, depth: int) -> Trajectory:
    """The first 160 requests of the day, with so many slots."""
    system = truth_of(world, cluster_of(world), PlacementConfig(depth=depth), 1.0)
    return jax.tree.map(
        np.asarray, jax.jit(lambda key: rollout(key, system, uniform_policy, 160, (1,)))(jax.random.key(3))
    )


@pytest.mark.slow
def test_requests_without_a_slot_are_seen_and_more_slots_let_them_wait():
    world = overloaded()
    few, many = played(world, 8), played(world, depths_of(world, 8)[-1])
    lost = lost_in(few)
    assert lost.sum() > 60
    assert not lost_in(many).any()
    assert np.isfinite(many.outcome.finish_s).all()
    kept = ~lost & np.isfinite(few.outcome.finish_s)
    np.testing.assert_array_equal(few.outcome.finish_s[kept], many.outcome.finish_s[kept])


@pytest.mark.slow
def test_an_event_simulation_refuses_at_its_own_bound_and_not_at_that_of_the_tables():
    world = overloaded(PROCESSOR_SHARING)
    assert depths_of(world, 8) == (8, NUM_SLOTS)
    few, bound, more = (played(world, depth) for depth in (8, NUM_SLOTS, 2 * NUM_SLOTS))
    assert lost_in(few).any()
    assert not (few.outcome.status == REJECTED).any()
    refused = bound.outcome.status == REJECTED
    assert refused.sum() > 20
    assert not refused[:NUM_SLOTS].any()
    assert not lost_in(bound).any()
    np.testing.assert_array_equal(refused, more.outcome.status == REJECTED)
    np.testing.assert_array_equal(bound.outcome.finish_s, more.outcome.finish_s)


def test_what_found_no_slot_is_told_and_what_is_not_over_is_no_such_thing():
    """Of ten requests two are lost and one has not ended; replay has no such bound."""
    settled, finish_s = np.arange(10) > 2, np.arange(10.0) + 100.0
    finish_s[:2] = np.nan
    result = Evaluation(made_decisions(10, settled=settled, finish_s=finish_s), None, 0)
    shift = TestDays(1, (), None)
    run = joined("truth", 1, "mine", [result, result])
    assert run.num_overflow == 4
    assert overflow_of(run, shift) == [
        f"mine, truth, shift {shift.name}: 4 of 20 requests found no slot among those in flight and count as late"
    ]
    assert overflow_of(joined("replay", 1, "mine", [result]), shift) == []
