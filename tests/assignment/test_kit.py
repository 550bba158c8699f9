"""The kit, from a tiny log to a bundle; what its certificate, ladder and comparison say of systems that are known."""

import dataclasses
import datetime as dt
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation import SlotPolicies, UnitValues, compare, shifted_days
from evaluation.commands.cli import main
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison
from evaluation.jobs.unfinished import NOTHING_KEPT
from evaluation.problems.assignment.kit import ASSIGNMENT_KIT
from evaluation.problems.assignment.shifted_rounds import busiest
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import ExportOptions
from logs_schema import Archive
from logs_schema.errors import ConfigError
from offline_rl.assignment.assigner import SEARCH, Assigner, AssignerSetting, load_assigner
from offline_rl.assignment.config import AssignConfig
from offline_rl.assignment.rungs import SEARCHED, climb
from offline_rl.serving.assigning import assign
from tests.assignment.archives import SPREAD, write_log
from tests.assignment.making import drawn, plain_costs
from twin import fit
from twin.assignment.from_logs import fit_edges
from twin.assignment.objective import makespan_s
from twin.assignment.persistence import load_edges, save_edges

TOML = """
[days]
num_days = 2
[assign]
interval_s = 6.0
num_requests = 6
seeds = [3]
num_held_out = 8
search_s = 0.01
max_requests = 60
copies = 2
[assign.learning]
num_updates = 0
batch = 2
num_samples = 2
[shifts]
shifts = "0d,2d"
min_requests = 20
max_width_days = 1
[certify]
min_rows = 100
num_replicates = 200
[intervals]
num_replicates = 200
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Log, configuration and every product but the bundle, by the commands."""
    folder = tmp_path_factory.mktemp("kit")
    paths = {name: folder / name for name in ("log", "twin", "policy", "comparison")}
    write_log(paths["log"], num_days=5, num_rows=120)
    (folder / "tiny.toml").write_text(TOML)
    tiny = ["--config", str(folder / "tiny.toml"), "--no-progress"]
    log, twin, policy, comparison = map(str, paths.values())
    assert main(["fit", log, "--problem", "assignment", "--out", twin, *tiny]) == 0
    main(["certify", twin, log, *tiny])
    assert main(["train", twin, "--out", policy, "--force", *tiny]) == 0
    user = [
        "--policy",
        "mine=tests.assignment.test_kit:first_hosting",
        "--policy",
        "wrong=tests.assignment.test_kit:none",
        "--policy",
        "gone=no/such/bundle",
        "--judge",
        "work=tests.assignment.test_kit:idle_work",
    ]
    arguments = ["compare", log, twin, policy, "--shifts", "0d,2d", "--out", comparison, *user, *tiny]
    assert main(arguments) == 2  # two of the user's policies are refused
    return paths


def idle_work(solve, days):
    """Mean work of rounds of six of the day's requests, all edges idle."""
    every = days.history().costs
    means = []
    for first in range(0, 60, 6):
        rows = slice(first, first + 6)
        parts = {name: getattr(every, name)[rows] for name in ("work_s", "transfer_s", "result_s", "source")}
        costs = every._replace(**parts)
        means.append(costs.work_s[np.arange(6), solve(costs)].mean())
    return UnitValues({"mean_response": np.array(means)})


def first_hosting(costs):
    return np.argmax(np.isfinite(costs.work_s), axis=1)


def none(costs):
    return np.zeros(0)


def test_a_twin_knows_the_laws_of_its_log(made):
    edges = load_edges(made["twin"])
    assert [edges.compute[name].at(np.array([2.0]))[0] for name in edges.names] == pytest.approx(
        [2, 4, 6], rel=0.1
    )
    assert [one.spread for one in edges.compute.values()] == pytest.approx([SPREAD] * 3, abs=0.05)
    assert edges.ways["a"]["b"].at(np.array([1.0, 3.0])) == pytest.approx([0.1, 0.1], abs=0.02)
    assert (edges.size, edges.sites["n2"], edges.per_s) == ("input_mib", "b", pytest.approx(1 / 30, rel=0.01))


