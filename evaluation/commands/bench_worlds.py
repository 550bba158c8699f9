"""`schedtwin bench worlds`: twins' in-model values and certificates against the truth of various simulated worlds."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands.common_arguments import add_work_folder
from evaluation.commands.engine_arguments import add_engine_arguments, engine_from
from evaluation.commands.options import add_options, given

if TYPE_CHECKING:
    from evaluation.simulator.world import World

NAME = "worlds"
FIRST_LOOK = ("own_family", "sharing", "slow_periods", "limits")
"""Worlds of `--quick`: what twins are made for, and three that they are not."""
HELP = "compare twins' in-model values and certificates with the truth, in simulated worlds of many kinds"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.reproduction.benches.worlds_bench import WorldsBenchConfig

    parser.add_argument(
        "--worlds",
        metavar="LIST",
        help="names from evaluation/examples/worlds, or files WORLD.toml, with commas (default: all; with --quick "
        f"{', '.join(FIRST_LOOK)})",
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=int,
        default=1,
        help="draws of every world, each with its log (default: 1)",
    )
    add_options(parser, WorldsBenchConfig, "shifts", "updates", requests="num_requests")
    parser.add_argument(
        "--quick", action="store_true", help="a first look: four worlds, short days, small twins, one shift"
    )
    add_work_folder(parser, NAME)
    add_engine_arguments(parser)


def run(arguments: Namespace) -> int:
    """Measure what is missing, and print all results; 0."""
    from evaluation.commands.output import keep_and_show, progress_of
    from evaluation.reproduction.benches.worlds_bench import WorldsBenchConfig, bench_worlds, quick
    from evaluation.reproduction.benches.worlds_table import as_json, as_table
    from logs_schema.records import to_plain

    config = WorldsBenchConfig(seeds=tuple(range(arguments.seeds)))
    config = given(quick(config) if arguments.quick else config, arguments)
    with progress_of(arguments) as progress:
        found = bench_worlds(
            _worlds(_listed(arguments)), config, arguments.out, engine_from(arguments), progress
        )
    result = as_json(found, to_plain(config))
    keep_and_show(arguments, arguments.out / "worlds.json", result, as_table(found))
    return 0


def _listed(arguments: Namespace) -> str | None:
    """What `--worlds` lists, or its default."""
    return ",".join(FIRST_LOOK) if arguments.quick and arguments.worlds is None else arguments.worlds


def _worlds(listed: str | None) -> "list[World]":
    """The worlds of a comma-separated list of names and files; ConfigError for an unknown name."""
    from evaluation.simulator.world_files import load_world
    from logs_schema.errors import ConfigError

    examples = {path.stem: path for path in sorted(EXAMPLES.glob("*.toml"))}
    found = []
    for name in [*examples] if listed is None else listed.split(","):
        if not name.endswith(".toml") and name not in examples:
            raise ConfigError(
                f"there is no world {name!r}",
                where="bench worlds, --worlds",
                allowed=f"{', '.join(examples)}, or files WORLD.toml",
            )
        found.append(load_world(examples.get(name, Path(name))))
    return found


EXAMPLES = Path(__file__).parents[1] / "examples" / "worlds"
"""Worlds as files, beside the code."""
