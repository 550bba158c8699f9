"""Killed at random moments until it is done, a job makes what an undisturbed one makes: `python -m
tests.benchmarks.bench_kills --kills 50`.

A small job of all long steps, of placement (an import, answers, a workload model, a game of imitation, a certificate, a
clone, PPO in the twin, a learner from the log, the ladder, a comparison and a bundle) or of `--problem`. It is killed
(SIGKILL) after a processor time drawn anew for every start, and begun again in a fresh folder whenever it ends. Every
end must have the content of the undisturbed one, and nothing beside its products; what was lost is told by the
processor time that all starts took over that of as many calm runs, for which the job runs twice undisturbed (the first
run compiles), and what a start costs that does nothing by one more.
"""

import argparse
import json
import math
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

import numpy as np

from logs_schema.product import read_manifest
from tests.evaluation.test_killed import TINY

JOBS = {
    "placement": TINY.replace('kind = "none"', 'kind = "gan_smmsg"\nnum_rounds = 60')
    + '[imitation]\nkind = "anchored"\nnum_steps = 40\n[certify]\nmin_rows = 100\nrankings = false\n',
    "autoscaling": """
[log]
preset = "chain"
days = 4
[days]
num_days = 2
[shifts]
shifts = "0d"
[train]
seeds = [0]
[scale]
updates = 30
trial_episodes = 2
trial_steps = 60
""",
    "ordering": """
[log]
format = "swf"
paths = ["log.swf"]
[order]
num_twin_weeks = 1
[order.weeks]
num_train_days = 28
num_anchors = 2
shifts = "0d"
[order.training]
seeds = [0, 1]
num_updates = 6
look_every = 2
num_streams = 8
num_steps = 32
num_episodes = 2
num_held_out = 1
clone_updates = 20
[certify]
min_rows = 50
""",
    "orchestration": """
[log]
format = "native"
paths = ["log"]
[days]
num_days = 1
[shifts]
shifts = "0d"
[orchestration]
num_updates = 10
""",
    "assignment": """
[log]
preset = "small"
days = 4
[days]
num_days = 2
[shifts]
shifts = "0d"
[assign]
seeds = [0]
num_held_out = 8
[assign.learning]
num_updates = 400
imitation_updates = 400
imitation_instances = 400
""",
}
MADE = ("archive", "twin", "certificate", "policy", "comparison", "bundle")
TICKS = os.sysconf("SC_CLK_TCK")


class Kills(NamedTuple):
    """What came of it."""

    kills: Counter[str]  # step that was under way -> kills
    ends: int
    equal: int  # of the ends: with the content of the undisturbed run
    differing: Counter[str]  # step -> ends in which its product is another
    calm_s: float  # processor time of the second undisturbed run
    idle_s: float  # of a start that finds everything done
    all_s: float  # of all starts


def write_queue(file: Path) -> None:
    """Ten weeks of jobs on 16 processors as SWF."""
    rng, lines = np.random.default_rng(0), ["; UnixStartTime: 1000000000", "; MaxProcs: 16"]
    for job, arrival in enumerate(np.sort(rng.integers(0, 70 * 86_400, 2000))):
        asked = int(rng.choice([600, 3600, 36_000], p=[0.5, 0.3, 0.2]))
        ran, width = max(1, int(asked * rng.uniform(0.05, 1.0))), rng.integers(1, 13)
        wait_s = rng.integers(0, 4000)
        lines.append(
            f"{job} {arrival} {wait_s} {ran} {width} -1 -1 {width} {asked} -1 1 {job % 5} 1 -1 1 -1 -1 -1"
        )
    file.write_text("\n".join(lines) + "\n")


def prepare(problem: str, folder: Path) -> Path:
    """A new folder with the job and its log."""
    folder.mkdir()
    (folder / "job.toml").write_text(JOBS[problem])
    if problem == "ordering":
        write_queue(folder / "log.swf")
    if problem == "orchestration":
        log = folder.parent / "log"
        if not log.exists():
            subprocess.run([*_cli("simulate"), "--slots", "--days", "4", "--out", str(log)], check=True)
        (folder / "log").symlink_to(log)
    return folder


def _cli(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "evaluation.commands.cli", *words)


def start(folder: Path) -> "subprocess.Popen[bytes]":
    """The job, in the background."""
    command = _cli("run", "job.toml", "--force", "--out", "work", "--no-progress")
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def contents(folder: Path) -> dict[str, str]:
    """Content hash of every product."""
    found = {step: folder / "work" / step for step in MADE}
    return {step: read_manifest(path).content_hash for step, path in found.items() if path.exists()}


def under_way(folder: Path, steps: list[str]) -> str:
    """The first step that is not there."""
    return next(
        (step for step in steps if not (folder / "work" / step / "manifest.json").exists()), "the end"
    )


def used_s(process: "subprocess.Popen[bytes]") -> float:
    """Processor time so far in s; infinite of one that has ended."""
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        return math.inf
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def waited(process: "subprocess.Popen[bytes]") -> tuple[int, float]:
    """Exit status, and processor time in s."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def kill_often(problem: str, num_kills: int, longest_s: float, seed: int, root: Path) -> Kills:
    """Runs the job until it was killed so often, after up to `longest_s` of processor time, and then to its end."""
    drawn = random.Random(seed)
    for name in ("compiling", "calm"):
        calm = prepare(problem, root / name)
        status, calm_s = waited(start(calm))
        if status:
            raise SystemExit(f"the undisturbed run ended with {status}")
    if contents(calm) != contents(root / "compiling"):
        raise SystemExit("two undisturbed runs differ")
    _, idle_s = waited(start(calm))
    wanted, kills, differing, ends, equal, all_s = contents(calm), Counter[str](), Counter[str](), 0, 0, 0.0
    while sum(kills.values()) < num_kills:
        folder = prepare(problem, root / f"rough-{ends}")
        while True:
            process = start(folder)
            if sum(kills.values()) < num_kills:
                until_s = drawn.uniform(1.0, longest_s)
                while used_s(process) < until_s:
                    time.sleep(0.01)
                os.kill(process.pid, signal.SIGKILL)  # what has ended meanwhile waits to be waited for
            status, spent_s = waited(process)
            all_s += spent_s
            if status != -signal.SIGKILL:
                break
            kills[under_way(folder, list(wanted))] += 1
        found = contents(folder)
        differing.update(step for step, content in wanted.items() if found.get(step) != content)
        remains = [path.name for path in (folder / "work").iterdir() if path.name.startswith(".")]
        differing.update({"remains": len(remains)} if remains else {})
        ends += 1
        equal += status == 0 and found == wanted and not remains
    return Kills(kills, ends, equal, differing, calm_s, idle_s, all_s)


def main() -> None:
    """Prints what came of it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument(
        "--longest", type=float, default=40.0, help="processor time from a start to its kill [s]"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problem", choices=sorted(JOBS), default="placement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        found = kill_often(options.problem, options.kills, options.longest, options.seed, Path(root))
    print(json.dumps(found._asdict()))


if __name__ == "__main__":
    main()