def test_a_twin_is_read_as_it_was_written(made, tmp_path):
    edges = load_edges(made["twin"])
    save_edges(tmp_path, edges)
    assert load_edges(tmp_path) == edges


def test_a_certificate_passes_what_is_right_and_fails_what_has_changed(made, tmp_path):
    found = json.loads((made["twin"].with_name("twin.certificate") / "certificate.json").read_text())
    lines = {line["name"]: line["verdict"] for line in found["lines"]}
    assert lines["computing on all edges, off by"] == "pass"
    assert "fail" not in lines.values()
    later = write_log(tmp_path / "log", num_days=5, num_rows=120, slower=1.6)
    archive = Archive(later)
    certifier = ASSIGNMENT_KIT.certifier(made["twin"], None)
    config = dataclasses.replace(RunConfig().certify, min_rows=100, num_replicates=200)
    last = archive.days("requests")[-1]
    certificate = certifier.certify(archive, [last], config, None, NOTHING_KEPT)
    verdicts = {line.name: line.verdict.value for line in certificate.lines}
    assert certificate.verdict.value == "fail"
    assert verdicts["computing on all edges, off by"] == "fail"
    assert verdicts["way from a to b, off by"] == "pass"
    with pytest.raises(ConfigError, match="overlap the training window"):
        certifier.certify(archive, [archive.days("requests")[0]], config, None, NOTHING_KEPT)
    with pytest.raises(ConfigError, match="too few requests"):
        certifier.certify(archive, [dt.date(2025, 1, 1)], config, None, NOTHING_KEPT)
    assert certifier.refused(ConfigError("no such day"), archive, config).refusal == "no such day"


@pytest.fixture
def job(made, tmp_path):
    """The configuration of a whole job, its log two files of this project's format."""
    log = Archive(made["log"])
    for name in ("nodes", "requests"):
        table = log.nodes() if name == "nodes" else log.read(name)
        pq.write_table(table, tmp_path / f"{name}.parquet")
    paths = '["nodes.parquet", "requests.parquet"]'
    (tmp_path / "tiny.toml").write_text(f'{TOML}[log]\nformat = "native"\npaths = {paths}\n')
    return tmp_path / "tiny.toml"


