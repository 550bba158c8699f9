"""`schedtwin assign train`: from a log to a bundle; rounds that are like the log."""

import json
from dataclasses import replace

import numpy as np
import pytest

from evaluation.commands.cli import main
from logs_schema.errors import ConfigError
from offline_rl.assignment import training
from offline_rl.assignment.assigner import load_assigner
from offline_rl.assignment.config import LearningConfig
from tests.assignment.archives import write_log
from twin.assignment.checking import refuse_bad_costs
from twin.assignment.compute_times import ISOTONIC, LINEAR, ComputeTime
from twin.assignment.from_logs import EdgesFromLog
from twin.assignment.log_rounds import LogRounds, LogRoundsConfig
from twin.assignment.objective import makespan_s
from twin.assignment.types import row_of

QUICK_EDGE = ComputeTime(LINEAR, (0.0, 1.0), (), (), 0.1, 50, "own")
SLOW_EDGE = ComputeTime(ISOTONIC, (), (1.0, 3.0), (10.0, 30.0), 0.1, 50, "own")
EDGES = EdgesFromLog(
    {"quick": QUICK_EDGE, "slow": SLOW_EDGE, "wide": QUICK_EDGE},
    {"quick": 1, "slow": 2, "wide": 4},
    "input_mib",
    (1.0, 2.0, 3.0),
    150,
    (),
)


def test_rounds_are_those_of_the_log():
    rounds = LogRounds(EDGES, LogRoundsConfig(num_requests=40, num_edges=3, backlogs=(0, 0), ways=(1.0, 1.0)))
    costs = rounds.draw(np.random.default_rng(0), 50)
    assert costs.work_s.shape == (50, 40, 3)
    for row in range(50):
        refuse_bad_costs(row_of(costs, row))
    assert (costs.local_s == 0.0).all()
    size = costs.work_s.max(axis=-1) / 5.0  # the slow edge: ten times the size over two replicas
    assert np.sort(costs.work_s, axis=-1) == pytest.approx(np.stack([size / 4.0, size, 5.0 * size], -1))
    assert (size.min(), size.mean(), size.max()) == pytest.approx((1.0, 2.0, 3.0), abs=0.05)
    slowest = costs.work_s.mean(axis=1).argmax(axis=-1)
    assert set(slowest.tolist()) == {0, 1, 2}  # the log's edges stand in any order
    of_source = np.take_along_axis(costs.transfer_s, costs.source[..., None], -1)
    assert (of_source == 0.0).all()
    assert costs.transfer_s.max() > 0.5


def test_backlogs_and_ways_follow_their_laws():
    config = LogRoundsConfig(num_requests=2, num_edges=2, backlogs=(3, 3), ways=(0.01, 1.0))
    costs = LogRounds(EDGES, config).draw(np.random.default_rng(0), 400)
    mean_s = np.mean(2.0 * np.array([1.0, 5.0, 0.25]))  # of a request on an edge
    assert costs.local_s.mean() == pytest.approx(3.0 * mean_s, rel=0.1)
    assert costs.transferred_s.mean() == pytest.approx(3.0 * mean_s, rel=0.1)
    longest = np.log10(costs.transfer_s.max(axis=(1, 2)) + 1e-9)
    assert np.ptp(longest) > 1.5  # from hardly any ways to long ones
    assert (costs.returning_s >= 0.0).all()
    assert np.median(costs.arriving_s) > 0.0


@pytest.mark.parametrize(
    "wrong",
    [{"num_requests": 0}, {"num_edges": 1}, {"backlogs": (3, 2)}, {"ways": (0.0, 1.0)}, {"num_edges": 4}],
)
def test_impossible_rounds_are_refused(wrong):
    with pytest.raises(ConfigError, match="rounds of a log"):
        LogRounds(EDGES, LogRoundsConfig(**wrong))


def test_the_command_trains_and_exports(tmp_path, capsys, monkeypatch):
    tiny = LearningConfig(0, 4, 2, 1e-3)  # no updates: training is the business of slow tests
    monkeypatch.setattr(
        training,
        "quick",
        lambda config: replace(
            config, num_requests=config.num_requests or 8, learning=tiny, num_held_out=4, search_s=0.01
        ),
    )
    log, out = write_log(tmp_path / "log"), tmp_path / "bundle"
    asked = ["assign", "train", "--archive", str(log), "--out", str(out), "--quick", "--no-progress"]
    assert main([*asked, "--json", "--requests", "6"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["source"] for one in found["edges"].values()} == {"own"}
    assert found["edges"]["n2"]["coefficients"][1] == pytest.approx(3.0, rel=0.15)
    assert (found["num_requests"], found["num_edges"], found["num_rows"]) == (6, 3, 90)
    assert 0.5 < found["tried"]["network-0"]["over_search"] < 1.5
    assigner = load_assigner(out, expect=found["content_hash"])
    costs = row_of(LogRounds(EDGES, LogRoundsConfig(6)).draw(np.random.default_rng(1), 1), 0)
    assert makespan_s(costs, assigner.assign(costs)) > 0.0
    assert main(["inspect", str(out), "--expect", found["content_hash"]]) == 0
    shown = capsys.readouterr().out
    assert "rounds of 6 requests and 3 edges" in shown
    assert "16 golden rounds" in shown
    assert "input_mib" in shown
    assert main(["inspect", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["setting"]["num_edges"] == 3
    assert main(["inspect", str(out), "--backend", "onnx"]) == (0 if found["chosen"] == "network-0" else 2)
    capsys.readouterr()
    assert main(asked) != 0  # the bundle is there
    assert str(out) in capsys.readouterr().err
    assert main([*asked, "--replace"]) == 0
    shown = capsys.readouterr().out
    assert "rounds of 8 requests and 3 edges" in shown
    assert f"handed over: {found['chosen']}" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--requests", "0"], "1 request or more"),
        (["--edges", "9"], "2 to 3"),
        (["--updates", "-1"], "0 or more"),
    ],
)
def test_bad_input_is_refused_in_words(tmp_path, capsys, options, words):
    log = write_log(tmp_path / "log")
    asked = [
        "assign",
        "train",
        "--archive",
        str(log),
        "--out",
        str(tmp_path / "out"),
        "--quick",
        "--no-progress",
    ]
    assert main([*asked, *options]) != 0
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_quick_bundle_is_as_good_as_local_search_in_equal_time(tmp_path, capsys):
    log = write_log(tmp_path / "log")
    asked = ["assign", "train", "--archive", str(log), "--out", str(tmp_path / "out"), "--quick", "--json"]
    assert main([*asked, "--no-progress"]) == 0
    assert json.loads(capsys.readouterr().out)["tried"]["network-0"]["over_search"] < 1.05
