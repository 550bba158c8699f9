"""`schedtwin order` from the outside, and `schedtwin replay` of some days."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from evaluation.certify.persistence import load_certificate
from evaluation.comparison.products import load_comparison
from logs_schema import Archive
from logs_schema.product import read_manifest
from offline_rl.runner import WaitingJob, load_queue
from tests.command import run

SHORT = ("--processors", 16, "--days", 7, "--shifts", "0d,7d", "--anchors", 2)


@pytest.fixture
def archive(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = ["; UnixStartTime: 1000000000", "; MaxProcs: 16"]
    for job, arrival in enumerate(np.sort(rng.integers(0, 35 * 86_400, 700))):
        asked = int(rng.choice([600, 3600, 36_000], p=[0.5, 0.3, 0.2]))
        ran, width = max(1, int(asked * rng.uniform(0.05, 1.0))), rng.integers(1, 13)
        wait = int(rng.integers(0, 4000))
        lines.append(
            f"{job} {arrival} {wait} {ran} {width} -1 -1 {width} {asked} -1 1 {job % 5} 1 -1 1 -1 -1 -1"
        )
    (tmp_path / "log.swf").write_text("\n".join(lines) + "\n")
    assert run("import", "swf", tmp_path / "log.swf", "--out", tmp_path / "archive", "--no-progress") == 0
    capsys.readouterr()
    return tmp_path / "archive"


@pytest.mark.slow
def test_rules_are_judged_without_training(archive, tmp_path, capsys):
    out = tmp_path / "comparison"
    text = (tmp_path / "log.swf").read_text() + "9999 2999000 0 -7 1 -1 -1 1 600 -1 1 1 1 -1 1 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text(text)
    assert run("import", "swf", tmp_path / "log.swf", "--out", archive, "--replace", "--no-progress") == 0
    (rule,) = Archive(archive).quarantined("requests")
    before = Archive(archive).content_hash
    assert run("compact", archive) == 0
    assert run("order", archive, *SHORT, "--rules-only", "--out", out, "--no-progress") == 0
    assert read_manifest(out).made_from["archive"] == before
    shown = capsys.readouterr().out
    assert "judged by replay" in shown
    assert "the log's mean wait" in shown
    comparison = load_comparison(out)
    assert comparison.main_metric == "bounded_slowdown"
    assert len(comparison.policies) == 19
    assert [policy.name for policy in comparison.policies][-2:] == ["best_rule", "ladder"]
    assert any("ladder of anchor 0:" in note for note in comparison.notes)
    page = (out / "report.html").read_text()
    assert "No row was rejected" not in page
    assert rule in page
    assert "No twin was fitted" not in page  # the judge called training twin plays in those of the users
    assert "What it can support" in page
    assert (out / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_indices_alone_are_judged_at_overlapping_anchors(archive, tmp_path):
    words = ("--processors", 16, "--days", 7, "--shifts", "0d,7d", "--anchors", 6, "--seeds", 2)
    out = tmp_path / "indices"
    assert run("order", archive, *words, "--index-only", "--out", out, "--no-progress") == 0
    comparison = load_comparison(out)
    assert [policy.name for policy in comparison.policies][-1] == "index"
    assert {judge.name for judge in comparison.judges} == {"replay"}
    found = comparison.cell("replay", 7, "index", "bounded_slowdown")
    assert found.value < comparison.cell("replay", 7, "fcfs+easy", "bounded_slowdown").value
    assert found.num_units <= 35 / 3.5  # half weeks of the calendar, however many anchors


@pytest.mark.slow
def test_killed_and_run_again_it_says_the_same_to_the_bit(archive, tmp_path):
    weeks = ("--processors", 16, "--days", 7, "--shifts", "0d", "--anchors", 1)
    words = [*map(str, ("order", archive, *weeks, "--quick", "--no-progress"))]

    def started(out):
        command = [sys.executable, "-m", "evaluation.commands.cli", *words, "--out", str(tmp_path / out)]
        return subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2], stdout=subprocess.DEVNULL)

    assert started("calm").wait() == 0
    units = set()
    for _ in range(2):
        with started("rough") as process:
            before = units
            # Killed in the middle: clones, indices, orders, what they are worth
            while len(units - before) < 5:
                assert process.poll() is None
                units = set(tmp_path.glob(".unfinished-orders-*/[!.]*"))
                time.sleep(0.02)
            assert before <= units
            process.kill()
            assert process.wait() == -signal.SIGKILL
    assert started("rough").wait() == 0
    files = [read_manifest(tmp_path / out).files for out in ("calm", "rough")]
    same = [name for name in files[0] if not name.startswith("report")]  # the reports have other titles
    assert {name: files[0][name] for name in same} == {name: files[1][name] for name in same}
    assert not list(tmp_path.glob(".unfinished*"))


def test_what_cannot_be_is_refused_kindly(archive, capsys):
    assert run("order", archive, "--processors", 16, "--no-progress") == 2
    assert "too few for one anchor" in capsys.readouterr().err
    assert run("replay", archive, "--processors", 16, "--days", "2030-01-01..2030-01-02") == 2
    assert "no job arrives or waits in these days" in capsys.readouterr().err


def test_a_log_without_a_whole_day_says_so(tmp_path, capsys):
    lines = [f"{job} {job * 600} 0 60 1 -1 -1 1 600 -1 1 1 1 -1 1 -1 -1 -1" for job in range(20)]
    (tmp_path / "log.swf").write_text(
        "; UnixStartTime: 1000000000\n; MaxProcs: 16\n" + "\n".join(lines) + "\n"
    )
    assert run("import", "swf", tmp_path / "log.swf", "--out", tmp_path / "archive", "--no-progress") == 0
    assert run("fit", tmp_path / "archive", "--out", tmp_path / "twin", "--no-progress") == 2
    said = capsys.readouterr().err
    assert "where: [days] num_days, [order.weeks]" in said  # not days that the log never had
    assert "allowed: days of the log: no whole day" in said


def test_counts_of_a_replay_are_those_of_its_days(archive, tmp_path, capsys):
    text = (tmp_path / "log.swf").read_text() + "9999 2999000 0 0 1 -1 -1 1 600 -1 1 1 1 -1 1 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text(text)  # it ended within the second, on the last day
    again = tmp_path / "again"
    assert run("import", "swf", tmp_path / "log.swf", "--out", again, "--no-progress") == 0
    capsys.readouterr()
    for days, count in (("2001-09-20..2001-09-27", 0), ("2001-10-10..2001-10-20", 1)):
        assert run("replay", again, "--days", days, "--json", "--no-progress") == 0
        assert json.loads(capsys.readouterr().out)["counts"]["zero_run_time"] == count


def test_some_days_are_replayed(archive, capsys):
    words = (
        "replay",
        archive,
        "--processors",
        16,
        "--days",
        "2001-09-16..2001-09-20",
        "--warm",
        "easy",
        "--json",
    )
    assert run(*words, "--easy", "--no-progress") == 0
    found = json.loads(capsys.readouterr().out)
    assert 50 < found["num_jobs"] < 200


@pytest.mark.slow
def test_a_job_with_a_table_order_trains_judges_and_hands_over(archive, tmp_path, capsys):
    log = archive.parent / "log.swf"
    (tmp_path / "queue.toml").write_text(
        f"""
