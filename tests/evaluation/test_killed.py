"""Killed at any moment, a second run of the job makes what an undisturbed one makes, bit for bit."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logs_schema.product import read_manifest

TINY = """
[log]
preset = "small"
days = 5
[days]
num_days = 1
num_steps = 64
[twin]
num_members = 2
hidden = [16]
num_steps = 60
evaluate_every = 20
[population]
kind = "none"
[train]
seeds = [0, 1]
num_updates = 2
num_streams = 8
clone_updates = 25
clone_streams = 4
from_logs = ["cql"]
from_logs_updates = 6
[shifts]
shifts = "0d,1d"
[judge]
copies = 2
num_fit_steps = 20
[intervals]
num_replicates = 200
"""
STEPS = ("archive", "twin", "policy", "comparison", "bundle")


def started(folder: Path, *options: str) -> "subprocess.Popen[bytes]":
    (folder / "tiny.toml").write_text(TINY)
    command = (
        sys.executable,
        "-m",
        "evaluation.commands.cli",
        "run",
        "tiny.toml",
        "--force",
        "--out",
        "work",
        "--no-progress",
        *options,
    )
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)


def hashes(folder: Path) -> dict[str, str]:
    return {step: read_manifest(folder / "work" / step).content_hash for step in STEPS}


@pytest.mark.slow
def test_killed_and_run_again_it_makes_the_same_bits(tmp_path: Path) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    calm.mkdir()
    rough.mkdir()
    assert started(calm).wait() == 0
    for step in ("archive", "twin", "policy"):  # killed soon after each appears, in the middle of the next
        process = started(rough)
        while not (rough / "work" / step / "manifest.json").exists():
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(0.4)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        if step == "twin":  # and in the ladder
            process = started(rough)
            while not list((rough / "work").glob(".unfinished-policy-*/ladder/*.npz")):
                assert process.poll() is None
                time.sleep(0.02)
            process.kill()
            assert process.wait() == -signal.SIGKILL
    units: set[Path] = set()
    for _ in range(2):  # killed in the middle of the comparison
        process, before = started(rough), units
        while len(units - before) < 3:
            assert process.poll() is None
            units = set((rough / "work").glob(".unfinished-comparison-*/[!.]*"))
            time.sleep(0.02)
        assert before <= units
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert not (rough / "work" / "bundle").exists()
    assert started(rough).wait() == 0
    assert hashes(rough) == hashes(calm)


@pytest.mark.slow
def test_tasks_of_two_processes_make_the_same_bits(tmp_path: Path) -> None:
    """Seeds, a learner from the log, judges and parts of the certificate as tasks, against one process alone."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, options in ((here, ()), (there, ("--workers", "2"))):
        folder.mkdir()
        assert started(folder, *options).wait() == 0
    assert hashes(there) == hashes(here)
    certificates = [read_manifest(folder / "work" / "certificate").content_hash for folder in (here, there)]
    assert certificates[0] == certificates[1]
    assert not list((there / "work").glob(".unfinished-*"))
