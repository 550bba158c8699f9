"""Start-ups of services that others have driven out of a node: found in a log, and counted alike on every side."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from offline_rl.placement_contract import placement_contract
from offline_rl.runner.cold_starts import LedgerColdStarts
from offline_rl.runner.setting import parse_setting
from tests.offline_rl.bundles import MLP
from tests.twin.made import made_cluster, made_encoding
from twin.placement.cold_start_fit import fit_run_tables
from twin.placement.cold_starts import ColdStarts
from twin.placement.encoding import Encoding
from twin.placement.evictions import due_by_others, others_since

NUM_SERVICES, ROOMS = 8, (2, 3, 5)
SHAPE = NUM_SERVICES, len(ROOMS)
STARTUP_S, RUN_S = 30.0, 20.0
SLOWNESS = np.array([0.5, 1.0, 1.5])


def logged(num_rows: int, seed: int, always: frozenset[tuple[int, int]] = frozenset()):
    """Runs on nodes that keep the services used last, so many of them, and some of which `always` says so; calls come
    in bursts and with long pauses, so that idle times say little."""
    rng = np.random.default_rng(seed)
    service = rng.integers(NUM_SERVICES, size=num_rows)
    node = rng.integers(len(ROOMS), size=num_rows)
    arrival_s = np.cumsum(
        rng.exponential(40.0, num_rows) * np.where(np.arange(num_rows) // 40 % 2, 1.0, 20.0)
    )
    held: list[OrderedDict[int, None]] = [OrderedDict() for _ in ROOMS]
    is_cold = np.zeros(num_rows, bool)
    for row, (one, at) in enumerate(zip(service.tolist(), node.tolist(), strict=True)):
        is_cold[row] = one not in held[at] and (one, at) not in always
        held[at][one] = None
        held[at].move_to_end(one)
        if len(held[at]) > ROOMS[at]:
            held[at].popitem(last=False)
    run_s = RUN_S * np.exp(0.2 * rng.normal(size=num_rows)) + STARTUP_S * SLOWNESS[node] * is_cold
    expected_s, together = np.full(num_rows, np.median(run_s)), np.zeros(num_rows, int)
    return fit_run_tables(arrival_s, service, node, run_s, expected_s, together, SHAPE)


@pytest.mark.parametrize("seed", [1, 2])
def test_how_many_services_every_node_keeps_is_found(seed):
    cold = logged(6_000, seed).cold
    assert cold is not None
    assert cold.room is not None
    assert np.all(np.abs(cold.room - (np.array(ROOMS) - 0.5)) <= 1.0)
    assert np.all(np.diff(cold.room) > 0.0)
    found_s = np.outer(cold.startup_s, cold.slowness)
    np.testing.assert_allclose(found_s, np.broadcast_to(STARTUP_S * SLOWNESS, found_s.shape), rtol=0.15)
    assert cold.part is None  # all are alike


def test_services_that_are_always_on_some_nodes_are_found():
    always = frozenset({(0, 1), (1, 2), (3, 1), (4, 2)})
    cold = logged(8_000, 3, always).cold
    assert cold is not None
    assert cold.part is not None
    is_always = np.array([[(one, at) in always for at in range(SHAPE[1])] for one in range(SHAPE[0])])
    assert cold.part[is_always].max() < 0.4
    assert cold.part[~is_always].min() > 0.6
    known = ColdStarts(cold.memory_s, cold.startup_s, cold.room, cold.slowness, cold.part)
    due = known.due(np.zeros(2), np.full(2, 50.0), np.array([0, 7]), np.array([1, 1]))
    np.testing.assert_allclose(due, cold.slowness[1] * cold.part[[0, 7], 1], rtol=1e-6)


def test_others_since_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    shape, num_rows = (4, 3), 400
    stretch = np.sort(rng.integers(2, size=num_rows))
    pair = np.where(rng.random(num_rows) < 0.1, -1, stretch * 12 + rng.integers(12, size=num_rows))
    ends_s = np.arange(num_rows) + rng.uniform(0.0, 30.0, num_rows)
    found, last = others_since(pair, ends_s, shape), {}
    for row, one in enumerate(pair.tolist()):
        if one < 0:
            continue
        beside = [end_s for other, end_s in last.items() if other // 12 == one // 12 and other % 3 == one % 3]
        assert found[row] == sum(end_s > last.get(one, -np.inf) for end_s in beside)
        last[one] = max(last.get(one, -np.inf), ends_s[row])


def test_a_start_up_is_due_once_there_is_no_more_room():
    np.testing.assert_allclose(due_by_others(np.array([0.0, 2.0, 4.0]), 2.0), [0.0, 0.5, 256 / 257])


def test_books_take_a_node_of_no_training_for_a_usual_one_and_texts_keep_all():
    cluster = made_cluster()
    room, slowness = np.arange(1.0, 1.0 + cluster.num_nodes), np.full(cluster.num_nodes, 2.0)
    part = np.full((len(cluster.services), cluster.num_nodes), 0.5)
    cold = ColdStarts(30.0, np.full(len(cluster.services), 10.0), room, slowness, part)
    encoding = made_encoding(replace(cluster, cold=cold))
    before = encoding.to_json()
    cold.due(np.zeros(1), np.ones(1), np.zeros(1, int), np.zeros(1, int))
    assert Encoding.from_json(before).to_json() == before == encoding.to_json()
    known = parse_setting(placement_contract(encoding, MLP).setting).cold
    assert known.room == tuple(room)
    books = LedgerColdStarts(known, np.ones((len(cluster.services), 2)), [cluster.num_nodes - 1, -1])
    books.begin(0.0)
    np.testing.assert_array_equal(books.due_s(1, 1e6), 0.0)  # nothing else has run, however long ago it was
    for row in range(2):
        books.placed(0, row, 1e6, 5.0)
    whole_s = 20.0 * due_by_others(1.0, np.array([room[-1], np.median(room)]))
    np.testing.assert_allclose(books.due_s(1, 2e6), whole_s * [0.5, 1.0])