def test_one_command_makes_the_whole_job_and_holds_back_what_is_not_certified(job, capsys):
    words = ["run", str(job), "--out", str(job.with_name("job")), "--no-progress"]
    assert main([*words, "--json"]) in (3, 4)
    told = json.loads(capsys.readouterr().out)
    assert {"archive", "twin", "certificate", "comparison"} <= set(told)
    assert not {"policy", "bundle"} & set(told)
    assert main([*words, "--force", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert load_assigner(f"{told['bundle']}/bundle").setting.network == SEARCH
    assert "network" in {one["name"] for one in told["comparison_data"]["policies"]}
    assert main([*words, "--force"]) == 0
    assert "edges, " in capsys.readouterr().out.split("report: ")[1]  # what training says


def test_a_refresh_appends_judges_and_decides(job, capsys):
    more = write_log(job.with_name("more"), num_days=7, num_rows=120)
    days = Archive(more).days("requests")
    pq.write_table(Archive(more).read("requests", days=days[5:]), job.with_name("new.parquet"))
    words = [
        "refresh",
        str(job),
        "--problem",
        "assignment",
        "--log",
        str(job.with_name("new.parquet")),
        "--force",
    ]
    words += ["--work", str(job.with_name("work")), "--accept", "not-worse", "--no-progress", "--json"]
    # Certified on too few requests: without a running policy nothing is exported
    assert main(words) in (
        11,
        12,
    )
    told = json.loads(capsys.readouterr().out)
    assert told["history"]["requests_added"] == 240
    assert told["judged_days"] == [day.isoformat() for day in days[5:]]
    candidate = job.with_name("work") / "refresh" / "candidate" / "bundle"
    assert main([*words, "--bundle", str(candidate)]) == 0  # the same scheduler is not worse than itself
    told = json.loads(capsys.readouterr().out)
    assert [one["judge"] for one in told["judgements"]] == ["twin of shifted days"]
    assert told["judgements"][0]["difference"]["value"] == 0.0
    assert load_assigner(told["bundle"]).setting.network == SEARCH
    fleet = job.with_name("fleet.toml")
    cluster = {
        "name": "edge",
        "config": job.name,
        "log": "new.parquet",
        "work": "work",
        "problem": "assignment",
    }
    fleet.write_text("\n".join(["[[clusters]]", *(f'{key} = "{value}"' for key, value in cluster.items())]))
    overdue = 13  # the fleet never refreshed it
    assert main(["fleet", "status", str(fleet), "--no-progress", "--json"]) == overdue
    (state,) = json.loads(capsys.readouterr().out)["clusters"]
    assert not state["trouble"]
    assert state["running"]["problem"] == "assignment"
    assert state["running"]["last_day"] == days[4].isoformat()
    assert main(["fleet", "prune", str(fleet), "--all", "--no-progress", "--json"]) == 0
    (planned,) = json.loads(capsys.readouterr().out)["clusters"]
    fates = {one["path"].removeprefix(f"{job.with_name('work')}/"): one for one in planned["entries"]}
    assert not fates["refresh/bundle"]["goes"]


def test_a_job_on_a_log_of_another_problem_names_what_is_missing(job, capsys):
    job.write_text(job.read_text().replace("[assign]", "[orchestration]\n[assign]"))
    words = ["run", str(job), "--out", str(job.with_name("job")), "--no-progress"]
    assert main(words) == 2
    assert "the log does not support the problem 'orchestration'" in capsys.readouterr().err


def test_a_log_without_ways_has_no_lines_of_them(tmp_path):
    log = write_log(tmp_path / "log", num_days=2, num_rows=120, input_mib=None, requested_run_s=[5.0] * 240)
    edges = fit_edges(Archive(log), Archive(log).days("requests")[:1])
    assert edges.ways == {}
    assert any("requested_run_s stands for the size" in note for note in edges.notes)


def test_rounds_on_shifted_days_are_judged_with_what_users_bring(made):
    found = Comparison.from_json(json.loads((made["comparison"] / "comparison.json").read_text()))
    assert {(cell.judge, cell.shift_days) for cell in found.cells} == {
        ("twin of shifted days", 0),
        ("twin of shifted days", 2),
        ("work", 0),
        ("work", 2),
    }
    alone = {one.name: found.cell("work", 2, one.name, "mean_response") for one in found.policies}
    assert {name for name, one in alone.items() if one is None} == {
        "history", "local", "at_once", "insertion_at_once",
    }  # fmt: skip
    assert alone["insertion"].value < alone["random_1"].value
    assert alone["insertion"].low is not None
    assert [one.name for one in found.policies] == [
        "history", "local", "at_once", "insertion_at_once", "random_1", "random_100", "insertion", SEARCHED, "network",
        "mine",
    ]  # fmt: skip
    assert set(found.refused) == {"wrong", "gone"}
    assert "no/such/bundle" in found.refused["gone"]
    assert "float64 [0]" in found.refused["wrong"]
    judge = found.judges[0].name
    value = {one.name: found.cell(judge, 2, one.name, "mean_response").value for one in found.policies}
    assert value["at_once"] < min(value["history"], value["mine"], value["random_1"])
    assert value["insertion"] < value["random_1"]
    last = {one.name: found.cell(judge, 2, one.name, "last_answer").value for one in found.policies}
    assert all(last[name] > 0.0 for name in last)
    notes = " ".join(found.notes)
    assert "predicted: not applicable" in notes
    assert "the log was not simulated" in notes
    assert any("the busiest 60 of 120 requests" in shift.note for shift in found.shifts)
    assert (made["comparison"] / "report.html").is_file()


def test_schedulers_of_ones_own_are_compared_from_python_too(made):
    split = shifted_days(Archive(made["log"]), "0d", num_days=2, min_requests=20)
    policies = {"mine": first_hosting, "wrong": none, "pair": SlotPolicies()}
    found = compare(
        policies, fit("assignment", split.train), split.test, judges={"work": idle_work},
        assign=AssignConfig(interval_s=6.0, num_requests=6, max_requests=60, copies=1),
        intervals=IntervalConfig(num_replicates=200),
    ).comparison  # fmt: skip
    assert set(found.refused) == {"wrong", "pair"}
    assert "a function (costs) -> edges" in found.refused["pair"]
    for judge in ("twin of shifted days", "work"):
        assert found.cell(judge, 0, "mine", "mean_response").value > 0.0
    with pytest.raises(ConfigError, match="'truth' is taken by a judge"):
        compare({}, fit("assignment", split.train), split.test, judges={"truth": idle_work})


def test_what_won_is_exported_served_and_inspected(made, tmp_path, capsys):
    bundle = str(tmp_path / "bundle")
    assert main(["export", str(made["policy"]), "--out", bundle]) == 0
    assert SEARCHED in capsys.readouterr().out  # an untrained network wins nothing
    assigner = load_assigner(bundle)
    assert assigner.setting.network == SEARCH
    costs = drawn(0, 3, 9).costs
    assert makespan_s(costs, assigner.assign(costs)) > 0.0
    content = {
        "edges": [{"name": "x", "compute": [0.0, 1.0]}, {"name": "y", "compute": [0.0, 1.0]}],
        "requests": [{"request_id": str(row), "input_mib": 1.0} for row in range(4)],
    }
    answer = assign(content, assigner)
    assert answer["makespan_s"] == pytest.approx(2.0)
    assert answer["outside"]["requests"] == pytest.approx(4 / 6)
    twin = load_edges(made["twin"])
    known, name = assigner.setting.edges, twin.names[0]
    assert set(known.edges) == set(twin.names)
    alone = {"edges": [{"name": name}], "requests": [{"request_id": "1", "input_mib": 2.0, "source": name}]}
    expected_s = float(twin.compute[name].at(np.array(2.0))) / twin.replicas[name]
    assert assign(alone, assigner)["makespan_s"] == pytest.approx(expected_s)
    assert main(["inspect", bundle]) == 0
    assert "no trained network beat" in capsys.readouterr().out
    assert (
        main(["export", str(made["policy"]), "--out", str(tmp_path / "network"), "--policy", "network"]) == 0
    )
    assert load_assigner(tmp_path / "network").setting.network == "priced"
    assert "NumPy and ONNX" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "network"), "--backend", "onnx"]) == 0
    assert "golden rounds, by onnx" in capsys.readouterr().out
    assert main(["inspect", bundle, "--backend", "onnx"]) == 2
    assert "no ONNX copy" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"no scheduler 'network-9'[\s\S]*without --policy and --seed"):
        ASSIGNMENT_KIT.export(tmp_path / "no", made["policy"], ExportOptions(seed=9))
    with pytest.raises(ConfigError, match="the ladder of the training"):
        ASSIGNMENT_KIT.export(tmp_path / "no", made["policy"], ExportOptions(rule="fcfs"))


