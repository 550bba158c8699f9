"""When a node has room: against a queue of several servers played one request after another."""

import jax
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_requests
from twin.placement.availability import pending_fates, time_to_availability_s
from twin.placement.bookkeeping import empty_table
from twin.placement.run_filter import FAST, SLOW, NodeLevel
from twin.placement.types import UNKNOWN, PlacementState, RunLevels

CLUSTER = made_cluster(num_edge=2)
DEPTH = 40
availability = jax.jit(lambda state, node: time_to_availability_s(CLUSTER, state, node))


def state_of(table, clock_s: float) -> PlacementState:
    """One request for one core in hand."""
    request = made_requests(np.random.default_rng(0), CLUSTER, (1,))
    request = request._replace(demand=np.array([[1.0], [0.0], [0.0]], np.float32))
    empty = np.zeros(3, np.float32)
    return PlacementState(
        np.float32(clock_s), request, np.ones(1, bool), np.ones(3, bool), table, empty, empty, np.int32(0)
    )


@pytest.mark.parametrize("given_up", [0.0, 0.3])
def test_room_of_a_queue_of_several_servers(given_up: float) -> None:
    """First come, first served on four cores: room comes when the core that is free first is free."""
    rng, node, cores = np.random.default_rng(int(10 * given_up)), 0, 4
    table = jax.tree.map(lambda leaf: np.array(leaf), empty_table(3, DEPTH, ()))
    free_s, clock_s, waited = np.zeros(cores), 0.0, 0
    for number in range(DEPTH):
        clock_s += rng.exponential(1.0)
        known_s = float(availability(state_of(table, clock_s), np.array([node], np.int32))[0])
        truth_s = max(free_s.min() - clock_s, 0.0)
        assert known_s == pytest.approx(truth_s, abs=1e-4)
        waited += truth_s > 0.0
        start_s = max(clock_s, free_s.min())
        finish_s = start_s + rng.exponential(5.0 / (1.0 - given_up))
        leaves = rng.random() < given_up  # waits a little, takes no core
        if not leaves:
            free_s[free_s.argmin()] = finish_s
        at = (node, number)
        table.decision[at], table.arrival_s[at], table.status[at] = number, clock_s, UNKNOWN
        table.start_s[at] = np.inf if leaves else start_s
        table.finish_s[at] = clock_s + 0.5 if leaves else finish_s
        table.demand[(0, *at)] = 1.0
    assert waited > DEPTH / 4


def test_a_node_without_limits_always_has_room() -> None:
    table = jax.tree.map(lambda leaf: np.array(leaf), empty_table(3, DEPTH, ()))
    table.decision[2], table.finish_s[2], table.start_s[2], table.demand[0, 2] = 1, 9.0, 0.0, 50.0
    assert float(availability(state_of(table, 1.0), np.array([2], np.int32))[0]) == 0.0


def test_what_ends_at_an_unknown_time_is_expected_to_run_as_long_as_it_said() -> None:
    table = jax.tree.map(lambda leaf: np.array(leaf), empty_table(3, DEPTH, ()))
    table.decision[0, 0], table.start_s[0, 0], table.demand[0, 0, 0] = 1, 2.0, 4.0
    table.expected_run_s[0, 0] = 10.0
    assert float(availability(state_of(table, 5.0), np.array([0], np.int32))[0]) == pytest.approx(7.0)


def test_the_level_of_a_request_is_its_pairs_and_its_nodes() -> None:
    """A service on a node: .3 of the pair, .1 and -.6 of the node; what is far off counts 1.5; 0 without a filter."""
    state = state_of(empty_table(3, DEPTH, ()), 0.0)
    pair, node = np.zeros((len(CLUSTER.services), 3), np.float32), np.zeros((2, 3), np.float32)
    service = state.request.service[0]
    pair[service, :2], node[SLOW, 0], node[FAST, 0], node[SLOW, 1] = (0.3, 2.0), 0.1, -0.6, 1.0
    pair[service - 1] = 9.0
    followed = state._replace(levels=RunLevels(pair, pair, NodeLevel(node, node), np.float32(0.0)))
    for offered, level in enumerate([-0.2, 1.5, 0.0]):
        at = np.array([offered], np.int32)
        assert float(pending_fates(CLUSTER, followed, at).level[0]) == pytest.approx(level)
        assert float(pending_fates(CLUSTER, state, at).level[0]) == 0.0


@pytest.mark.slow
def test_many_streams_are_computed_as_few_are() -> None:
    """As many as in training, compiled as there: a compiler that got sums over wide arrays wrong once went unseen."""
    rng, streams, clock_s = np.random.default_rng(3), 640, np.float32(5.0)
    shape = (3, 32, streams)
    table = jax.tree.map(lambda leaf: np.array(leaf), empty_table(3, 32, (streams,)))
    table = table._replace(
        decision=rng.integers(-1, 2, shape).astype(np.int32),
        start_s=rng.uniform(0.0, 10.0, shape).astype(np.float32),
        finish_s=rng.uniform(0.0, 20.0, shape).astype(np.float32),
        demand=rng.uniform(0.0, 1.0, (3, *shape)).astype(np.float32),
    )
    request = made_requests(rng, CLUSTER, (1, streams))
    empty = np.zeros((3, streams), np.float32)
    state = PlacementState(
        np.full(streams, clock_s),
        request,
        np.ones((1, streams), bool),
        np.ones((3, streams), bool),
        table,
        empty,
        empty,
        np.zeros(streams, np.int32),
    )
    node = (np.arange(streams, dtype=np.int32) % 3)[None]
    wide = np.asarray(availability(state, node))
    with jax.disable_jit():
        plain = np.asarray(time_to_availability_s(CLUSTER, state, node))
    np.testing.assert_allclose(wide, plain, atol=1e-4)
    assert 0.2 < np.mean(wide > 0.0) < 1.0
