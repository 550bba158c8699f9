"""A log that cannot be written: frames go on, the loss is counted and said once, and the lease is given up at last."""

import csv
import errno
import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from offline_rl.serving import journal
from tests.kube_controller.bench import MORE_ASR, MORE_OCR, NOTHING, Bench
from tests.kube_controller.stand_in import StandIn

DEPLOYED = {"ocr-n0": ("ocr", "n0", 1, 1), "asr-n0": ("asr", "n0", 1, 1)}


def no_room(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_frames_go_on_while_the_disk_is_full(
    bench: Bench,
    api: StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as full:
        full.setattr(journal, "_write_all", no_room)
        assert bench.frame((0, MORE_OCR)).outcome == "changed"
        assert bench.frame((0, MORE_ASR)).outcome == "changed"
    assert [one["asked"] for one in api.deployments.values()] == [2, 2]
    assert bench.metrics.log_errors._value.get() == 4  # the deployment and the frame, twice
    assert capsys.readouterr().err.count("the log cannot be written") == 1
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
    bench.recording.close()
    (replicas,) = (tmp_path / "log" / "replicas").iterdir()
    with gzip.open(replicas, "rt") as rows:
        found = [(row["service"], row["num_replicas"]) for row in csv.DictReader(rows)]
    assert found == [("asr", "1"), ("ocr", "1")]  # written as soon as there is room


def test_the_lease_is_given_up_whatever_becomes_of_the_log(
    bench: Bench, api: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([False, True])
    monkeypatch.setattr(journal, "compress", no_room)
    bench.controller.run(lambda _wait_s: next(waits))
    assert api.lease is not None
    assert not api.lease["spec"].get("holderIdentity")
    assert bench.metrics.log_errors._value.get() == 1
    monkeypatch.undo()
    Bench(bench.cluster.access, tmp_path)  # both files were let go of, so that the next process closes them
    assert [path.suffix for path in sorted((tmp_path / "log").rglob("*-*"))] == [".gz", ".gz"]
