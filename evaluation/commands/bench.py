"""`schedtwin bench`: measurements that others can repeat."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands import (
    bench_forecasts,
    bench_growth,
    bench_orchestration,
    bench_scaling,
    bench_worlds,
)
from evaluation.commands.actions import Action, add_actions
from evaluation.commands.common_arguments import (
    add_out,
    add_reference_arguments,
    add_world_arguments,
    refuse_idle_references,
)
from evaluation.commands.options import add_options, given, numbers, seed, words

if TYPE_CHECKING:
    from evaluation.jobs.engine.config import EngineConfig
    from evaluation.reproduction.benches.reference import ReferenceConfig
    from evaluation.reproduction.benches.reference_cache import Kept
    from evaluation.simulator.world import World
    from logs_schema.progress import Progress

NAME = "bench"
HELP = "measure policies in simulated clusters, and the cost of simulations and commands"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the benches and their arguments."""
    add_actions(parser, "benches", "BENCH", BENCHES)


def run(arguments: Namespace) -> int:
    """Run the chosen bench; 0."""
    return int(arguments.action.run(arguments))


def _add_truth(parser: ArgumentParser) -> None:
    from evaluation.reproduction.benches.truth_bench import TruthBenchConfig

    add_world_arguments(parser, "kais")
    parser.add_argument(
        "--days",
        metavar="LIST",
        type=numbers,
        default=(0, 1, 7, 30),
        help="days after day 0, with commas (default: 0,1,7,30)",
    )
    add_options(parser, TruthBenchConfig, seeds="num_seeds")
    parser.add_argument(
        "--policies", metavar="LIST", type=words, help="baselines, with commas (default: those of the proof)"
    )
    add_reference_arguments(parser)


def _truth(arguments: Namespace) -> int:
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.reproduction.benches.truth_bench import (
        SHOWN,
        TruthBenchConfig,
        bench_truth,
        validate_bench,
    )
    from evaluation.reproduction.benches.truth_proof import as_json, as_table
    from evaluation.simulator.world_files import chosen_world

    refuse_idle_references(arguments)
    world = chosen_world(arguments.preset, arguments.world)
    config = given(TruthBenchConfig(), arguments)
    policies = arguments.policies or SHOWN
    validate_bench(arguments.days, policies)
    with progress_of(arguments) as progress:
        kept = (
            []
            if arguments.no_reference
            else trained_references(world, sorted({0, *arguments.days}), arguments.references, progress)
        )
        with progress.stage("bench truth", unit="scores") as stage:
            scores = bench_truth(
                world,
                arguments.days,
                config,
                policies=policies,
                references=[one.reference for one in kept],
                progress=stage,
            )
    text = as_text(as_table(world, scores, kept)).rstrip()
    show_result(arguments, as_json(world, config, scores, kept), text)
    return 0


def trained_references(
    world: "World",
    days: "Sequence[int]",
    folder: "Path | None",
    progress: "Progress",
    config: "ReferenceConfig | None" = None,
    engine: "EngineConfig | None" = None,
) -> "list[Kept]":
    """The references of some days; missing ones are trained, one task for each day where there is an engine."""
    from evaluation.reproduction.benches.reference import ReferenceConfig
    from evaluation.reproduction.benches.reference_cache import REFERENCES, kept_reference, train_ahead
    from logs_schema.stores import cache_folder

    config, found, folder = config or ReferenceConfig(), [], folder or cache_folder(REFERENCES)
    if engine is not None:
        train_ahead(world, sorted(set(days)), config, folder.absolute(), engine, progress)
    for day in sorted(set(days)):
        name = f"reference of day {day}"
        with progress.stage(name, total=config.most_updates, unit="updates") as stage:
            kept = kept_reference(world, day, config, folder, progress=stage)
        if kept.trained_now:
            progress.note(f"{name}: trained in {kept.train_s:.0f} s, kept in {kept.folder}")
        found.append(kept)
    return found


def _add_reference(parser: ArgumentParser) -> None:
    add_world_arguments(parser, "kais")
    parser.add_argument("--day", metavar="N", type=int, default=0, help="day to train on (default: 0)")
    parser.add_argument(
        "--updates",
        metavar="N",
        type=int,
        help="updates of PPO, doubled while the value improves (default: those of bench truth)",
    )
    parser.add_argument("--seed", metavar="N", type=seed, default=0, help="seed (default: 0)")
    add_out(parser, "reference")


def _reference(arguments: Namespace) -> int:
    from evaluation.commands.output import follow_up, progress_of, show_result
    from evaluation.reproduction.benches.reference import ReferenceConfig, write_reference
    from evaluation.reproduction.benches.reference_cache import made_from
    from evaluation.simulator.world_files import chosen_world

    world, config = chosen_world(arguments.preset, arguments.world), ReferenceConfig()
    if arguments.updates is not None:
        config = config.of_length(arguments.updates)
    with (
        progress_of(arguments) as progress,
        progress.stage("reference", total=config.most_updates, unit="updates") as stage,
    ):
        facts = write_reference(
            world,
            arguments.day,
            config,
            arguments.out,
            sources=made_from(world),
            seed=arguments.seed,
            overwrite=arguments.replace,
            progress=stage,
        )
    chosen = ("--preset", world.name) if arguments.world is None else ("--world", arguments.world)
    following = follow_up("bench", "truth", *chosen)
    text = f"{arguments.out} written: a reference of {world.name}, day {arguments.day}\n{following}"
    show_result(arguments, facts, text)
    return 0


BENCHES = (
    Action("truth", "score baselines in a simulated cluster, on several days", _add_truth, _truth),
    Action(
        "reference",
        "train an upper bound: a rule with access to the hidden state, then PPO in the truth",
        _add_reference,
        _reference,
    ),
    bench_scaling,
    bench_growth,
    bench_forecasts,
    bench_orchestration,
    bench_worlds,
)
"""The measurements, as actions of the command."""
