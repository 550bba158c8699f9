"""Start-ups of services that did not run on a node lately: what a log shows of them, and what windows begin with."""

from dataclasses import replace

import numpy as np
import pytest

from tests.reference.dispatch_loop import (
    BY_CHANCE,
    KINDS,
    NUM_NODES,
    NUM_SERVICES,
    WARM_S,
    ShortestQueue,
    World,
    play,
)
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.cold_start_fit import fit_run_tables
from twin.placement.cold_starts import ColdStarts, due, last_ends_s
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.types import REJECTED

SHAPE = NUM_SERVICES, NUM_NODES


def tables_of(kind: str, seed: int):
    """The tables of three days of a world of the other simulator, and the world."""
    world = World(KINDS[kind], seed)
    jobs = world.jobs(0, 3, seed)
    runs = play(world, jobs, ShortestQueue(seed, BY_CHANCE), seed)
    service, node = np.array([job.service for job in jobs]), np.array([run.node for run in runs])
    run_s = np.array([run.finish_s - run.start_s for run in runs])
    declared = np.array([job.declared_s or np.nan for job in jobs])
    usual = np.array([np.median(run_s[service == one]) for one in range(NUM_SERVICES)])
    expected_s = np.where(np.isnan(declared), usual[service], declared)
    arrival_s, together = np.array([job.arrival_s for job in jobs]), np.zeros(len(jobs), int)
    return fit_run_tables(arrival_s, service, node, run_s, expected_s, together, SHAPE), world


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_start_ups_and_their_memory_are_found(seed):
    tables, world = tables_of("cold_starts", seed)
    assert tables.cold is not None
    assert tables.cold.memory_s == WARM_S
    assert tables.cold.room is None  # it is the time that counts
    np.testing.assert_allclose(tables.cold.startup_s, 1.2 * world.unit_s, rtol=0.12)
    warm = np.log(0.5 * world.mean_s / world.mean_s.mean(axis=1, keepdims=True))
    found = np.log(tables.ratios.ratio / tables.ratios.ratio.mean(axis=1, keepdims=True))
    assert np.corrcoef(warm.ravel(), found.ravel())[0, 1] > 0.97


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] if kind != "queueing" else [])
        for kind in KINDS
        if kind != "cold_starts"
    ],
)
def test_nothing_is_found_where_nothing_starts_cold(kind):
    tables, _ = tables_of(kind, 5)
    assert tables.cold is None


def test_a_start_up_is_due_by_the_idle_time():
    np.testing.assert_allclose(
        due(np.array([-5.0, 0.0, 5.0, 10.0, 20.0, np.inf]), 10.0),
        [0.0, 0.0, 1 / 17, 0.5, 16 / 17, 1.0],
        rtol=1e-6,
    )


def test_ends_are_those_of_earlier_runs_of_the_pair():
    pair, ends_s = np.array([1, 1, 2, -1, 1, -1, 2]), np.array([9.0, 5.0, 7.0, 99.0, 1.0, 50.0, 8.0])
    np.testing.assert_array_equal(last_ends_s(pair, ends_s, 2.0), [2.0, 9.0, 2.0, 2.0, 9.0, 2.0, 7.0])


def test_windows_begin_with_what_ran_before_them():
    cluster = made_cluster()
    cluster = replace(cluster, cold=ColdStarts(30.0, np.arange(len(cluster.services), dtype=float)))
    encoding = made_encoding(cluster, depth=64)
    assert Encoding.from_json(encoding.to_json()).cluster.cold.memory_s == 30.0
    np.testing.assert_array_equal(
        Encoding.from_json(encoding.to_json()).cluster.cold.startup_s, cluster.cold.startup_s
    )
    rows = made_rows(np.random.default_rng(0), cluster, 200)
    windows = cut_windows(rows, np.ones(200, bool), encoding, num_steps=40)
    request, last = rows.request, {}
    for row in range(200):
        service, node = int(request.service[row]), int(rows.node[row])
        if row % 40 == 0:
            found = windows.last_end_s[..., row // 40] + windows.origin_s[row // 40]
            wanted = np.full(found.shape, rows.arrival_s[0])
            for pair, end_s in last.items():
                wanted[pair] = end_s
            np.testing.assert_allclose(found, wanted, atol=1e-3)
        if rows.status[row] != REJECTED:
            end_s = rows.arrival_s[row] + cluster.run_ratio[service, node] * request.expected_run_s[row]
            last[service, node] = max(last.get((service, node), -np.inf), end_s)
    assert windows.num_windows == 5
    filed_s = windows.filed_s - windows.request.expected_run_s
    assert (filed_s >= 0.0).all()
    assert (filed_s > 1.0).any()
