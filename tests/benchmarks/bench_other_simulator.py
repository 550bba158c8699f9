"""From a log of another simulator to a policy in it: `python -m tests.benchmarks.bench_other_simulator sharing`.

Six days of a world of `tests.reference.dispatch_loop` are written as a `native` log under a noisy shortest queue; the
commands import it, fit, certify, train and export; bundles then decide in the loop itself, through the runner alone, on
a day after the log and on one four weeks later, when run times have moved and one node is half as fast. Every seed is
a world, a log, a twin and a training. The project reads nothing of it but the log.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evaluation.commands.cli import main as schedtwin
from logs_schema.errors import SchedtwinError
from offline_rl.runner import Node, Request, load
from tests.reference.dispatch_loop import (
    BY_CHANCE,
    DAY_S,
    FIRST_DAY_S,
    KINDS,
    NUM_NODES,
    Dispatcher,
    Job,
    Kind,
    ShortestQueue,
    World,
    outcome,
)
from tests.reference.dispatch_users import play_days

NUM_LOG_DAYS, NUM_TRAIN_DAYS, NUM_REPLICATIONS = 6, 3, 2
LATER = {"next day": (NUM_LOG_DAYS, 0.0), "four weeks": (NUM_LOG_DAYS + 28, 0.25)}
"""Name -> day, and how far run times have moved."""
POLICIES = (
    "ladder",
    "expected_on_time",
    "expected_on_time_tuned",
    "least_expected_response",
    "least_expected_response_tuned",
    "twin",
    "residual",
    "bc_greedy",
)
LOGGED, SHORTEST = "logged", "shortest_queue"


class Row(NamedTuple):
    """What came of a policy on a day; means over replications."""

    world: str
    seed: int
    day: str
    policy: str
    on_time: float
    mean_response_s: float
    p95_response_s: float
    certificate: int  # exit status of `schedtwin certify`: 0 passed, 3 failed, 4 cannot tell


class Bundle(Dispatcher):
    """An exported policy that decides in the loop, with a ledger kept by events."""

    def __init__(self, folder: Path, world: World, begin_s: float) -> None:
        self._policy, self._world = load(folder), world
        self._ledger = self._policy.ledger(
            [Node(_name(row)) for row in range(NUM_NODES)], FIRST_DAY_S + begin_s
        )

    def choose(self, number: int, job: Job, _in_flight: Sequence[float]) -> tuple[int, float]:
        now_s = FIRST_DAY_S + job.arrival_s
        request = Request(
            cpu_cores=job.cores,
            gpus=job.gpus,
            site="here",
            service=f"s{job.service}",
            agent=None if job.user is None else f"u{job.user}",
            requested_run_s=job.declared_s,
            deadline_s=job.deadline_s if self._world.deadlines else None,
        )
        node = str(self._ledger.decide(request, now_s).node)
        self._ledger.place(number, node, request, now_s)
        return int(node.removeprefix("n")), 1.0

    def started(self, number: int, at_s: float) -> None:
        self._ledger.start(number, FIRST_DAY_S + at_s)

    def finished(self, number: int, at_s: float) -> None:
        self._ledger.finish(number, ran_until_s=FIRST_DAY_S + at_s)


def _name(row: int) -> str:
    return f"n{row}"


def policies_of(
    kind: Kind, seed: int, folder: Path, settings: str = "", *, deadlines: bool = True
) -> tuple[dict[str, Path], int]:
    """Bundles of the policies from a log of the world, by name, and the exit status of the certificate.

    Args:
        kind: Of the world.
        seed: Of world, log and decisions.
        folder: To write into.
        settings: Further tables of the configuration.
        deadlines: Whether requests have deadlines.
    """
    world = World(kind, seed, deadlines=deadlines)
    behaviour = ShortestQueue(seed + 20, BY_CHANCE)
    jobs, runs = play_days(world, 0, NUM_LOG_DAYS, behaviour, (seed + 10, seed + 30))
    world.write(jobs, runs, folder / "raw")
    names = ("raw", "archive", "twin", "certificate", "policy", "job.toml")
    raw, archive, twin, certificate, policy, job = (str(folder / name) for name in names)
    (folder / "job.toml").write_text(
        f'[log]\nformat = "native"\n[days]\nnum_days = {NUM_TRAIN_DAYS}\n[shifts]\nshifts = "0d"\n{settings}'
    )
    _run("import", "native", raw, "--out", archive)
    _run("fit", archive, "--out", twin, "--config", job)
    status = _run("certify", twin, archive, "--out", certificate, allowed=(0, 3, 4))
    _run("train", twin, "--out", policy, "--config", job, "--force")
    found = {}
    for name in POLICIES:
        bundle, chosen = folder / "bundles" / name, () if name == POLICIES[0] else ("--policy", name)
        if _run("export", policy, "--out", str(bundle), *chosen, allowed=(0, 2)) == 0:
            found[name] = bundle
    return found, status


def _run(*arguments: str, allowed: tuple[int, ...] = (0,)) -> int:
    status = schedtwin([*arguments, "--no-progress"])
    if status not in allowed:
        raise SchedtwinError(f"schedtwin {arguments[0]} ended with status {status}")
    return status


def rows_of(
    name: str, seed: int, bundles: dict[str, Path], certificate: int, *, deadlines: bool = True
) -> list[Row]:
    """What came of the bundles, of the logged behaviour and of the shortest queue, on the days that follow."""
    rows = []
    for day, (number, drift) in LATER.items():
        world = World(KINDS[name], seed, deadlines=deadlines, drift=drift)
        for policy in (LOGGED, SHORTEST, *bundles):
            found = []
            for copy in range(NUM_REPLICATIONS):
                who: Dispatcher = (
                    Bundle(bundles[policy], world, number * DAY_S)
                    if policy in bundles
                    else ShortestQueue(5, BY_CHANCE if policy == LOGGED else 0.0)
                )
                found.append(
                    outcome(*play_days(world, number, 1, who, (1_000 * seed + 77 + copy, 99 + copy)))
                )
            rows.append(Row(name, seed, day, policy, *np.mean(found, axis=0).tolist(), certificate))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line a policy and day, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--no-deadlines", action="store_true", help="requests without deadlines")
    parser.add_argument("--out", type=Path, help="folder to keep logs, twins and bundles in")
    parser.add_argument("--train-seeds", type=int, default=1, help="policies from the twin")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if unknown := set(options.worlds) - set(KINDS):
        parser.error(f"no world {', '.join(sorted(unknown))}; allowed: {', '.join(KINDS)}")
    rows: list[Row] = []
    for name in options.worlds or KINDS:
        for seed in range(options.seed, options.seed + options.seeds):
            with tempfile.TemporaryDirectory() as scratch:
                folder = (options.out or Path(scratch)) / f"{name}-{seed}"
                folder.mkdir(parents=True)
                settings = f"[train]\nseeds = {list(range(options.train_seeds))}\n"
                deadlines = not options.no_deadlines
                found = policies_of(KINDS[name], seed, folder, settings, deadlines=deadlines)
                new = rows_of(name, seed, *found, deadlines=deadlines)
            rows += new
            for row in new:
                print(
                    f"{row.world:13} {row.seed:3} {row.day:11} {row.policy:24} {row.on_time:.3f} "
                    f"{row.mean_response_s:9.1f} s {row.p95_response_s:9.1f} s  certificate {row.certificate}",
                    file=sys.stderr if options.json else sys.stdout,
                    flush=True,
                )
    if options.json:
        print(json.dumps([row._asdict() for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
