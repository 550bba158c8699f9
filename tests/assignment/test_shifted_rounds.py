"""A shifted day as rounds: whose functions are believed, whose are judged by, and the world that wrote the log."""

import datetime as dt
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from evaluation.comparison.decisions import plain_decisions
from evaluation.problems.assignment.comparing import LAST_ANSWER, usual_sites
from evaluation.problems.assignment.shifted_rounds import absences_of, day_model, modelled, shifted_requests
from evaluation.simulator.conditions import conditions
from evaluation.simulator.options import Declared
from evaluation.simulator.presets import preset
from evaluation.simulator.true_rounds import true_times, unknown_truth
from evaluation.simulator.world_files import facts_of
from logs_schema import Archive, ArchiveWriter
from logs_schema.errors import ConfigError
from tests.assignment.archives import S_PER_MIB, write_log
from twin.assignment.from_logs import fit_edges, with_newcomers
from twin.assignment.log_day import day_costs
from twin.assignment.ran_requests import RanRequests, read_ran, take
from twin.assignment.ways import Way, between, way_s


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return Archive(
        write_log(tmp_path_factory.mktemp("regions") / "log", num_days=3, num_rows=150, slower=2.0)
    )


def test_the_judge_has_the_functions_of_its_day_and_the_scheduler_those_of_training(log):
    days = log.days("requests")
    edges = fit_edges(log, days[:2])
    shift = shifted_requests(log, edges, days[2:], 1000)
    day, notes = day_model(log, edges, days[2:])
    assert notes == []
    region = modelled(shift, day, np.random.default_rng(0))
    size = shift.rows.sizes["input_mib"]
    believed = region.expected.work_s * region.replicas / size[:, None]
    assert believed.mean(axis=0) == pytest.approx(S_PER_MIB, rel=0.1)
    true = region.true_s / size[:, None]
    assert true.mean(axis=0) == pytest.approx([2.0 * one for one in S_PER_MIB], rel=0.1)
    assert np.std(np.log(true), axis=0) == pytest.approx([0.2] * 3, abs=0.07)
    assert region.arrival_s[:3].tolist() == [0.0, 2.0, 4.0]


def test_an_edge_that_a_day_does_not_use_keeps_the_twins_function(log, tmp_path):
    edges = fit_edges(log)
    write_log(tmp_path / "log", num_days=1, num_rows=90, offered_node=["n0", "n1"] * 45)
    day, notes = day_model(Archive(tmp_path / "log"), edges, Archive(tmp_path / "log").days("requests"))
    assert day.compute["n2"] == edges.compute["n2"]
    assert day.compute["n0"] != edges.compute["n0"]
    assert notes == ["n2: too few requests of these days, so the judge keeps the twin's function"]


def test_an_edge_that_was_not_there_in_training_has_its_classes_function(log, tmp_path):
    edges = fit_edges(log)
    more = {
        "node_id": ["n0", "n1", "n2", "n3"],
        "site": ["a", "b", "b", "c"],
        "tier": ["edge"] * 4,
        "cpu_cores": [4.0] * 3 + [2.0],
    }
    with ArchiveWriter(tmp_path / "log") as writer:
        writer.write("nodes", pa.table(more), source="the test")
        writer.write("requests", log.read("requests"), source="the test")
    found, notes = with_newcomers(edges, Archive(tmp_path / "log"))
    assert notes == ["n3: not there in training, so the function of all edges"]
    assert found.names == ("n0", "n1", "n2", "n3")
    assert (found.replicas["n3"], found.sites["n3"]) == (2, "c")
    assert found.compute["n3"] == edges.fallbacks["all edges"]
    assert with_newcomers(edges, log) == (edges, [])
    shift = shifted_requests(Archive(tmp_path / "log"), found, log.days("requests")[2:], 50)
    assert shift.costs.work_s.shape == (50, 4)
    abroad = between(edges.ways, "a", "b"), between(edges.ways, "b", "a")
    mean_s = np.mean([one.at(shift.rows.sizes["input_mib"]) for one in abroad], axis=0)
    assert shift.costs.transfer_s[:, 3] == pytest.approx(mean_s)  # as between the sites that are known


def test_candidates_and_ways_are_part_of_the_costs(log, tmp_path):
    edges = replace(fit_edges(log), ways={"a": {"a": Way(0.1, 0.0, 9, "own"), "b": Way(1.0, 0.5, 9, "own")}})
    write_log(tmp_path / "log", num_rows=40, candidates=[["n1"]] * 40, site=["a"] * 40, output_mib=[2.0] * 40)
    rows = read_ran(Archive(tmp_path / "log"), edges.names)
    costs = day_costs(edges, rows)
    assert np.isfinite(costs.work_s).tolist() == [[False, True, False]] * 40
    size = rows.sizes["input_mib"]
    assert costs.transfer_s == pytest.approx(
        np.stack([np.full(40, 0.1), 1 + 0.5 * size, 1 + 0.5 * size], axis=1)
    )
    assert costs.result_s == pytest.approx(np.tile([0.1, 2.0, 2.0], (40, 1)))
    assert (way_s({}, rows.site, ["a"], size) == 0.0).all()