class Fixed(Assigner):
    """Answers as it is told."""

    def __init__(self, edge):
        super().__init__(AssignerSetting(6, 2), {})
        self.edge = edge

    def assign(self, costs, search=None, rng=None):
        return np.array(self.edge)


def test_a_rung_is_taken_only_if_it_is_better_with_confidence():
    """Two requests of 1 s and 3 s on two equal edges: 3 s at best, 4 s on one of them."""
    costs = plain_costs([[1.0, 1.0], [3.0, 3.0]])
    rounds = type(costs)(*(np.stack([leaf] * 12) for leaf in costs))
    chosen, rungs = climb({"network-0": Fixed([0, 1])}, rounds, 0.001, 0.95)
    assert (chosen, rungs["network-0"].over_search, rungs["network-0"].high) == (SEARCHED, 1.0, 1.0)
    chosen, rungs = climb({"network-0": Fixed([0, 0])}, rounds, 0.001, 0.95)
    assert (chosen, rungs["network-0"].over_search) == (SEARCHED, pytest.approx(4 / 3))
    assert climb({}, rounds, 0.001, 0.95)[0] == SEARCHED


def test_a_better_network_is_handed_over(monkeypatch):
    """Where the search finds 4 s, whoever finds 3 s wins; the better of two is tested on the other rounds."""
    monkeypatch.setattr("offline_rl.assignment.rungs.improve", lambda costs, *_: np.zeros(2, int))
    costs = plain_costs([[1.0, 1.0], [3.0, 3.0]])
    rounds = type(costs)(*(np.stack([leaf] * 12) for leaf in costs))
    chosen, rungs = climb({"network-0": Fixed([0, 0]), "network-1": Fixed([0, 1])}, rounds, 0.001, 0.95)
    assert chosen == "network-1"
    assert rungs["network-1"].high == pytest.approx(0.75)
    assert rungs["network-1"].num_rounds == 6
    assert not rungs["network-0"].is_better