[log]
format = "swf"
paths = ["{log}"]

[order]
processors = 16
num_twin_weeks = 2

[order.weeks]
num_train_days = 7
shifts = "0d,7d"
num_anchors = 2

[order.training]
seeds = [0, 1]
num_updates = 2
look_every = 1
num_streams = 8
num_steps = 32
num_episodes = 2
num_held_out = 1
clone_updates = 5
"""
    )
    words = ("run", tmp_path / "queue.toml", "--out", tmp_path / "work")
    assert run(*words, "--json", "--no-progress") == 0
    result = json.loads(capsys.readouterr().out)
    found = result["comparison_data"]
    assert [policy["name"] for policy in found["policies"]][-5:] == [
        "bc",
        "bc_greedy",
        "ppo",
        "index",
        "ladder",
    ]
    values = {
        cell["policy"]: cell["estimate"]["value"]
        for cell in found["cells"]
        if (cell["judge"], cell["shift_days"], cell["metric"]) == ("replay", 7, "bounded_slowdown")
    }
    assert values["index"] < values["fcfs"]
    assert all(1.0 <= value < 1e5 for value in values.values())
    comparison = tmp_path / "work" / "comparison"
    assert (comparison / "report.html").exists()
    assert (comparison / "anchor-1.npz").exists()
    certified = load_certificate(tmp_path / "work" / "certificate")
    facts = read_manifest(tmp_path / "work" / "twin", "twin").extra
    assert (facts["problem"], len(facts["train_days"])) == ("ordering", 7)
    assert certified.train_days[-1] == facts["last_day"]
    contract = json.loads((comparison / "bundle" / "contract.json").read_text())
    assert contract["trained_on"]["last_day"] == facts["last_day"]
    assert "certificate cannot tell" in contract["trained_on"]["certification"]
    assert "certificate cannot tell" in (comparison / "report.html").read_text()
    policy = load_queue(comparison / "bundle")
    assert policy.setting["processors"] == 16.0
    waiting = [WaitingJob(0.0, 8.0, 36_000.0), WaitingJob(1.0, 1.0, 600.0)]
    assert policy.decide(waiting, [], {}, 2.0) == 1
    assert "exported: the " in (comparison / "report.html").read_text()
    handed = tmp_path / "work" / "bundle" / "bundle"
    assert read_manifest(handed).content_hash == read_manifest(comparison / "bundle").content_hash
    assert run(*words, "--no-progress") == 0
    assert f"bundle: {handed}" in capsys.readouterr().out
