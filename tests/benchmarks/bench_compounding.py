"""Compounding error by the way answers are learned: `python -m tests.benchmarks.bench_compounding campaigns`.

Worlds: `campaigns` (agents with hidden preferences come one after the other), a simulated preset (`small`, `edge`), or
`wagap` with the folder of the log. Training and held-out days never overlap.
"""

import argparse
import datetime as dt
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from evaluation.compounding import (
    HORIZONS,
    Lives,
    as_table,
    black_box,
    compounding,
    ensemble,
    imitated,
    refined_ensemble,
)
from logs_schema import Archive
from logs_schema.importing import import_log
from tests.twin.imitation_world import campaign_encoding, campaigns
from twin.imitation.config import GameConfig, anchored, paper, supervised
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.learned import AnswerConfig
from twin.placement.model import encode_days
from twin.placement.windows import Windows


class Case(NamedTuple):
    """What a comparison is run on."""

    encoding: Encoding
    train: Windows
    test: Windows
    other: Windows
    horizons: tuple[int, ...]


def campaign_case() -> Case:
    """The known truth of hidden preferences."""
    sizes = ((0, 48), (1, 240), (2, 240))
    train, test, other = (campaigns(seed, count, 104) for seed, count in sizes)
    return Case(campaign_encoding(), train, test, other, (1, 5, 20, 50, 100))


def preset_case(name: str, num_train: int, num_test: int) -> Case:
    """Two histories of one simulated world; the second one's held-out days are the floor."""
    from evaluation.simulator.logs import simulate

    folder = Path(tempfile.mkdtemp(prefix="compounding-"))
    archives = []
    for seed in (0, 1):
        simulate(name, num_train + num_test, "least_loaded", seed, folder / f"log-{seed}")
        archives.append(Archive(folder / f"log-{seed}"))
    return day_case(archives[0], archives[1], num_train, num_test, num_test, 401)


def wagap_case(folder: Path, num_train: int, num_test: int) -> Case:
    """Training days, then held-out days, then as many others for the floor."""
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
    train = encode_days(archive, encoding, train_days, num_steps=104, until=max(train_days))

    def held(of: Archive, some: list[dt.date]) -> Windows:
        return encode_days(of, encoding, some, num_steps=length, stride=100)

    return Case(encoding, train, held(archive, test_days), held(second, floor_days), HORIZONS)


def methods(steps: int, game: int) -> dict[str, Lives]:
    """All ways to learn answers."""
    shared = {
        "hidden": (32,), "num_members": 2, "num_streams": 8, "num_warm": steps, "learning_rate": 5e-3,
        "evaluate_every": 50,
    }  # fmt: skip
    played = {**shared, "num_steps": game}
    answers = AnswerConfig(num_members=2, hidden=(64, 64), num_steps=4 * steps, learning_rate=2e-3)
    return {
        "ensemble": ensemble(answers),
        "ensemble-anchored": refined_ensemble(answers, GameConfig("anchored", game)),
        "ensemble-paper": refined_ensemble(answers, GameConfig("paper", game)),
        "likelihood": imitated(supervised(**shared)),
        "likelihood-kinds": imitated(supervised(num_kinds=4, **shared)),
        "anchored": imitated(anchored(**played)),
        "anchored-kinds": imitated(anchored(num_kinds=4, **played)),
        "anchored-grouped-kinds": imitated(anchored(num_kinds=4, grouped=True, **played)),
        "paper": imitated(paper(**{**played, "num_warm": 0, "num_steps": steps + game})),
        "black-box": black_box(num_steps=2 * steps),
    }


def main(arguments: list[str]) -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "world", nargs="?", default="campaigns", help="campaigns (default), wagap, or a preset"
    )
    parser.add_argument("--log", type=Path, default=Path("../shared/data/wagap-2013"), help="folder of wagap")
    parser.add_argument("--methods", default="", help="some of the methods, with commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300, help="steps of likelihood")
    parser.add_argument("--game", type=int, default=200, help="steps of the game")
    parser.add_argument("--days", type=int, nargs=2, default=(4, 8), metavar=("TRAIN", "TEST"))
    chosen = parser.parse_args(arguments)
    if chosen.world == "campaigns":
        case = campaign_case()
    elif chosen.world == "wagap":
        case = wagap_case(chosen.log, *chosen.days)
    else:
        case = preset_case(chosen.world, *chosen.days)
    every = methods(chosen.steps, chosen.game)
    wanted = [name for name in chosen.methods.split(",") if name] or list(every)
    print(f"{case.train.num_windows} windows to learn from, {case.test.num_windows} to live", flush=True)
    for name in wanted:
        begun = time.perf_counter()
        found = compounding(
            {name: every[name]}, case.train, case.test, case.other, case.encoding,
            horizons=case.horizons, num_seeds=chosen.seeds,
        )  # fmt: skip
        lines = as_table(found, case.horizons).splitlines()
        print("\n".join(lines if name == wanted[0] else lines[2:]), flush=True)
        print(f"    ({time.perf_counter() - begun:.0f} s)", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