def test_absences_of_an_edge_are_those_of_its_samples(tmp_path):
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    write_log(tmp_path / "plain", num_rows=30)
    seconds, there = [0, 10, 20, 30, 40], [True, False, False, True, False]
    samples = {
        "time": [noon + dt.timedelta(seconds=one) for one in seconds],
        "node_id": ["n1"] * 5,
        "available": there,
    }
    plain = Archive(tmp_path / "plain")
    with ArchiveWriter(tmp_path / "log") as writer:
        writer.write("nodes", plain.nodes(), source="the test")
        writer.write("requests", plain.read("requests"), source="the test")
        writer.write("node_samples", pa.table(samples), source="the test")
    found = absences_of(Archive(tmp_path / "log"), ["n0", "n1"], [noon.date()], noon.timestamp() + 5.0)
    assert [(one.edge, one.from_s, one.to_s) for one in found] == [
        (1, 5.0, 25.0),
        (1, 35.0, 12 * 3600.0 - 5.0),
    ]
    assert absences_of(plain, ["n0", "n1"], [noon.date()], 0.0) == ()


def test_days_without_requests_say_so(log):
    with pytest.raises(ConfigError, match="no request of these days ran"):
        shifted_requests(log, fit_edges(log), [dt.date(2030, 1, 1)], 10)


def test_agents_that_move_are_expected_where_they_usually_are(tmp_path, log):
    write_log(tmp_path / "log", num_rows=30, agent=["x"] * 20 + ["y"] * 10, site=["a"] * 5 + ["b"] * 25)
    moving = Archive(tmp_path / "log")
    assert usual_sites(moving, moving.days("requests")) == {"x": "b", "y": "b"}
    assert usual_sites(log, log.days("requests")) is None


def test_the_last_answer_of_a_round_counts_from_the_round():
    """Rounds at 0, 10 and 20 s, which end after 4, 7 and 1 s; the first unit holds two of them."""
    begin_s = np.array([0.0, 0.0, 10.0, 20.0, 20.0])
    finish_s = np.array([3.0, 4.0, 17.0, 20.5, 21.0])
    rows = np.zeros(5, int)
    decisions = replace(
        plain_decisions(np.array([0, 0, 0, 1, 1]), rows, rows, begin_s, finish_s), begin_s=begin_s
    )
    found = LAST_ANSWER.statistic(decisions)(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
    assert found == pytest.approx([4.0, 5.5, 1.0])


def test_in_the_world_work_is_what_the_log_shows_times_the_speed_of_its_node():
    world, day = preset("small"), 3
    today, names = conditions(world, day), [one.name for one in world.nodes][::-1]
    service, edge, work_s = np.array([2, 0]), np.array([1, 4]), np.array([30.0, 7.0])
    speed = (today.speed * today.affinity)[service][:, ::-1]  # of the edges in their order
    midnight_s = ((dt.date(2024, 1, 1) - dt.date(1970, 1, 1)).days + day) * 86_400.0
    empty, unknown = np.array(["", ""]), np.full(2, np.nan)
    rows = RanRequests(
        request_id=empty, arrival_s=midnight_s + np.array([5.0, 9.0]), delay_s=unknown,
        seconds=work_s / speed[[0, 1], edge], edge=edge, site=np.array(["south", "north"]), agent=empty,
        service=np.array([world.services[one].name for one in service]), deadline_s=unknown, output_mib=unknown,
        sizes={"input_mib": np.array([10.0, 0.0])}, hosts=None, num_left_out=0,
    )  # fmt: skip
    facts = {"ground_truth": {**facts_of(world), "first_day": "2024-01-01", "behaviour": "mix", "seed": 0}}
    assert unknown_truth(facts) == ""
    found = true_times(facts, rows, names, np.random.default_rng(0))
    assert found.run_s * speed == pytest.approx(np.tile(work_s[:, None], 5))
    almost = SimpleNamespace(uniform=lambda low, high, shape: np.full(shape, 1.0 - 1e-9))
    assert np.isfinite(true_times(facts, rows, names, almost).way_s).all()
    many = take(rows, np.repeat([0, 1], 1000))
    mean = true_times(facts, many, names, np.random.default_rng(0)).way_s.reshape(2, 1000, -1).mean(axis=1)
    link = (0.1 + 10.0 / 8.0, 0.005 + 10.0 / 110.0, 0.025 + 10.0 / 40.0)  # cloud, own site, the other one
    assert mean[0] == pytest.approx([link[0], link[1], link[1], link[2], link[2]], rel=0.02)


def test_a_world_that_hides_what_requests_would_have_taken_is_no_judge():
    hidden = replace(preset("small"), slow_nodes=replace(preset("small").slow_nodes, factor=0.5))
    facts = {"ground_truth": {**facts_of(hidden), "first_day": "2024-01-01", "behaviour": "mix", "seed": 0}}
    assert "hidden changes of speed" in unknown_truth(facts)
    assert unknown_truth({}) == "the log was not simulated"
    killing = replace(preset("small"), declared=Declared(excess=1.5, kills=True))
    facts = {"ground_truth": {**facts_of(killing), "first_day": "2024-01-01", "behaviour": "mix", "seed": 0}}
    assert "runs that are killed" in unknown_truth(facts)
