"""Computing times from logs: known functions are found again, and what a log lacks is named."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import silent
from evaluation.problems.assignment.certifying import _ways
from logs_schema import Archive, ArchiveWriter
from logs_schema.errors import ConfigError
from tests.assignment.archives import write_log
from twin.assignment.compute_times import ISOTONIC, LINEAR, QUADRATIC, ComputeTime, fit_compute_times
from twin.assignment.from_logs import fit_edges, lacking
from twin.assignment.log_day import day_costs
from twin.assignment.ran_requests import never_ran, read_ran

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


def rows(function, num_rows=400, spread=0.1, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.uniform(0.1, 10.0, num_rows)
    return size, function(size) * np.exp(spread * rng.normal(size=num_rows) - 0.5 * spread**2)


def fitted(function, **options) -> ComputeTime:
    size, seconds = rows(function, **options)
    return fit_compute_times(["e"], [None], np.zeros(len(size), int), size, seconds)["e"]


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda size: 0.5 + 2.0 * size, LINEAR),
        (lambda size: 0.2 + 0.1 * size + size**2, QUADRATIC),
        (lambda size: np.where(size < 5.0, 1.0, 8.0), ISOTONIC),
    ],
)
def test_known_functions_are_found_again(function, kind):
    found = fitted(function)
    assert found.kind == kind
    assert found.spread == pytest.approx(0.1, abs=0.03)
    size = np.array([0.5, 2.0, 4.0, 6.0, 9.0])
    assert found.at(size) == pytest.approx(function(size), rel=0.06)


def test_times_are_never_zero_and_constants_stay_constant():
    found = fitted(lambda size: np.full_like(size, 3.0), spread=0.0)
    assert found.at(np.array([0.0, 5.0, 50.0])) == pytest.approx([3.0] * 3, rel=1e-6)
    assert (ComputeTime(LINEAR, (0.0, -1.0), (), (), 0.0, 1, "own").at(np.array([5.0])) > 0.0).all()


def test_an_edge_without_history_has_its_classes_function_or_that_of_all():
    size, seconds = rows(lambda size: size, num_rows=200)
    edge = np.repeat([0, 1], 100)
    seconds[edge == 1] *= 10.0
    found = fit_compute_times(["a", "b", "c", "d"], ["x", "y", "y", None], edge, size, seconds)
    assert [found[name].source for name in "abcd"] == ["own", "own", "class y", "all edges"]
    assert found["c"].at(np.array([2.0])) == pytest.approx(20.0, rel=0.1)
    with pytest.raises(ConfigError, match="too few"):
        fit_compute_times(["a"], [None], edge[:5], size[:5], seconds[:5])


def write(path, **columns) -> Archive:
    num_rows = 60
    size, seconds = rows(lambda size: 1.0 + size, num_rows)
    usual = {
        "request_id": [f"r{row}" for row in range(num_rows)],
        "arrival": [NOON] * num_rows,
        "site": ["s"] * num_rows,
        "input_mib": size,
        "offered_node": ["fast"] * num_rows,
        "start": [NOON] * num_rows,
        "finish": [NOON + dt.timedelta(seconds=one) for one in seconds],
        "status": ["completed"] * num_rows,
    }
    nodes = {"node_id": ["fast", "idle"], "site": ["s", "s"], "tier": ["edge"] * 2, "cpu_cores": [4.0, 2.0]}
    with ArchiveWriter(path) as writer:
        writer.write("nodes", pa.table(nodes), source="the test")
        requests = {name: one for name, one in (usual | columns).items() if one is not None}
        writer.write("requests", pa.table(requests), source="the test")
    return Archive(path)


def test_edges_of_an_archive(tmp_path):
    found = fit_edges(write(tmp_path / "log"))
    assert found.compute["fast"].at(np.array([4.0])) == pytest.approx(5.0, rel=0.1)
    assert found.replicas == {"fast": 4, "idle": 2}
    assert (found.size, found.num_rows) == ("input_mib", 60)
    assert found.notes == ("idle: too few requests of their own, so the function of all edges",)


def test_cores_stand_for_sizes_where_there_are_none(tmp_path):
    found = fit_edges(write(tmp_path / "log", input_mib=None, cpu_cores=[2.0] * 30 + [4.0] * 30))
    assert found.size == "cpu_cores"
    assert any("stands for the size" in note for note in found.notes)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"input_mib": None}, "no size"),
        ({"offered_node": None}, "no node that ran"),
        ({"finish": None, "start": None}, "no time that they took"),
    ],
)
def test_what_a_log_lacks_is_named(tmp_path, columns, words):
    archive = write(tmp_path / "log", **columns)
    assert words in lacking(archive)
    with pytest.raises(ConfigError, match=words):
        fit_edges(archive)


def test_what_a_function_leaves_is_kept_whatever_its_law():
    """Times that are twice or half of the function, one in two each: no lognormal."""
    size = np.linspace(1.0, 2.0, 400)
    seconds = size * np.where(np.arange(400) % 2 == 0, 2.0, 0.5)
    found = fit_compute_times(["e"], [None], np.zeros(400, int), size, seconds)["e"]
    assert found.spread == pytest.approx(np.log(2.0), rel=0.05)
    noise = found.noise(np.random.default_rng(0).random(20_000))
    assert noise.mean() == pytest.approx(1.0, rel=0.05)
    assert (noise.min(), noise.max()) == pytest.approx((0.4, 1.6), rel=0.1)
    assert found.inside(seconds, size).mean() > 0.85
    assert not found.inside(10.0 * size, size).any()
    assert (ComputeTime(LINEAR, (0.0, 1.0), (), (), 0.0, 1, "own").noise(np.array([0.1, 0.9])) == 1.0).all()


def test_a_later_log_without_inputs_is_judged_without_their_ways(tmp_path):
    """The ways of a log stay with its twin; later requests that tell no input have none."""
    edges = fit_edges(Archive(write_log(tmp_path / "log", cpu_cores=np.ones(90))), size="cpu_cores")
    assert edges.ways
    later = Archive(write_log(tmp_path / "later", cpu_cores=np.ones(90), input_mib=None))
    rows = read_ran(later, edges.names)
    costs = day_costs(edges, rows)
    assert costs.transfer_s.shape == (90, 3)
    assert not costs.transfer_s.any()
    lines = _ways(edges, later, rows, np.zeros(90, int), CertifyConfig())
    assert lines
    assert all(silent(line) for line in lines)


def test_requests_that_hold_no_cores_leave_an_edge_its_replicas(tmp_path):
    cores = np.where(np.arange(90) < 60, 0.0, 2.0)
    edges = fit_edges(Archive(write_log(tmp_path / "log", cpu_cores=cores)))
    assert set(edges.replicas.values()) == {2}


def test_nodes_without_cores_serve_as_many_requests_at_once_as_they_did(tmp_path):
    edges = fit_edges(Archive(write_log(tmp_path / "log", cores=0.0)))
    rows = read_ran(Archive(tmp_path / "log"), ("n0", "n1", "n2"))
    begin_s, end_s = rows.arrival_s + rows.delay_s, rows.arrival_s + rows.delay_s + rows.seconds
    for index, name in enumerate(("n0", "n1", "n2")):
        mine = rows.edge == index
        at_once = [np.sum((begin_s <= one) & (end_s > one) & mine) for one in begin_s[mine]]
        assert edges.replicas[name] == max(at_once) > 1
    assert any("no node has any cores" in note for note in edges.notes)
    assert set(fit_edges(Archive(write_log(tmp_path / "known"))).replicas.values()) == {4}


def test_a_column_of_zeros_is_no_size(tmp_path):
    edges = fit_edges(Archive(write_log(tmp_path / "log", input_mib=np.zeros(90), cpu_cores=np.ones(90))))
    assert any(note.startswith("the log has no input_mib: cpu_cores stands") for note in edges.notes)
    assert "inf" not in " ".join(edges.notes)


def test_services_that_run_on_some_edges_alone_are_named_where_no_candidates_are(tmp_path):
    """Of two services each on an edge of its own half never ran beside the other, all else equal."""
    service = ["a", "b"] * 30
    apart = {"service": service, "offered_node": ["fast", "idle"] * 30}
    (note,) = (one for one in fit_edges(write(tmp_path / "few", **apart)).notes if "candidates" in one)
    assert "a on idle, b on fast" in note
    rows = read_ran(Archive(tmp_path / "few"), ["fast", "idle"])
    assert never_ran(rows, 2, least=15.1) == []  # half of 30 were to be expected
    assert never_ran(rows._replace(hosts=np.ones((60, 2), bool)), 2) == []
    apart_sites = np.where(rows.service == "a", "s", "t")
    assert never_ran(rows._replace(site=apart_sites), 2) == []  # each site keeps to an edge of its own
    mixed = fit_edges(write(tmp_path / "mixed", service=service, offered_node=["fast"] * 30 + ["idle"] * 30))
    assert not any("candidates" in one for one in mixed.notes)
    with ArchiveWriter(tmp_path / "mixed", append=True) as writer:
        replicas = {"time": [NOON], "service": ["a"], "node_id": ["fast"], "num_replicas": [1]}
        writer.write("replicas", pa.table(replicas), source="the test")
    (hosted,) = (one for one in fit_edges(Archive(tmp_path / "mixed")).notes if "candidates" in one)
    assert "as the table replicas says" in hosted
