"""Every real log reads as its README says; the figures were measured independently of this code."""

from collections import Counter
from datetime import UTC, date, datetime

import numpy as np
import pytest

from logs_schema.formats import alibaba2018, lumos, openb, philly, swf, wagap
from logs_schema.formats.reading import Chunk, ReadingOptions
from tests.logs_schema.collecting import collect

KTH_START = datetime(1996, 9, 23, 12, 0, 31, tzinfo=UTC)


def values(found, name):
    return [row.get(name) for row in found.rows["requests"]]


def seconds(found, later, earlier):
    rows = found.rows["requests"]
    return np.array(
        [(row[later] - row[earlier]).total_seconds() for row in rows if row[later] and row[earlier]]
    )


def arrival_days(found):
    return Counter(value.date() for value in values(found, "arrival"))


@pytest.fixture(scope="module")
def wagap_log(shared_data):
    return collect(wagap, [shared_data / "wagap-2013"])


@pytest.mark.slow
def test_wagap_rows_and_quarantine(wagap_log):
    assert len(wagap_log.rows["requests"]) == 17_898
    assert wagap_log.rejects == [("negative:run", 4186), ("negative:run", 4200)]
    assert len(set(values(wagap_log, "agent"))) == 75


@pytest.mark.slow
def test_wagap_waits_users_and_overruns(wagap_log):
    waits = seconds(wagap_log, "start", "arrival")
    assert np.median(waits) == pytest.approx(370, abs=1)
    assert np.percentile(waits, 90) / 3600 == pytest.approx(39, abs=0.6)
    requested = np.array(values(wagap_log, "requested_run_s"))
    assert (seconds(wagap_log, "finish", "start") > requested).sum() == 702
    assert np.mean(np.array(values(wagap_log, "num_nodes")) == 1) == pytest.approx(0.98, abs=0.005)


@pytest.mark.slow
def test_wagap_nodes_and_their_classes(wagap_log):
    classes = Counter(node["node_class"] for node in wagap_log.rows["nodes"])
    assert classes == {"zewura": 20, "zegox": 48}
    class_of = {node["node_id"]: node["node_class"] for node in wagap_log.rows["nodes"]}
    seen = set(values(wagap_log, "ran_node")) | {
        n for nodes in values(wagap_log, "ran_nodes") for n in nodes or ()
    }
    assert len(seen) == 44
    by_number = {node: "zewura" if int(node) < 1255 else "zegox" for node in seen}
    assert {node: class_of[node] for node in seen} == by_number


@pytest.mark.slow
def test_wagap_candidates_hold_the_class_that_was_used(wagap_log):
    class_of = {node["node_id"]: node["node_class"] for node in wagap_log.rows["nodes"]}
    rows = wagap_log.rows["requests"]
    assert all(row["candidates"] is None or class_of[row["ran_node"]] in row["candidates"] for row in rows)
    restricted = Counter(tuple(row["candidates"]) for row in rows if row["candidates"])
    assert restricted[("zewura",)] > 2_800
    assert restricted[("zegox",)] > 300


@pytest.mark.slow
def test_wagap_multi_node_jobs_add_up(wagap_log):
    for row in wagap_log.rows["requests"]:
        if row["num_nodes"] > 1:
            assert len(set(row["ran_nodes"])) == row["num_nodes"]
            assert row["cpu_cores"] % len(row["ran_nodes"]) == 0
            assert row["ran_nodes"][0] == row["ran_node"]
        else:
            assert row["ran_nodes"] is None


@pytest.mark.slow
def test_kth(shared_data):
    found = collect(swf, [shared_data / "kth-sp2-1996"])
    assert len(found.rows["requests"]) == 28_481
    assert found.rejects == []
    assert len(set(values(found, "agent"))) == 214
    assert found.rows["requests"][0]["arrival"] == KTH_START
    assert seconds(found, "start", "arrival").mean() == pytest.approx(15_385, abs=1)
    assert found.rows["nodes"][0]["cpu_cores"] == 100.0


