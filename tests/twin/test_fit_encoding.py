"""What is fixed from training days of an archive: vocabularies, classes, depth, estimates; read back from its text."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from logs_schema import Archive, ArchiveWriter
from logs_schema.columns import TableSpec, arrow_schema
from logs_schema.errors import ConfigError, ProductError
from logs_schema.tables import NODES, REQUESTS, SCHEMA_VERSION
from offline_rl.placement_contract import setting_of
from offline_rl.runner.setting import parse_setting
from twin.placement.encode import cut_windows, read_rows
from twin.placement.encoding import Encoding, day_start_s, fit_encoding
from twin.placement.features import observe_request, request_features
from twin.placement.log_windows import training_windows
from twin.placement.model import load_encoding

FIRST = dt.date(2024, 1, 1)
DAYS = [FIRST + dt.timedelta(days=i) for i in range(2)]


def table_of(spec: TableSpec, rows: list[dict]) -> pa.Table:
    schema = arrow_schema(spec, SCHEMA_VERSION)
    return pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in rows], schema=schema
    )


def request(number: int, day: int, second: float, run_s: float, **fields: object) -> dict:
    begun = dt.datetime.combine(DAYS[day], dt.time(), dt.UTC) + dt.timedelta(seconds=second)
    times = {"arrival": begun, "start": begun, "finish": begun + dt.timedelta(seconds=run_s)}
    return {"request_id": f"r{number}", "status": "completed", "site": "here", **times, **fields}


def archived(path: Path, nodes: list[dict], requests: list[dict]) -> Archive:
    with ArchiveWriter(path) as writer:
        writer.write("nodes", table_of(NODES, nodes), source="made")
        writer.write("requests", table_of(REQUESTS, requests), source="made")
    return Archive(path)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    nodes = [
        {
            "node_id": f"m{i}",
            "node_class": "small" if i < 2 else "large",
            "site": "here",
            "tier": "pool",
            "cpu_cores": 4.0 if i < 2 else 16.0,
            "memory_gib": 8.0,
        }
        for i in range(3)
    ]
    requests = [
        *(request(i, 0, 100.0 * i, 350.0, ran_node="m0", service="a", num_nodes=2) for i in range(10)),
        *(request(20 + i, 0, 5000.0 + i, 50.0, ran_node="m2", service="b") for i in range(4)),
        request(30, 0, 86_000.0, 1000.0, ran_node="m2", service="b"),
        *(request(40 + i, 1, 10.0 * (i + 1), 90.0, ran_node="m1", service="new") for i in range(6)),
    ]
    return archived(tmp_path_factory.mktemp("logs") / "archive", nodes, requests)


@pytest.fixture(scope="module")
def encoding(archive: Archive) -> Encoding:
    return fit_encoding(archive, DAYS[:1])


def test_requests_over_several_machines_choose_among_classes(encoding: Encoding) -> None:
    cluster = encoding.cluster
    assert encoding.by_class
    assert cluster.node_names == ("small", "large")
    np.testing.assert_allclose(cluster.capacity[0], [8.0, 16.0])  # summed over the machines of a class
    np.testing.assert_allclose(cluster.unit_capacity[0], [4.0, 16.0])  # the largest single machine
    assert [encoding.node_of_name[name] for name in ("m0", "m1", "m2")] == [0, 0, 1]


def test_machines_when_asked_for(archive: Archive) -> None:
    by_node = fit_encoding(archive, DAYS[:1], granularity="node")
    assert by_node.cluster.node_names == ("m0", "m1", "m2")
    np.testing.assert_allclose(by_node.cluster.capacity, by_node.cluster.unit_capacity)


@pytest.mark.parametrize("named", [True, False])
def test_classes_at_several_sites_are_several_unless_requests_name_them(tmp_path: Path, named: bool) -> None:
    places = [
        ("a", "edge", "small"),
        ("a", "edge", "small"),
        ("b", "cloud", "small"),
        ("b", "cloud", "large"),
    ]
    nodes = [
        {"node_id": f"m{i}", "site": site, "tier": tier, "node_class": kind, "cpu_cores": 4.0}
        for i, (site, tier, kind) in enumerate(places)
    ]
    node = "small" if named else "m2"
    requests = [request(1, 0, 0.0, 9.0, ran_node=node, num_nodes=2, candidates=["m2", "m3"])]
    encoding = fit_encoding(archived(tmp_path / "archive", nodes, requests), DAYS[:1])
    cluster = encoding.cluster
    if named:
        assert cluster.node_names == ("small", "large")
        return
    assert cluster.node_names == ("small@a", "small@b", "large")
    assert [cluster.sites[site] for site in cluster.site_of_node] == ["a", "b", "b"]
    assert cluster.is_cloud.tolist() == [False, True, True]
    assert cluster.capacity[0].tolist() == [8.0, 4.0, 4.0]
    assert cluster.rules.tolist() == [[True] * 3, [False, True, True]]
    assert [encoding.node_of_name[f"m{i}"] for i in range(4)] == [0, 0, 1, 2]


def test_unknown_cores_are_the_most_in_use_at_once(tmp_path: Path) -> None:
    nodes = [{"node_id": f"m{i}", "site": "a", "tier": "pool", "cpu_cores": 0.0} for i in range(3)]
    runs = [("m0", 0.0, 10.0, None), ("m0", 5.0, 10.0, None), ("m0", 15.0, 9.0, None), ("m1", 0.0, 9.0, 4.0)]
    requests = [
        request(number, 0, second, run_s, ran_node=node, cpu_cores=cores)
        for number, (node, second, run_s, cores) in enumerate(runs)
    ]
    requests[0] |= {"finish": requests[0]["finish"] - dt.timedelta(seconds=1)}
    cluster = fit_encoding(archived(tmp_path / "unknown", nodes, requests), DAYS[:1]).cluster
    assert cluster.capacity[0].tolist() == cluster.unit_capacity[0].tolist() == [2.0, 4.0, 0.0]
    known = [node | {"cpu_cores": 8.0 * (node["node_id"] == "m0")} for node in nodes]
    cluster = fit_encoding(archived(tmp_path / "known", known, requests), DAYS[:1]).cluster
    assert cluster.capacity[0].tolist() == [8.0, 0.0, 0.0]


def test_classes_are_wanted_of_every_node(tmp_path: Path) -> None:
    node = {"site": "a", "tier": "pool", "cpu_cores": 4.0}
    nodes = [node | {"node_id": "m0", "node_class": "small"}, node | {"node_id": "m1"}]
    made = archived(tmp_path / "archive", nodes, [request(1, 0, 0.0, 9.0, ran_node="m0", num_nodes=2)])
    assert not fit_encoding(made, DAYS[:1]).by_class
    with pytest.raises(ConfigError, match="some have none"):
        fit_encoding(made, DAYS[:1], granularity="class")


def test_only_training_days_are_looked_at(encoding: Encoding) -> None:
    assert set(encoding.cluster.services) == {"unknown", "a", "b"}
    runs = dict(zip(encoding.cluster.services, encoding.run_of_service_s, strict=True))
    assert runs["a"] == pytest.approx(350.0)
    assert runs["b"] == pytest.approx(50.0)
    assert encoding.problem.depth >= 2 * 4  # four requests at most were in flight on one class


def test_a_label_of_the_log_may_be_the_one_of_what_is_unknown(tmp_path: Path) -> None:
    node = {"node_id": "m0", "site": "here", "tier": "pool", "cpu_cores": 4.0}
    named = ["unknown", "unknown", "a"]
    requests = [
        request(number, 0, number, 9.0, ran_node="m0", service=one, queue=one, scenario=one)
        for number, one in enumerate(named)
    ]
    encoding = fit_encoding(archived(tmp_path / "archive", [node], requests), DAYS[:1])
    cluster = encoding.cluster
    assert cluster.services == cluster.queues == cluster.scenarios == ("unknown", "a")
    assert parse_setting(setting_of(encoding)).services == cluster.services


def test_text_and_back(encoding: Encoding) -> None:
    again = Encoding.from_json(encoding.to_json())
    assert again.to_json() == encoding.to_json()
    assert again.problem == encoding.problem
    np.testing.assert_array_equal(again.cluster.rules, encoding.cluster.rules)


def test_requests_of_the_day_before_are_carried_in(archive: Archive, encoding: Encoding) -> None:
    rows, wanted = read_rows(archive, encoding, DAYS[1:], known_until_s=np.inf)
    assert wanted.tolist() == [False] + [True] * 6
    assert rows.request.service[wanted].tolist() == [0] * 6  # a service unseen in training
    windows = cut_windows(rows, wanted, encoding, num_steps=8)
    held = windows.carried.node[:, 0] >= 0
    assert windows.carried.node[held, 0].tolist() == [1]
    arrival_s = windows.carried.request.arrival_s[held, 0] + windows.origin_s[0]
    assert arrival_s.tolist() == [day_start_s(DAYS[0]) + 86_000.0]


def test_training_days_must_exist(archive: Archive) -> None:
    with pytest.raises(ConfigError, match="without requests"):
        fit_encoding(archive, [dt.date(2030, 1, 1)])
    with pytest.raises(ConfigError, match="no training days"):
        fit_encoding(archive, [])
    with pytest.raises(ConfigError, match="granularity"):
        fit_encoding(archive, DAYS, granularity="rack")
    with pytest.raises(ConfigError, match="view"):
        fit_encoding(archive, DAYS, view="everything")


def test_the_time_of_week_is_shown_only_to_who_was_trained_on_whole_weeks(archive: Archive) -> None:
    encoding = fit_encoding(archive, DAYS)
    assert not encoding.cluster.knows_week
    assert not Encoding.from_json(encoding.to_json()).cluster.knows_week
    rows, wanted = read_rows(archive, encoding, DAYS, known_until_s=np.inf)
    request = cut_windows(rows, wanted, encoding, num_steps=4).request
    names = [feature.name for feature in request_features(encoding.cluster)]
    of_week = [names.index("week_sine"), names.index("week_cosine")]
    knowing = replace(encoding.cluster, knows_week=True)
    hidden, shown = (
        np.asarray(observe_request(cluster, request, 1.0)) for cluster in (encoding.cluster, knowing)
    )
    assert not hidden[of_week].any()
    assert shown[of_week].any()
    np.testing.assert_array_equal(np.delete(hidden, of_week, 0), np.delete(shown, of_week, 0))


def test_a_log_without_machines_knows_no_pairs(tmp_path) -> None:
    rows = [request(i, 0, 10.0 * i, 5.0, service="a", agent="someone") for i in range(4)]
    with ArchiveWriter(tmp_path / "archive") as writer:
        writer.write("nodes", table_of(NODES, []), source="made")
        writer.write("requests", table_of(REQUESTS, rows), source="made")
    found = fit_encoding(Archive(tmp_path / "archive"), DAYS[:1])
    assert (found.cluster.num_nodes, found.cluster.agents) == (0, ())
    assert Encoding.from_json(found.to_json()).to_json() == found.to_json()


def test_who_presses_on_the_runs_beside_it_is_in_the_log(tmp_path) -> None:
    """Runs of one service take 1.8 times as long beside "loud" as beside "calm", and text keeps what was found."""
    rng, rows = np.random.default_rng(0), []
    for number in range(400):
        beside, second = ("calm", "loud")[number % 2], 200.0 * number
        run_s = 50.0 * rng.lognormal(0.0, 0.1) * (1.8 if beside == "loud" else 1.0)
        rows.append(request(2 * number, 0, second, 150.0, ran_node="m", service=beside))
        rows.append(request(2 * number + 1, 0, second + 5.0, run_s, ran_node="m", service="timed"))
    node = {"node_id": "m", "site": "here", "tier": "pool", "cpu_cores": 4.0, "memory_gib": 8.0}
    with ArchiveWriter(tmp_path / "archive") as writer:
        writer.write("nodes", table_of(NODES, [node]), source="made")
        writer.write("requests", table_of(REQUESTS, rows), source="made")
    encoding = fit_encoding(Archive(tmp_path / "archive"), DAYS[:1])
    pressure = dict(zip(encoding.cluster.services, encoding.cluster.pressure, strict=True))
    assert pressure["loud"] - pressure["calm"] == pytest.approx(np.log(1.8), abs=0.1)
    back = Encoding.from_json(encoding.to_json())
    np.testing.assert_array_equal(back.cluster.pressure, encoding.cluster.pressure)


def test_agents_are_told_from_their_scenario_by_what_they_answered(tmp_path) -> None:
    nodes = [
        {"node_id": name, "site": site, "tier": "edge", "cpu_cores": 4.0}
        for name, site in (("m0", "here"), ("m1", "there"))
    ]
    rows = [
        request(
            i,
            0,
            10.0 * i,
            5.0,
            ran_node=f"m{i % 2}",
            agent="no" if i % 4 == 1 else "yes",
            accepted=i % 4 != 1,
            **({"status": "rejected"} if i % 4 == 1 else {}),
        )
        for i in range(80)
    ]
    with ArchiveWriter(tmp_path / "archive") as writer:
        writer.write("nodes", table_of(NODES, nodes), source="made")
        writer.write("requests", table_of(REQUESTS, rows), source="made")
    archive = Archive(tmp_path / "archive")
    found = fit_encoding(archive, DAYS[:1])
    assert found.cluster.agents == ("no", "yes")
    home, elsewhere = found.cluster.acceptance_of_agent[:, :2].T
    assert home.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(elsewhere, [0.0, 1.0], atol=0.05)
    told, _ = read_rows(archive, found, DAYS[:1], known_until_s=np.inf)
    np.testing.assert_allclose(told.request.accepts_elsewhere[:4], np.float32(elsewhere[[1, 0, 1, 1]]))


def test_a_product_of_the_older_reward_is_refused(encoding: Encoding, tmp_path) -> None:
    content = json.loads(encoding.to_json())
    del content["problem"]["worst_response"]
    content["problem"] |= {"reward": "slowdown", "slowdown_floor_s": 10.0, "worst_slowdown": 1000.0}
    (tmp_path / "encoding.json").write_text(json.dumps(content))
    with pytest.raises(ProductError, match="fit the twin and train again"):
        load_encoding(tmp_path)


def test_a_log_that_never_says_where_requests_ran_is_told_from_one_of_unknown_nodes(tmp_path: Path) -> None:
    nodes = [{"node_id": f"m{i}", "site": "here", "tier": "pool", "cpu_cores": 4.0} for i in range(2)]
    known = [request(40 + i, 1, 9.0 * i, 5.0, ran_node="m1") for i in range(3)]
    for name, ran, later, told in (
        (
            "silent",
            None,
            [],
            "^the log never says on which node a request ran.*null in every row.*--problem ordering",
        ),
        (
            "unknown",
            "elsewhere",
            [],
            "^no request of these days has a known decision.*shows which names are unknown",
        ),
        ("later", None, known, "^no request of these days has a known decision"),
    ):
        rows = [request(i, 0, 9.0 * i, 5.0, ran_node=ran) for i in range(3)]
        archive = archived(tmp_path / name, nodes, [*rows, *later])
        encoding = fit_encoding(archive, DAYS[:1])
        with pytest.raises(ConfigError, match=f"(?s){told}"):
            training_windows(archive, encoding, DAYS[:1], num_steps=4)


def answered(tells: str) -> list[dict]:
    """Requests of which every fourth is refused, which the log tells by `tells`, a column or both."""
    rows = []
    for number in range(200):
        row = request(
            number, number % 2, 60.0 * number, 30.0, offered_node=f"m{number % 3}", agent=f"a{number % 5}"
        )
        if number % 4 == 0:
            row |= {"start": None, "finish": None, "status": "rejected" if "status" in tells else "unknown"}
        rows.append(row | ({"accepted": number % 4 > 0} if "accepted" in tells else {}))
    return rows


def test_refusals_are_those_of_the_answers_or_of_the_statuses_where_only_these_tell(tmp_path: Path) -> None:
    nodes = [{"node_id": f"m{i}", "site": "here", "tier": "pool", "cpu_cores": 4.0} for i in range(3)]
    found = []
    for tells in ("accepted and status", "accepted", "status"):
        archive = archived(tmp_path / tells, nodes, answered(tells))
        encoding = fit_encoding(archive, DAYS, granularity="node")
        rows, _ = read_rows(archive, encoding, DAYS, known_until_s=day_start_s(DAYS[1]) + 86_400.0)
        cluster = encoding.cluster
        assert cluster.acceptance_of_scenario[0].min() == pytest.approx(0.75, abs=0.02)
        found.append((cluster.acceptance_of_scenario, cluster.acceptance_of_agent, rows.status, rows.node))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_starts_that_run_times_imply_are_those_of_a_log_that_has_them(tmp_path: Path) -> None:
    nodes = [{"node_id": f"m{i}", "site": "here", "tier": "pool", "cpu_cores": 4.0} for i in range(3)]
    rows = [
        request(i, i % 2, 50.0 * i, 20.0 + i % 7, offered_node=f"m{i % 3}", service=f"s{i % 2}")
        for i in range(200)
    ]
    without = [row | {"start": None, "run_s": 20.0 + number % 7} for number, row in enumerate(rows)]
    found = []
    for name, made in (("with", rows), ("without", without)):
        archive = archived(tmp_path / name, nodes, made)
        encoding = fit_encoding(archive, DAYS, granularity="node")
        read, _ = read_rows(archive, encoding, DAYS, known_until_s=day_start_s(DAYS[1]) + 86_400.0)
        found.append((encoding.cluster.run_ratio, read.start_s, read.finish_s, read.status))
    for one, same in zip(*found, strict=True):
        np.testing.assert_array_equal(one, same)
    assert np.isfinite(found[0][1]).all()
