"""`schedtwin bench`: measurements that others can repeat."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands.bench_arguments import add_output_arguments, add_world_arguments, numbers, words
from evaluation.commands.bench_orchestration import add_bench as add_orchestration
from evaluation.commands.bench_scaling import add_bench as add_scaling
from evaluation.commands.bench_worlds import add_bench as add_worlds

if TYPE_CHECKING:
    from evaluation.benches.oracle_cache import Kept
    from evaluation.simulator.world import World
    from logs_schema.progress import Progress, Stage

NAME = "bench"
HELP = "measure: how far a simulated cluster tells policies apart"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the benches and their arguments."""
    benches = parser.add_subparsers(title="benches", metavar="BENCH", required=True)
    truth = benches.add_parser("truth", help="score baselines in a simulated cluster, on several days")
    truth.set_defaults(bench=_truth)
    add_world_arguments(truth, "kais")
    truth.add_argument(
        "--days", metavar="LIST", type=numbers, default=(0, 1, 7, 30),
        help="days after day 0, with commas (default: 0,1,7,30)",
    )  # fmt: skip
    truth.add_argument("--seeds", metavar="N", type=int, default=5, help="repetitions (default: 5)")
    truth.add_argument(
        "--policies", metavar="LIST", type=words, help="baselines, with commas (default: those of the proof)"
    )
    truth.add_argument(
        "--oracles", metavar="FOLDER", type=Path,
        help="where trained oracles are kept (default: the user's cache); missing ones are trained",
    )  # fmt: skip
    truth.add_argument("--no-oracle", action="store_true", help="leave the oracles out")
    truth.add_argument(
        "--doubled",
        action="store_true",
        help="also train oracles with twice the updates: is the budget enough?",
    )
    oracle = benches.add_parser("oracle", help="train PPO in a simulated cluster itself, as a reference")
    oracle.set_defaults(bench=_oracle)
    add_world_arguments(oracle, "kais")
    oracle.add_argument("--day", metavar="N", type=int, default=0, help="day to train on (default: 0)")
    oracle.add_argument(
        "--updates", metavar="N", type=int, help="updates of PPO (default: those of bench truth)"
    )
    oracle.add_argument("--seed", metavar="N", type=int, default=0, help="seed (default: 0)")
    oracle.add_argument("--out", metavar="ORACLE", required=True, type=Path, help="folder to write")
    oracle.add_argument("--replace", action="store_true", help="replace an oracle that is already there")
    add_scaling(benches)
    add_orchestration(benches)
    add_worlds(benches)
    for bench in (truth, oracle):
        add_output_arguments(bench)


def run(arguments: Namespace) -> int:
    """Run the bench that was asked for; 0."""
    return int(arguments.bench(arguments))


def _truth(arguments: Namespace) -> int:
    from evaluation.benches.truth_bench import SHOWN, TruthBenchConfig, bench_truth, validate_bench
    from evaluation.benches.truth_proof import as_json, as_table
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.simulator.world_files import chosen_world

    world = chosen_world(arguments.preset, arguments.world)
    config = TruthBenchConfig(num_seeds=arguments.seeds)
    policies = arguments.policies or SHOWN
    validate_bench(arguments.days, policies)
    with progress_of(arguments) as progress:
        usual = (
            []
            if arguments.no_oracle
            else trained_oracles(world, arguments.days, arguments.oracles, progress, times=1)
        )
        doubled = (
            trained_oracles(world, arguments.days, arguments.oracles, progress, times=2)
            if arguments.doubled and usual
            else []
        )
        with progress.stage("bench truth", unit="scores") as stage:
            scores = bench_truth(
                world, arguments.days, config, policies=policies,
                oracles=[kept.oracle for kept in usual], doubled=[kept.oracle for kept in doubled],
                progress=_told(stage),
            )  # fmt: skip
    kept = [*usual, *doubled]
    text = as_text(as_table(world, scores, kept)).rstrip()
    show_result(arguments, as_json(world, config, scores, kept), text)
    return 0


def trained_oracles(
    world: "World", days: "Sequence[int]", folder: "Path | None", progress: "Progress", *, times: int
) -> "list[Kept]":
    """The oracles of day 0 and the days asked for, `times` the usual updates; trained where they are not kept yet."""
    from dataclasses import replace

    from evaluation.benches.oracle import OracleConfig
    from evaluation.benches.oracle_cache import cache_folder, kept_oracle

    config = OracleConfig()
    config = replace(config, num_updates=times * config.num_updates)
    found = []
    for day in sorted({0, *days}):
        name = f"oracle of day {day}" + (f", {times} times the updates" if times > 1 else "")
        with progress.stage(name, total=config.num_updates, unit="updates") as stage:
            kept = kept_oracle(world, day, config, folder or cache_folder(), progress=_told(stage))
        if kept.trained_now:
            progress.note(f"{name}: trained in {kept.train_s:.0f} s, kept in {kept.folder}")
        found.append(kept)
    return found


def _told(stage: "Stage") -> Callable[[int, str], None]:
    return lambda done, what: stage(done, text=what)


def _oracle(arguments: Namespace) -> int:
    from evaluation.benches.oracle import OracleConfig, write_oracle
    from evaluation.benches.oracle_cache import made_from
    from evaluation.commands.output import progress_of, show_result
    from evaluation.simulator.world_files import chosen_world

    world, config = chosen_world(arguments.preset, arguments.world), OracleConfig()
    if arguments.updates is not None:
        config = OracleConfig(num_updates=arguments.updates)
    with (
        progress_of(arguments) as progress,
        progress.stage("oracle", total=config.num_updates, unit="updates") as stage,
    ):
        facts = write_oracle(
            world, arguments.day, config, arguments.out,
            sources=made_from(world), seed=arguments.seed, replace=arguments.replace,
            progress=lambda done, what: stage(done, text=what),
        )  # fmt: skip
    chosen = f"--preset {world.name}" if arguments.world is None else f"--world {arguments.world}"
    text = (
        f"{arguments.out} written: an oracle of {world.name}, day {arguments.day}\n"
        f"next: schedtwin bench truth {chosen}"
    )
    show_result(arguments, facts, text)
    return 0
