"""Speed of replaying a batch log under EASY, against the shortest plain loop that does the same.

    python -m tests.benchmarks.bench_replay [--log FILE.swf] [--processors 100] [--repeats 5] [--json]

The loop knows one rule, checks nothing and counts nothing, and looks at the queue once in an instant. Both run
in this process in turn, best of the repeats each. Without the KTH log a made one of the same size and load
stands in. Target: at most 3 times the loop.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from logs_schema import Archive, import_log
from tests.reference.ordering_loop import fcfs_easy
from twin.ordering.jobs import read_jobs
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, RULES
from twin.ordering.types import Jobs, Pool

RATIO_TARGET = 3.0
KTH = Path(__file__).resolve().parents[3] / "shared" / "data" / "kth-sp2-1996" / "KTH-SP2_log.swf"


def made_jobs(num_jobs: int = 28_481, capacity: int = 100, load: float = 0.7) -> Jobs:
    generator = np.random.default_rng(0)
    width = np.minimum(2 ** generator.integers(0, 7, num_jobs), capacity).astype(float)
    run_s = np.round(generator.lognormal(7.0, 1.8, num_jobs)) + 1.0
    gap_s = float(np.mean(width * run_s)) / (capacity * load)
    arrival_s = np.round(np.cumsum(generator.exponential(gap_s, num_jobs)))
    ids = np.arange(num_jobs).astype(str).astype(object)
    asked_s = np.round(run_s * generator.uniform(1.0, 10.0, num_jobs))
    start_s = np.full(num_jobs, np.nan)
    return Jobs(ids, arrival_s, width, asked_s, run_s, start_s, np.zeros(num_jobs, int))


def read_log(log: Path) -> Jobs:
    with tempfile.TemporaryDirectory() as folder:
        import_log("swf", [log], Path(folder) / "archive")
        return read_jobs(Archive(Path(folder) / "archive"))


def seconds(*runs: Callable[[], object], repeats: int) -> list[float]:
    """Best wall time of each, taken in turn so that a busy machine hits all alike."""
    best = [float("inf")] * len(runs)
    for _ in range(repeats):
        for number, run in enumerate(runs):
            begin = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--log", type=Path, default=KTH)
    parser.add_argument("--processors", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    jobs = read_log(arguments.log) if arguments.log.exists() else made_jobs(capacity=arguments.processors)
    pool = Pool(arguments.processors, easy=True)
    columns = [values.tolist() for values in (jobs.arrival_s, jobs.processors, jobs.requested_s, jobs.run_s)]
    loop_s, replay_s = seconds(
        lambda: fcfs_easy(*columns, arguments.processors),
        lambda: replay(jobs, pool, FCFS),
        repeats=arguments.repeats,
    )
    rules_s = {rule.name: seconds(lambda rule=rule: replay(jobs, pool, rule), repeats=1)[0] for rule in RULES}
    result = {
        "log": arguments.log.name if arguments.log.exists() else "made",
        "num_jobs": len(jobs.arrival_s),
        "loop_s": round(loop_s, 3),
        "replay_s": round(replay_s, 3),
        "ratio": round(replay_s / loop_s, 2),
        "target": RATIO_TARGET,
        "rules_s": {name: round(value, 3) for name, value in rules_s.items()},
    }
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['log']}: {result['num_jobs']:,} jobs, EASY on {arguments.processors} processors")
    print(
        f"plain loop {loop_s:.3f} s, replay {replay_s:.3f} s: {result['ratio']} times (target {RATIO_TARGET:g})"
    )
    for name, value in rules_s.items():
        print(f"  {name:<14}{value:.3f} s")


if __name__ == "__main__":
    main()