def test_the_busiest_stretch_is_the_densest():
    arrival_s = np.array([0.0, 10.0, 11.0, 12.0, 30.0])
    assert busiest(arrival_s, 3).tolist() == [1, 2, 3]
    assert busiest(arrival_s, 9).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interval_s": 0.0}, "rounds every"),
        ({"num_held_out": 3}, "rounds of"),
        ({"level": 0.3}, "level"),
        ({"copies": 0}, "1 or more"),
    ],
)
def test_impossible_settings_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        AssignConfig(**options)


def test_another_systems_log_is_refused(made, tmp_path):
    log = write_log(tmp_path / "log", num_days=5, num_rows=60)
    with pytest.raises(ConfigError, match="fitted on another archive"):
        ASSIGNMENT_KIT.refuse_other_system(Archive(log), made["twin"])


@pytest.mark.slow
def test_from_a_simulated_log_to_a_bundle_the_truth_beside_the_twin(tmp_path):
    log, twin, policy, comparison, bundle = (str(tmp_path / name) for name in "ltpcb")
    (tmp_path / "tiny.toml").write_text(TOML.replace("interval_s = 6.0", "interval_s = 60.0"))
    tiny = ["--config", str(tmp_path / "tiny.toml"), "--no-progress"]
    assert main(["simulate", "--preset", "small", "--days", "6", "--out", log, "--no-progress"]) == 0
    assert main(["fit", log, "--problem", "assignment", "--out", twin, *tiny]) == 0
    assert load_edges(tmp_path / "t").size == "requested_run_s"
    assert main(["certify", twin, log, *tiny]) in (0, 4)
    assert main(["train", twin, "--out", policy, "--force", *tiny]) == 0
    assert main(["compare", log, twin, policy, "--out", comparison, *tiny]) == 0
    found = Comparison.from_json(json.loads((tmp_path / "c" / "comparison.json").read_text()))
    assert {cell.judge for cell in found.cells} == {"twin of shifted days", "truth"}
    assert [one.num_policies for one in found.trust] == [len(found.policies)] * 2
    for judge in ("truth", "twin of shifted days"):
        value = {one.name: found.cell(judge, 0, one.name, "mean_response").value for one in found.policies}
        assert value["at_once"] < value["random_100"] < value["random_1"]
    assert main(["export", policy, "--out", bundle]) == 0
    assert load_assigner(bundle).setting.trained_on["size"] == "requested_run_s"
