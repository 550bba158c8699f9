"""Error rates of certificates: `python -m tests.benchmarks.bench_certificate --logs 5 small own_family limits`.

Every log is of a world of its own seed. The truth is certified as a twin of itself, and must not fail; then faults are
planted into it, and each must fail its own line. Worlds are those of first come, first served without drift and without
agents' own preferences, where the truth needs no state but the queues (`tests.evaluation.true_twins`).
"""

import argparse
import datetime as dt
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from evaluation.certify.certificate import certificate_of
from evaluation.certify.cloned_behaviour import fit_behaviour
from evaluation.certify.config import CertifyConfig
from evaluation.certify.held_out import hold_out
from evaluation.certify.lines import Line, Verdict
from evaluation.certify.measuring import measure
from evaluation.certify.tested_system import SystemUnderTest
from evaluation.commands.bench_worlds import EXAMPLES
from evaluation.problems.placement.certifying import ABOUT
from evaluation.simulator.logs import FIRST_DAY, simulate
from evaluation.simulator.presets import preset
from evaluation.simulator.world import World
from evaluation.simulator.world_files import load_world, redrawn
from logs_schema import Archive
from logs_schema.progress import SilentProgress
from tests.evaluation.planted import acceptance_lowered, means_swapped, waits_halved
from tests.evaluation.test_certify_forecasts import ACCEPTANCE, BESIDE, RUNS, WAITS
from tests.evaluation.true_twins import one_step_lines, true_twin, without_memory

SMALL = "small"
NUM_TRAIN, NUM_HELD = 2, 2
FAULTS: dict[str, tuple[Callable[[SystemUnderTest], SystemUnderTest], str]] = {
    "waits halved": (waits_halved, WAITS),
    "a tenth refused besides": (acceptance_lowered, ACCEPTANCE),
    "run times of two nodes swapped": (partial(means_swapped, one=0, two=1), RUNS),
}
SHARED = "sharing taken for queueing"
NULL = "none"


class Found(NamedTuple):
    """What a certificate said of one log."""

    world: str
    seed: int
    fault: str
    line: str  # the fault's own line; without a fault: the verdict of all
    verdict: str
    failed: tuple[str, ...]  # lines that failed
    closed_loop: bool  # whether the lines in closed loop are among them


def control(name: str, seed: int, discipline: str = "fifo") -> World:
    """A world without what a truth without memory cannot say: agents of a scenario are alike, nothing drifts."""
    world = preset(SMALL) if name == SMALL else load_world(EXAMPLES / f"{name}.toml")
    return redrawn(without_memory(world, discipline), seed)


def days(first: int, number: int) -> list[dt.date]:
    """Calendar days of a simulated log."""
    return [FIRST_DAY + dt.timedelta(days=first + day) for day in range(number)]


def one_log(
    name: str, seed: int, config: CertifyConfig, *, closed_loop: bool, folder: Path
) -> Iterable[Found]:
    """The truth without a fault and with each, certified on one log."""
    world = control(name, seed)
    train, held = days(0, NUM_TRAIN), days(NUM_TRAIN, NUM_HELD)
    archive = logged(world, seed, folder / "fifo")
    tested = true_twin(archive, world, train)
    if closed_loop:
        chosen = hold_out(archive, train, None, config)
        lines = measure(tested, archive, chosen, config, SilentProgress()).lines
        told = certificate_of(
            lines, ABOUT, {}, config, twin="", archive="", train_days=train, days=chosen.days
        )
        yield Found(name, seed, NULL, "all", told.verdict.value, failed(told.lines), True)
    clone = fit_behaviour(tested, config, SilentProgress())

    def one_step(system: SystemUnderTest, log: Archive) -> Sequence[Line]:
        return one_step_lines(system, clone, log, held, config)

    def found(fault: str, line: str, lines: Sequence[Line]) -> Found:
        (verdict,) = {one.verdict.value for one in lines if one.name == line}
        return Found(name, seed, fault, line, verdict, failed(lines), False)

    lines = one_step(tested, archive)
    verdict = Verdict.FAIL if failed(lines) else Verdict.PASS
    yield Found(name, seed, NULL, "one step", verdict.value, failed(lines), False)
    for fault, (planted, line) in FAULTS.items():
        yield found(fault, line, one_step(planted(tested), archive))
    shared = logged(control(name, seed, "ps"), seed, folder / "ps")
    yield found(SHARED, BESIDE, one_step(tested, shared))


def logged(world: World, seed: int, folder: Path) -> Archive:
    """Simulates the days of a log."""
    simulate(world, NUM_TRAIN + NUM_HELD, "mix", seed, folder)
    return Archive(folder)


def failed(lines: Sequence[Line]) -> tuple[str, ...]:
    """Names of the lines that failed."""
    return tuple(line.name for line in lines if line.verdict is Verdict.FAIL)


def as_table(found: Sequence[Found]) -> str:
    """How often each verdict was given, by world and fault."""
    rows = ["| world | fault | line | fail | cannot tell | pass | logs |", "|---|---|---|---|---|---|---|"]
    for key in dict.fromkeys((one.world, one.fault, one.line) for one in found):
        verdicts = [one.verdict for one in found if (one.world, one.fault, one.line) == key]
        numbers = [
            sum(one == told.value for one in verdicts)
            for told in (Verdict.FAIL, Verdict.CANNOT_TELL, Verdict.PASS)
        ]
        rows.append("| " + " | ".join([*key, *map(str, numbers), str(len(verdicts))]) + " |")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Certifies truths, faults planted or not, and tells how often which line failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "worlds", nargs="*", default=[SMALL], help="small, or names of evaluation/examples/worlds"
    )
    parser.add_argument("--logs", type=int, default=1, help="logs of each world")
    parser.add_argument("--seed", type=int, default=0, help="of the first log")
    parser.add_argument("--closed-loop", action="store_true", help="all lines of the truth without a fault")
    chosen = parser.parse_args(arguments)
    config = CertifyConfig(
        max_days=NUM_HELD,
        enough_rows=1,
        num_steps=128,
        max_rows=500,
        num_replicates=200,
        rankings=False,
        clone_updates=400,
    )
    found: list[Found] = []
    for name in chosen.worlds:
        for seed in range(chosen.seed, chosen.seed + chosen.logs):
            started = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                for one in one_log(name, seed, config, closed_loop=chosen.closed_loop, folder=Path(folder)):
                    found.append(one)
                    print(json.dumps(one._asdict()), file=sys.stderr, flush=True)
            print(f"{name}, seed {seed}: {time.process_time() - started:.0f} s of processor", file=sys.stderr)
    print(as_table(found))


if __name__ == "__main__":
    main()
