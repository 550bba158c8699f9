"""`schedtwin bench growth`: memory and processor time of commands against the number of days."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.common_arguments import add_inputs, add_plot
from evaluation.commands.options import add_options, given

NAME = "growth"
HELP = "measure memory and processor time of commands against the number of days of an archive, and plot them"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.reproduction.benches.growth import GrowthConfig

    add_inputs(parser, "archive")
    add_options(parser, GrowthConfig, "days", "steps")
    parser.add_argument(
        "--settings",
        metavar="TABLES.toml",
        type=Path,
        help="tables of the commands' configuration, without [days]",
    )
    parser.add_argument(
        "--work",
        metavar="FOLDER",
        type=Path,
        help="work folder; results in it are not measured again (default: a temporary folder)",
    )
    add_plot(parser)


def run(arguments: Namespace) -> int:
    """Measure; 0."""
    import tempfile
    from contextlib import nullcontext

    from evaluation.commands.output import progress_of, show_result
    from evaluation.reproduction.benches.growth import (
        GrowthConfig,
        as_json,
        as_text,
        measure_growth,
        plot_growth,
    )

    settings = "" if arguments.settings is None else arguments.settings.read_text(encoding="utf-8")
    config = given(GrowthConfig(settings=settings), arguments)
    if arguments.work is not None:
        arguments.work.mkdir(parents=True, exist_ok=True)
    with (
        progress_of(arguments) as progress,
        tempfile.TemporaryDirectory(prefix="growth-")
        if arguments.work is None
        else nullcontext(arguments.work) as work,
    ):
        growth = measure_growth(arguments.archive, config, Path(work), progress)
    if arguments.out is not None:
        plot_growth(growth, arguments.out)
    show_result(arguments, as_json(growth), as_text(growth))
    return 0
