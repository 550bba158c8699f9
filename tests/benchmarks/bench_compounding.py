"""Compounding error by the way answers are learned: `python -m tests.benchmarks.bench_compounding campaigns`.

Worlds: those that keep something to themselves (`tests.twin.imitation_world`; with `--windows 6` there is little to
learn from), a simulated preset (`small`, `edge`), or `wagap` with the folder of the log. What is learned from and what
is simulated never overlap.
Every seed draws its own logs (but of `wagap`), fits and replications; what it gave is told as it comes, all seeds at
the end.
"""

import argparse
import datetime as dt
import sys
import tempfile
import time
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logs_schema import Archive
from logs_schema.importing import import_log
from tests.benchmarks.compounding import (
    HORIZONS,
    Simulates,
    as_ratios,
    as_table,
    black_box,
    compounding,
    ensemble,
    imitated,
    refined_ensemble,
    together,
)
from tests.twin.imitation_world import WORLDS, campaign_encoding, returning_rows, windows_of
from twin.imitation.config import GameConfig, ImitationConfig, anchored, paper
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.learned import AnswerConfig
from twin.placement.log_windows import encode_days, training_windows
from twin.placement.windows import Windows

NUM_STEPS, NUM_SIMULATED = 104, 240
"""Requests of a window, and windows to live, in a made world."""
DEFAULT = "ensemble"
"""What `schedtwin fit` does."""


class Case(NamedTuple):
    """What a comparison is run on."""

    encoding: Encoding
    train: Windows
    test: Windows
    other: Windows
    horizons: tuple[int, ...]


def made_case(name: str, num_windows: int, seed: int) -> Case:
    """A known truth that keeps something to itself; every seed draws other logs."""
    learned = WORLDS[name](3 * seed, num_windows * NUM_STEPS)
    simulated = partial(returning_rows, history=learned) if name == "returning" else WORLDS[name]
    rows = [learned, *(simulated(3 * seed + part, NUM_SIMULATED * NUM_STEPS) for part in (1, 2))]
    train, test, other = (windows_of(each, NUM_STEPS) for each in rows)
    return Case(campaign_encoding(), train, test, other, (1, 5, 20, 50, 100))


def preset_case(name: str, num_train: int, num_test: int, seed: int) -> Case:
    """Two histories of one simulated world; the second one's held-out days are the floor."""
    from evaluation.simulator.logs import simulate

    folder = Path(tempfile.mkdtemp(prefix="compounding-"))
    archives = []
    for part in (2 * seed, 2 * seed + 1):
        simulate(name, num_train + num_test, "fewest_per_core", part, folder / f"log-{part}")
        archives.append(Archive(folder / f"log-{part}"))
    return day_case(archives[0], archives[1], num_train, num_test, num_test, 401)


@cache
def wagap_case(folder: Path, num_train: int, num_test: int) -> Case:
    """Training days, then held-out days, then as many others for the floor; the same for every seed."""
    path = Path(tempfile.mkdtemp(prefix="compounding-")) / "log"
    import_log("wagap", [folder], path)
    archive = Archive(path)
    return day_case(archive, archive, num_train, num_test, 2 * num_test, 401)


def day_case(
    archive: Archive, second: Archive, num_train: int, num_test: int, num_floor: int, length: int
) -> Case:
    """Windows of `length` that overlap by three quarters; floor days are the last ones of `second`."""
    days = archive.days("requests")
    train_days = days[:num_train]
    test_days = days[num_train : num_train + num_test]
    floor_days = second.days("requests")[num_train + num_floor - num_test : num_train + num_floor]
    encoding = fit_encoding(archive, train_days)
    (train,) = training_windows(archive, encoding, train_days, num_steps=104)

    def held(of: Archive, some: list[dt.date]) -> Windows:
        return encode_days(of, encoding, some, num_steps=length, stride=100)

    return Case(encoding, train, held(archive, test_days), held(second, floor_days), HORIZONS)


def methods(steps: int, game: int) -> dict[str, Simulates]:
    """All ways to learn answers."""
    shared = {
        "hidden": (32,),
        "num_members": 2,
        "num_streams": 8,
        "num_warm": steps,
        "learning_rate": 5e-3,
        "evaluate_every": 50,
    }
    played = {**shared, "num_steps": game}
    answers = AnswerConfig(num_members=2, hidden=(64, 64), num_steps=4 * steps, learning_rate=2e-3)
    return {
        "ensemble": ensemble(answers),
        "ensemble-anchored": refined_ensemble(answers, GameConfig("anchored", game)),
        "ensemble-paper": refined_ensemble(answers, GameConfig("paper", game)),
        "likelihood": imitated(ImitationConfig(**shared)),
        "anchored": imitated(anchored(**played)),
        "paper": imitated(paper(**{**played, "num_warm": 0, "num_steps": steps + game})),
        "black-box": black_box(num_steps=2 * steps),
    }


def timed(name: str, simulate: Simulates) -> Simulates:
    """The same, and tells the processor time it took."""

    @wraps(simulate)
    def told(*arguments: Any) -> np.ndarray:
        begun = time.process_time()
        states = simulate(*arguments)
        print(f"{name}: {time.process_time() - begun:.0f} s", file=sys.stderr, flush=True)
        return states

    return told


def case_of(chosen: argparse.Namespace, seed: int) -> Case:
    """The logs of one seed."""
    if chosen.world in WORLDS:
        return made_case(chosen.world, chosen.windows, seed)
    if chosen.world == "wagap":
        return wagap_case(chosen.log, *chosen.days)
    return preset_case(chosen.world, *chosen.days, seed)


def main(arguments: list[str]) -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "world", nargs="?", default="campaigns", help=f"{', '.join(WORLDS)}, wagap, or a preset"
    )
    parser.add_argument("--log", type=Path, default=Path("../shared/data/wagap-2013"), help="folder of wagap")
    parser.add_argument("--methods", default="", help="some of the methods, with commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300, help="steps of likelihood")
    parser.add_argument("--game", type=int, default=200, help="steps of the game")
    parser.add_argument("--windows", type=int, default=48, help="windows to learn from, in a made world")
    parser.add_argument("--days", type=int, nargs=2, default=(4, 8), metavar=("TRAIN", "TEST"))
    chosen = parser.parse_args(arguments)
    every = methods(chosen.steps, chosen.game)
    names = [name for name in chosen.methods.split(",") if name] or list(every)
    wanted = {name: timed(name, every[name]) for name in names}
    of_seeds = []
    for seed in range(chosen.seeds):
        case = case_of(chosen, seed)
        found = compounding(
            wanted, case.train, case.test, case.other, case.encoding, horizons=case.horizons, seed=seed
        )
        of_seeds.append(found)
        print(
            f"seed {seed}: {case.train.num_windows} windows to learn from, {case.test.num_windows} to live\n"
            f"{as_table(found, case.horizons)}\n",
            file=sys.stderr,
            flush=True,
        )
    found = together(of_seeds)
    print(as_table(found, case.horizons))
    if DEFAULT in wanted:
        print(f"\n{as_ratios(found, case.horizons, DEFAULT, 100)}")


if __name__ == "__main__":
    main(sys.argv[1:])
