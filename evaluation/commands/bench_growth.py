"""`schedtwin bench growth`: memory and processor time of commands against the number of days."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path

from evaluation.commands.bench_arguments import add_output_arguments, numbers, words

NAME = "growth"
HELP = "measure memory and processor time of commands against the number of days of an archive, and plot them"


def add_bench(benches: _SubParsersAction) -> None:
    """Declare the bench and its arguments."""
    parser = benches.add_parser(NAME, help=HELP, description=HELP)
    parser.set_defaults(bench=run)
    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="folder written by schedtwin import")
    parser.add_argument(
        "--days", metavar="LIST", type=numbers, default=(1, 7, 28),
        help="numbers of days, with commas (default: 1,7,28)",
    )  # fmt: skip
    parser.add_argument(
        "--steps", metavar="LIST", type=words, default=("fit",),
        help="commands, with commas, of survey, fit, certify, compare, train, generate (default: fit)",
    )  # fmt: skip
    parser.add_argument(
        "--settings",
        metavar="TABLES.toml",
        type=Path,
        help="tables of the commands' configuration, without [days]",
    )
    parser.add_argument(
        "--work", metavar="FOLDER", type=Path,
        help="work folder; results in it are not measured again (default: a temporary folder)",
    )  # fmt: skip
    parser.add_argument("--out", metavar="PLOT", type=Path, help="plot to write, .png, .svg or .pdf")
    add_output_arguments(parser)


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
    config = GrowthConfig(arguments.days, tuple(arguments.steps), settings)
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
