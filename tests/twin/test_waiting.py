"""What requests wait for beside room: read off logs of systems that have it and of others, and when it is due."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from evaluation.problems.placement.dependences import dependences_of
from logs_schema.errors import ProductError
from offline_rl.placement_contract import placement_contract, setting_of
from offline_rl.runner.setting import parse_setting
from tests.offline_rl.bundles import RULE, made_system
from tests.offline_rl.retelling import needs_setting
from tests.twin.made import made_cluster, made_encoding
from tests.twin.test_against_loop import log_agrees_with_the_loop
from tests.twin.test_availability import DEPTH, state_of
from twin.placement.availability import time_to_availability_s
from twin.placement.bookkeeping import empty_table
from twin.placement.encoding import Encoding
from twin.placement.pace import Pace
from twin.placement.paced_fates import planned_fates
from twin.placement.priorities import QueuedRuns
from twin.placement.types import Cluster
from twin.placement.waiting import WaitedFor, fit_waiting
from twin.placement.wakes import Wakes

CORES, NUM_NODES, LIMIT = 8.0, 3, 3


def served(
    seed: int, *, in_order: bool, limit: float = np.inf, count: int = 3000, gap_s: float = 6.0
) -> tuple[QueuedRuns, np.ndarray]:
    """Requests of one to eight cores on three nodes; those of service 2 have two, and run for long under a limit."""
    rng = np.random.default_rng(seed)
    node, service = rng.integers(0, NUM_NODES, count), rng.choice([1, 1, 1, 2], count)
    cores = np.where(service == 2, 2.0, rng.choice([1.0, 1.0, 2.0, 8.0], count))
    arrival_s, run_s = (
        np.cumsum(rng.exponential(gap_s, count)),
        rng.exponential(np.where(service == 2, 40.0, 10.0)),
    )
    start_s, finish_s = np.full((2, count), np.inf)
    free, permits = np.full(NUM_NODES, CORES), limit
    waiting, running, coming = [[] for _ in range(NUM_NODES)], [], list(range(count))
    while coming or running:
        next_s = arrival_s[coming[0]] if coming else np.inf
        ended = min(running, key=finish_s.__getitem__, default=None)
        if ended is not None and finish_s[ended] <= next_s:
            running.remove(ended)
            now_s, free[node[ended]] = finish_s[ended], free[node[ended]] + cores[ended]
            permits += service[ended] == 2
        else:
            now_s = next_s
            waiting[node[coming[0]]].append(coming.pop(0))
        for index, queue in enumerate(waiting):
            for one in list(queue):
                if cores[one] <= free[index] and (service[one] == 1 or permits >= 1):
                    queue.remove(one)
                    start_s[one], finish_s[one] = now_s, now_s + run_s[one]
                    running.append(one)
                    free[index] -= cores[one]
                    permits -= service[one] == 2
                elif in_order:
                    break
    zero = np.zeros(count, int)
    return QueuedRuns(zero, node, arrival_s, start_s, finish_s, cores, zero), service


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("limit", [LIMIT, np.inf])
def test_order_and_permits_are_read_off_a_log(seed: int, in_order: bool, limit: float) -> None:
    held, service = served(seed, in_order=in_order, limit=limit, gap_s=6.0)
    found = fit_waiting(held, service, np.full(NUM_NODES, CORES), 3)
    if limit == LIMIT:
        assert found == WaitedFor(in_order, (0, 0, LIMIT))
    else:  # when there are cores says all
        assert found == WaitedFor()
    assert not fit_waiting(held, service, np.full(NUM_NODES, CORES), 3, scarce=True).permits


def test_requests_of_one_core_show_no_order_and_few_requests_nothing() -> None:
    """Of requests of one core each room comes in order anyway."""
    held, service = served(2, in_order=True, count=600)
    alike = held._replace(
        cores=np.full(len(service), CORES), start_s=held.arrival_s, finish_s=held.arrival_s + 1.0
    )
    assert fit_waiting(alike, service, np.full(NUM_NODES, CORES), 3) == WaitedFor()
    few = QueuedRuns(*(leaf[:200] for leaf in held))
    assert fit_waiting(few, service[:200], np.full(NUM_NODES, CORES), 3) == WaitedFor()


def test_room_comes_no_sooner_than_those_ahead_begin_and_a_permit_is_free() -> None:
    """A request of one core; on its node runs one until 9 s, and one that waits begins at 7 s."""
    plain, table = made_cluster(num_edge=2), jax.tree.map(np.array, empty_table(3, DEPTH, ()))
    state = state_of(table, 5.0)
    service = int(state.request.service[0])
    begun = {(0, 0): (2.0, 9.0), (0, 1): (7.0, 20.0), (1, 0): (1.0, 11.0), (1, 1): (1.0, 30.0)}
    for at, (start_s, finish_s) in begun.items():
        table.decision[at], table.start_s[at], table.finish_s[at] = 1, start_s, finish_s
        table.demand[(0, *at)], table.service[at] = 0.1, service if at[0] == 1 else service - 1
    node = np.array([0], np.int32)

    def until_s(**found: object) -> float:
        return float(time_to_availability_s(replace(plain, **found), state, node)[0])

    permits = [0] * len(plain.services)
    permits[service] = 2
    assert until_s() == 0.0
    assert until_s(in_order=True) == pytest.approx(2.0)
    assert until_s(permits=tuple(permits)) == pytest.approx(6.0)
    assert until_s(in_order=True, permits=tuple(permits)) == pytest.approx(6.0)
    permits[service] = 3
    assert until_s(permits=tuple(permits)) == 0.0


def test_where_runs_are_slowed_nobody_passes_one_that_waits() -> None:
    """A run of the whole node until 10 s, a request of all of it due now, and one of a tenth behind it."""
    cluster = replace(made_cluster(num_edge=2), in_order=True)
    cluster = replace(cluster, pace=Pace(np.zeros(len(cluster.services)), False))
    table = jax.tree.map(np.array, empty_table(3, 4, (1,)))
    start_s, finish_s = np.full((2, 3, 4, 1), np.inf, np.float32)
    half, whole = 0.5 * cluster.capacity[0, 0], cluster.capacity[0, 0]
    for slot, (arrival, start, finish, cores) in enumerate(
        [(0, 0, 10, half), (1, 3, 13, whole), (2, 3, 6, half)]
    ):
        table.decision[0, slot], table.arrival_s[0, slot], table.demand[0, 0, slot] = 1, arrival, cores
        start_s[0, slot], finish_s[0, slot] = start, finish
    at_s = np.full(1, 2.0, np.float32)
    for in_order, begins in ((True, [0.0, 10.0, 20.0]), (False, [0.0, 10.0, 3.0])):
        found, _ = planned_fates(replace(cluster, in_order=in_order), table, at_s, start_s, finish_s)
        np.testing.assert_allclose(np.asarray(found)[0, :3, 0], begins, atol=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_places_of_services_on_nodes_are_read_off_a_log(seed: int) -> None:
    """One request of service 2 at a time on the first node, two on the second; nobody else waits for them."""
    rng, count = np.random.default_rng(seed), 4000
    service, node = rng.integers(1, 4, count), rng.integers(0, 3, count)
    arrival_s, run_s = np.cumsum(rng.exponential(6.0, count)), rng.exponential(20.0, count)
    start_s, free_s = arrival_s.copy(), {(2, 0): [0.0], (2, 1): [0.0, 0.0]}
    for row in range(count):
        if places := free_s.get((service[row], node[row])):
            start_s[row] = max(arrival_s[row], min(places))
            places[int(np.argmin(places))] = start_s[row] + run_s[row]
    held = QueuedRuns(service, node, arrival_s, start_s, start_s + run_s, np.ones(count), service)
    found = fit_waiting(held, service, np.full(3, 64.0), 4)
    assert found.concurrency[2][:2] == (1, 2)
    assert found.concurrency[2][2] >= 4  # as many as ever ran there
    assert not np.any(found.concurrency[:2] + found.concurrency[3:])
    assert (found.in_order, found.permits) == (False, ())
    alike = held._replace(start_s=arrival_s, finish_s=arrival_s + run_s)
    assert fit_waiting(alike, service, np.full(3, 64.0), 4) == WaitedFor()


def limited_cluster(**others: object) -> Cluster:
    """The made cluster with a place or two of every service but one on every node."""
    plain = made_cluster()
    rows = [
        [(service + node) % 3 for node in range(plain.num_nodes)] for service in range(len(plain.services))
    ]
    return replace(plain, concurrency=tuple(map(tuple, rows)), **others)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ahead", "places"])
def test_the_array_code_agrees_with_the_loop(kind: str) -> None:
    plain = made_cluster()
    cluster = replace(plain, in_order=True, permits=(0, *(2,) * (len(plain.services) - 1)))
    cluster = cluster if kind == "ahead" else limited_cluster()
    log_agrees_with_the_loop(made_encoding(cluster, reward="response"), seed=4)


@pytest.mark.slow
@pytest.mark.parametrize("sleeps", [False, True])
def test_whole_episodes_are_seen_and_decided_as_in_training(tmp_path: Path, sleeps: bool) -> None:
    encoding, windows = made_system()
    wakes = Wakes(np.linspace(0.5, 3.0, 4), np.array([7.0, 0.0, 30.0, 5.0])) if sleeps else None
    limits = np.array(limited_cluster().concurrency)[: len(encoding.cluster.services), :4]
    cluster = replace(encoding.cluster, concurrency=tuple(map(tuple, limits.tolist())), wakes=wakes)
    encoding = replace(encoding, cluster=cluster)
    needs_setting(tmp_path, RULE, encoding, windows, concurrency=())


def test_contracts_say_what_is_waited_for_and_refuse_what_cannot_be() -> None:
    encoding = made_encoding(limited_cluster())
    read = Encoding.from_json(encoding.to_json()).cluster
    assert read.concurrency == encoding.cluster.concurrency
    meanings = {one.name: one.description for one in placement_contract(encoding, RULE).choice_features}
    assert meanings["usual_run"].endswith("where all places are taken")
    setting = setting_of(encoding)
    for wrong in ([[1]], [[-1] * len(row) for row in encoding.cluster.concurrency]):
        with pytest.raises(ProductError, match="limits of what runs at once"):
            parse_setting(setting | {"concurrency": wrong})
    assert any("so many run at once on a node" in each for each in dependences_of(encoding.cluster))


def test_an_encoding_keeps_them_says_so_and_says_nothing_without_them() -> None:
    plain = made_cluster()
    cluster = replace(plain, in_order=True, permits=(0,) * (len(plain.services) - 1) + (7,))
    read = Encoding.from_json(made_encoding(cluster).to_json()).cluster
    assert (read.in_order, read.permits) == (True, cluster.permits)
    assert "in_order" not in made_encoding(plain).to_json()
    assert "permits" not in made_encoding(plain).to_json()
    assert any(f"7 of {plain.services[-1]}" in each for each in dependences_of(cluster))
