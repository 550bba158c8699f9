"""Speed of replaying a batch log under EASY, against the shortest plain loop that does the same.

    python -m tests.benchmarks.bench_replay [--log FILE.swf] [--processors 100] [--repeats 5] [--json]

The loop knows one rule, checks nothing and counts nothing, and looks at the queue once in an instant. Both run
in this process in turn, best of the repeats each. Without the KTH log a made one of the same size and load
stands in. Target: at most 3 times the loop.
"""

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

from logs_schema import Archive, import_log
from tests.benchmarks.bench_ordering import made_jobs
from tests.benchmarks.timing import least_s
from tests.reference.ordering_loop import fcfs_easy
from twin.ordering.jobs import read_jobs
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, RULES
from twin.ordering.types import Jobs, Pool

RATIO_TARGET = 3.0
KTH = Path(__file__).resolve().parents[3] / "shared" / "data" / "kth-sp2-1996" / "KTH-SP2_log.swf"


def read_log(log: Path) -> Jobs:
    with tempfile.TemporaryDirectory() as folder:
        import_log("swf", [log], Path(folder) / "archive")
        return read_jobs(Archive(Path(folder) / "archive"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--log", type=Path, default=KTH)
    parser.add_argument("--processors", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    jobs = (
        read_log(arguments.log)
        if arguments.log.exists()
        else made_jobs(0, 28_481, arguments.processors, load=0.7)
    )
    pool = Pool(arguments.processors, easy=True)
    columns = [values.tolist() for values in (jobs.arrival_s, jobs.processors, jobs.requested_s, jobs.run_s)]
    loop, ours = lambda: fcfs_easy(*columns, arguments.processors), lambda: replay(jobs, pool, FCFS)
    found, _ = least_s({"loop": loop, "replay": ours}, arguments.repeats)
    loop_s, replay_s = found.values()
    rules_s, _ = least_s({rule.name: partial(replay, jobs, pool, rule) for rule in RULES}, 1)
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