def columns(path, origin=None):
    """Arrival and start of a log's requests in seconds, sorted by arrival."""
    chunks = [item for item in swf.read([path], ReadingOptions(origin)) if isinstance(item, Chunk)]
    tables = [chunk.rows for chunk in chunks if chunk.table == "requests"]
    arrival, start = (
        np.concatenate([table[name].cast("int64").to_numpy() for table in tables]) / 1e6
        for name in ("arrival", "start")
    )
    order = np.argsort(arrival, kind="stable")
    return arrival[order], start[order]


@pytest.mark.slow  # the quick one: `test_real_archives` imports one of them
def test_kth_resimulated_has_the_same_jobs_with_other_waits(shared_data):
    original, _ = columns(shared_data / "kth-sp2-1996")
    files = sorted((shared_data / "kth-sp2-resimulated").glob("*.swf.gz"))
    means = {}
    for path in files:
        arrival, start = columns(path, KTH_START)
        assert len(arrival) == 28_481
        np.testing.assert_array_equal(arrival, original)
        name = path.name.removesuffix(".swf.gz")
        assert swf.facts([path])["policy"] == name
        means[name] = (start - arrival).mean()
    assert means["easy"] == pytest.approx(6_837, abs=1)
    assert len(set(means.values())) == 5


@pytest.mark.slow
def test_theta(shared_data):
    found = collect(lumos, [shared_data / "alcf-theta-2023"])
    assert len(found.rows["requests"]) == 14_374
    assert found.rejects == []
    assert np.mean([agent is None for agent in values(found, "agent")]) == pytest.approx(0.42, abs=0.005)
    assert Counter(values(found, "status")) == {"completed": 8_932, "killed": 4_258, "failed": 1_184}
    assert found.rows["nodes"][0]["cpu_cores"] == 4_392 * 64
    assert sum(day >= date(2022, 12, 31) for day in arrival_days(found)) == 126


def test_openb(shared_data):
    found = collect(openb, [shared_data / "openb-2023"])
    assert (len(found.rows["requests"]), len(found.rows["nodes"])) == (8_152, 1_523)
    assert found.rejects == []
    assert sum(start is None for start in values(found, "start")) == 897
    dense = [day for day, num_rows in arrival_days(found).items() if num_rows >= 75]
    assert (min(dense) - date(1970, 1, 1)).days == 115
    assert len(dense) == 34 + 1  # and a last, broken day
    models = Counter(node["gpu_model"] for node in found.rows["nodes"])
    assert models["G2"] == 549


def test_openb_with_gpu_specifications(shared_data):
    folder = shared_data / "openb-2023"
    found = collect(openb, [folder / "openb_pod_list_gpuspec33.csv"])
    restricted = [candidates for candidates in values(found, "candidates") if candidates is not None]
    assert len(restricted) == 8_152 - 5_764
    assert all(restricted)


@pytest.mark.slow
def test_philly(shared_data):
    found = collect(philly, [shared_data / "philly-2017"])
    assert len(found.rows["requests"]) == 77_102
    assert found.rejects == []
    assert len(set(values(found, "queue"))) == 15
    assert set(values(found, "start")) == set(values(found, "finish")) == {None}
    assert min(values(found, "run_s")) == 1.0


@pytest.mark.slow
def test_alibaba(shared_data):
    found = collect(alibaba2018, [shared_data / "alibaba-2018-sample"])
    assert len(found.rows["requests"]) == 20_000 + 19_931
    assert found.rejects == []
    assert len(set(values(found, "request_id"))) == 39_931
    statuses = Counter(values(found, "status"))
    assert (statuses["running"], statuses["failed"]) == (326, 244)
    assert sum(deadline is None for deadline in values(found, "deadline_s")) == 326
    first, second = (values(found, "service")[:20_000], values(found, "service")[20_000:])
    assert np.mean([kind == "1" for kind in first]) == pytest.approx(0.89, abs=0.005)
    assert np.mean([kind == "1" for kind in second]) == pytest.approx(0.82, abs=0.005)
