"""Killed at random moments until it is done, a job makes what an undisturbed one makes: `python -m
tests.benchmarks.bench_kills --kills 50`.

One small job of all long steps: an import, answers, a workload model, a game of imitation, a certificate, a clone, PPO
in the twin, a learner from the log, the ladder, a comparison and a bundle. It is killed (SIGKILL) after a time drawn
anew for every start, and begun again in a fresh folder whenever it ends. Every end must have the content of the
undisturbed one; what was lost is told by the processor time that all starts took over that of as many calm runs.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from logs_schema.product import read_manifest
from tests.evaluation.test_killed import STEPS, TINY

JOB = (
    TINY.replace('kind = "none"', 'kind = "gan_smmsg"\nnum_rounds = 60')
    + '[imitation]\nkind = "anchored"\nnum_steps = 40\n[certify]\nmin_rows = 100\nrankings = false\n'
)
MADE = (*STEPS, "certificate")
LONGEST_S = 40.0
"""From a start to its kill; at least a second."""


class Kills(NamedTuple):
    """What came of it."""

    kills: Counter[str]  # step that was under way -> kills
    ends: int
    equal: int  # of the ends: with the content of the undisturbed run
    calm_s: float  # processor time of the undisturbed run
    all_s: float  # of all starts


def start(folder: Path) -> "subprocess.Popen[bytes]":
    """The job, in the background."""
    (folder / "job.toml").write_text(JOB)
    command = (
        sys.executable, "-m", "evaluation.commands.cli", "run", "job.toml", "--force", "--out", "work", "--no-progress",
    )  # fmt: skip
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def contents(folder: Path) -> dict[str, str]:
    """Content hash of every product."""
    return {step: read_manifest(folder / "work" / step).content_hash for step in MADE}


def under_way(folder: Path) -> str:
    """The first step that is not there."""
    return next((step for step in MADE if not (folder / "work" / step / "manifest.json").exists()), "the end")


def waited(process: "subprocess.Popen[bytes]") -> tuple[int, float]:
    """Exit status, and processor time in s."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def kill_often(num_kills: int, seed: int, root: Path) -> Kills:
    """Runs the job until it was killed so often, and then to its end."""
    drawn = random.Random(seed)
    calm = root / "calm"
    calm.mkdir()
    status, calm_s = waited(start(calm))
    if status:
        raise SystemExit(f"the undisturbed run ended with {status}")
    wanted, kills, ends, equal, all_s = contents(calm), Counter[str](), 0, 0, 0.0
    while sum(kills.values()) < num_kills:
        folder = root / f"rough-{ends}"
        folder.mkdir()
        while True:
            process = start(folder)
            if sum(kills.values()) < num_kills:
                end = time.monotonic() + drawn.uniform(1.0, LONGEST_S)
                while time.monotonic() < end and not os.waitid(
                    os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
                ):
                    time.sleep(0.01)
                os.kill(process.pid, signal.SIGKILL)  # what has ended meanwhile waits to be waited for
            status, spent_s = waited(process)
            all_s += spent_s
            if status != -signal.SIGKILL:
                break
            kills[under_way(folder)] += 1
        ends += 1
        equal += status == 0 and contents(folder) == wanted
    return Kills(kills, ends, equal, calm_s, all_s)


def main() -> None:
    """Prints what came of it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        found = kill_often(options.kills, options.seed, Path(root))
    print(json.dumps(found._asdict()))


if __name__ == "__main__":
    main()
