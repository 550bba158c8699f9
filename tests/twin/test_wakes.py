"""Nodes that sleep when idle: read off a log, carried into windows, and waited for by twins, policies and bundles."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.placement_contract import placement_contract, setting_of
from offline_rl.runner import Request, load
from offline_rl.runner.setting import parse_setting
from tests.offline_rl.bundles import RULE, made_policy, made_system
from tests.offline_rl.retelling import needs_setting
from tests.twin.made import made_cluster, made_encoding, made_rows
from tests.twin.test_availability import CLUSTER, DEPTH, state_of
from tests.twin.test_fit_encoding import archived
from twin.placement.availability import time_to_availability_s
from twin.placement.bookkeeping import empty_table
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.types import COMPLETED
from twin.placement.wakes import Wakes, fit_wakes, wake_left_s

AFTER_S, WAKE_S = 300.0, 120.0
FIRST = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def log_of(
    rng: np.random.Generator, num: int, *, wake_s: float, least_s: float = 10.0, most_s: float = 1000.0
):
    """Arrival, start and finish of requests, each of which finds nothing on its node, which sleeps when idle."""
    idle_s = rng.uniform(least_s, most_s, num)
    wait_s = np.where(idle_s >= AFTER_S, wake_s, 0.0) * np.exp(0.05 * rng.standard_normal(num))
    run_s = rng.uniform(5.0, 50.0, num)
    arrival_s = np.cumsum(idle_s) + np.concatenate([[0.0], np.cumsum(wait_s + run_s)[:-1]])
    return np.stack([arrival_s, arrival_s + wait_s, arrival_s + wait_s + run_s])


def fitted(*logs: np.ndarray, classes: str) -> Wakes | None:
    times, node = (
        np.concatenate(logs, axis=1),
        np.repeat(np.arange(len(logs)), [one.shape[1] for one in logs]),
    )
    order = np.argsort(times[0], kind="stable")
    return fit_wakes(*times[:, order], node[order], np.zeros(len(order), int), tuple(classes))


def test_sleep_is_found_of_nodes_and_of_their_class_and_nowhere_else():
    rng = np.random.default_rng(0)
    sleeps, new = (log_of(rng, num, wake_s=WAKE_S) for num in (200, 6))
    found = fitted(sleeps, new, log_of(rng, 200, wake_s=0.0), log_of(rng, 6, wake_s=WAKE_S), classes="aabb")
    np.testing.assert_allclose(found.wake_s, [WAKE_S, WAKE_S, 0.0, 0.0], rtol=0.03)
    np.testing.assert_allclose(found.after_s[:2], AFTER_S, rtol=0.1)


def test_waits_that_idle_time_does_not_explain_are_no_sleep():
    rng = np.random.default_rng(1)
    awake = log_of(rng, 400, wake_s=0.0)
    awake[1:] += rng.exponential(20.0, 400)  # a way to the node
    always = log_of(rng, 400, wake_s=WAKE_S, least_s=AFTER_S)  # nothing to compare with
    assert fitted(awake, always, classes="ab") is None


def test_a_drop_at_an_instant_that_is_not_logged_hides_no_sleep(tmp_path):
    times_s = log_of(np.random.default_rng(0), 60, wake_s=WAKE_S).T
    requests = [
        {
            "request_id": f"r{number}",
            "site": "here",
            "ran_node": "m0",
            "arrival": FIRST + dt.timedelta(seconds=arrival_s),
            "start": None if number == 3 else FIRST + dt.timedelta(seconds=start_s),
            "finish": None if number == 3 else FIRST + dt.timedelta(seconds=finish_s),
            "status": "dropped" if number == 3 else "completed",
        }
        for number, (arrival_s, start_s, finish_s) in enumerate(times_s)
    ]
    nodes = [{"node_id": "m0", "node_class": "small", "site": "here", "tier": "pool", "cpu_cores": 4.0}]
    wakes = fit_encoding(archived(tmp_path / "logs", nodes, requests), [FIRST.date()]).cluster.wakes
    np.testing.assert_allclose(wakes.wake_s, WAKE_S, rtol=0.05)


def table_with(**of_node: tuple[float, float, float]):
    """Requests of (arrival, start, finish) in the first slots of the first nodes."""
    table = empty_table(3, DEPTH, ())
    leaves = {name: np.array(getattr(table, name)) for name in table._fields}
    for node, (arrival_s, start_s, finish_s) in enumerate(of_node.values()):
        leaves["decision"][node, 0] = 1
        leaves["arrival_s"][node, 0], leaves["start_s"][node, 0] = arrival_s, start_s
        leaves["finish_s"][node, 0] = finish_s
    return type(table)(**leaves)


@pytest.mark.parametrize(
    ("request_there", "left_s"),
    [
        ((0.0, 0.0, 699.0), WAKE_S),  # asleep
        ((0.0, 0.0, 701.0), 0.0),  # not yet
        ((0.0, 0.0, np.inf), 0.0),  # runs
        ((970.0, 1_050.0, 1_100.0), 50.0),  # wakes, and it is drawn until when
        ((970.0, np.inf, np.inf), 90.0),  # the same, by what is usual
        ((700.0, np.inf, np.inf), 0.0),  # should be awake by now
    ],
)
def test_when_a_node_is_awake_by_hand(request_there, left_s):
    table = table_with(first=request_there)
    wakes = Wakes(np.full(3, AFTER_S), np.array([WAKE_S, WAKE_S, 0.0]))
    parts = table.decision >= 0, table.arrival_s, table.start_s, table.finish_s
    left = wake_left_s(wakes, np.float32(1_000.0), *parts)
    np.testing.assert_allclose(left, [left_s, 0.0, 0.0])  # nothing is known of the others


def test_a_node_that_sleeps_has_room_when_it_is_awake():
    cluster = replace(CLUSTER, wakes=Wakes(np.full(3, AFTER_S), np.full(3, WAKE_S)))
    state = state_of(table_with(first=(0.0, 0.0, 500.0)), 1_000.0)
    for node, room_s in ((0, WAKE_S), (1, 0.0)):
        assert time_to_availability_s(cluster, state, np.array([node], np.int32)) == pytest.approx(room_s)


def test_windows_carry_what_ended_last_on_nodes_that_hold_nothing():
    cluster = made_cluster(num_edge=2)
    cluster = replace(cluster, wakes=Wakes(np.full(3, AFTER_S), np.full(3, WAKE_S)))
    rows = made_rows(np.random.default_rng(0), cluster, 4)
    arrival_s = np.array([100.0, 110.0, 120.0, 500.0])
    rows = rows._replace(
        arrival_s=arrival_s,
        start_s=arrival_s,
        finish_s=np.array([150.0, 130.0, 900.0, 510.0]),
        node=np.array([0, 0, 1, 0], np.int32),
        status=np.full(4, COMPLETED, np.int32),
    )
    windows = cut_windows(rows, np.arange(4) == 3, made_encoding(cluster), num_steps=1)
    carried, there = windows.carried, windows.carried.node[:, 0] >= 0
    assert carried.node[there, 0].tolist() == [1, 0]
    np.testing.assert_allclose(carried.request.finish_s[there, 0], [np.inf, -350.0])
    assert carried.request.expected_run_s[there, 0][1] == 0.0  # nothing is learned of it once more
    plain = cut_windows(rows, np.arange(4) == 3, made_encoding(replace(cluster, wakes=None)), num_steps=1)
    assert plain.carried.node[plain.carried.node >= 0].tolist() == [1]


def sleepy_system():
    encoding, windows = made_system()
    num = encoding.cluster.num_nodes
    wakes = Wakes(np.linspace(0.5, 3.0, num), np.array([7.0, 0.0, 30.0, 5.0][:num]))
    return replace(encoding, cluster=replace(encoding.cluster, wakes=wakes)), windows


@pytest.mark.slow
def test_whole_episodes_are_seen_and_decided_as_in_training(tmp_path):
    encoding, windows = sleepy_system()
    needs_setting(tmp_path, RULE, encoding, windows, wakes=None)


def test_books_wait_for_nodes_that_sleep_and_contracts_say_which(tmp_path):
    encoding, _ = sleepy_system()
    assert Encoding.from_json(encoding.to_json()).cluster.wakes.wake_s.tolist() == [7.0, 0.0, 30.0, 5.0]
    meanings = {one.name: one.description for one in placement_contract(encoding, RULE).choice_features}
    assert meanings["usual_run"].endswith("until the node is awake")
    setting = setting_of(encoding)
    with pytest.raises(ProductError, match="idle and wake times must be finite"):
        parse_setting(setting | {"wakes": {"after_s": [1.0], "wake_s": [1.0]}})
    made_policy(tmp_path / "bundle", encoding, RULE)
    policy = load(tmp_path / "bundle")
    books = policy.ledger([{"name": name} for name in encoding.cluster.node_names], 0.0)
    asked, unit_s = Request(cpu_cores=0.5, site="site-0", requested_run_s=10.0), encoding.problem.time_unit_s

    def run_s(clock_s: float) -> float:
        return unit_s * np.expm1(books.explain(asked, clock_s).features["edge-0"]["usual_run"])

    books.place("a", "edge-0", asked, 1.0)
    books.start("a", 1.0)
    books.finish("a", 2.0)
    awake_s = run_s(2.25)
    assert run_s(2.75) - awake_s == pytest.approx(7.0, abs=0.05)
    books.place("b", "edge-0", asked, 3.0)
    assert run_s(5.0) - awake_s == pytest.approx(5.0, abs=0.3)
    books.start("b", 10.0)
    assert run_s(10.0) - awake_s == pytest.approx(0.0, abs=0.3)
