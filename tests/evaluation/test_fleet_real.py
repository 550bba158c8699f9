"""A fleet from end to end: the daily job of a real queue beside a cluster without a log; stopped, shown, pruned."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.commands.cli import main
from evaluation.commands.statuses import TERMINATED
from logs_schema import Archive
from logs_schema.product import read_manifest, verify
from tests.evaluation.fleets import samples
from tests.evaluation.refreshing import THRESHOLDS, cut_last_day
from tests.evaluation.test_sigterm import until
from tests.ordering.making import alike_weeks

JOB = """
[log]
format = "native"
paths = ["log"]
[order.intervals]
num_replicates = 200
[order.training]
seeds = [0]
index_only = true
[certify]
num_replicates = 200
max_rows = 400
[certify.thresholds]
"""
FLEET = """
[[clusters]]
name = "real"
config = "real.toml"
log = "night"
work = "work/real"
[[clusters]]
name = "gone"
config = "real.toml"
log = "no-night"
work = "work/gone"
"""


@pytest.mark.slow
def test_a_fleet_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.swf").write_text(alike_weeks())
    assert (
        main(
            ["import", "swf", str(tmp_path / "log.swf"), "--out", str(tmp_path / "archive"), "--no-progress"]
        )
        == 0
    )
    cut_last_day(Archive(tmp_path / "archive"), tmp_path)
    limits = [f"{name} = {value}" for name, value in (THRESHOLDS | {"utilisation": 50.0}).items()]
    (tmp_path / "real.toml").write_text(JOB + "\n".join(limits) + "\n")
    capsys.readouterr()
    (tmp_path / "fleet.toml").write_text(FLEET)
    words = [str(tmp_path / "fleet.toml"), "--no-progress", "--json"]
    place = tmp_path / "work" / "real" / "refresh"

    command = (sys.executable, "-m", "evaluation.commands.cli", "fleet", "refresh", *words)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until(lambda: list(place.glob(".twin.*.writing")), process)
    process.terminate()
    assert process.wait(60) == TERMINATED
    assert not list(place.glob(".*"))
    assert main(["fleet", "status", *words]) == 2  # of the cluster without a log
    told = json.loads(capsys.readouterr().out)
    assert [one["phase"] for one in told["clusters"]] == ["interrupted", "waiting"]

    assert main(["fleet", "refresh", *words, "--cluster", "real"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["clusters"][0]["outcome"]["result"] == "exported"
    assert not list(place.glob(".*"))
    assert main(["fleet", "refresh", *words]) == 0  # nothing is due: an error waits for an hour
    capsys.readouterr()
    assert main(["fleet", "refresh", *words, "--now"]) == 2
    outcomes = [one["outcome"] for one in json.loads(capsys.readouterr().out)["clusters"]]
    assert [one["status"] for one in outcomes] == [0, 2]  # the same history: the same decision
    assert outcomes[0]["drift"]["newest_day"] == read_manifest(place / "history").extra["last_day"]

    bundle = read_manifest(place / "bundle" / "bundle").content_hash
    found = samples((tmp_path / "schedtwin.prom").read_text())
    assert (
        found["schedtwin_certificate_verdict", frozenset({("cluster", "real"), ("verdict", "pass")})] == 1.0
    )
    assert bundle in (tmp_path / "fleet.html").read_text()
    export = tmp_path / "work" / "real" / "exports" / bundle[:16]
    for name in ("bundle", "candidate", "policy", "twin", "certificate", "decision"):
        verify(export / name)
    assert main(["fleet", "prune", *words, "--apply"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes_freed"] == 0
    assert main(["inspect", str(export / "bundle" / "bundle")]) == 0
