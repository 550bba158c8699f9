"""`schedtwin bench forecasts`: what users saw in one log, forecast from another log of the same application."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path

from evaluation.commands.bench_arguments import add_output_arguments

NAME = "forecasts"
HELP = "forecast response times and use of one log of an application from another, beside simple models"


def add_bench(benches: _SubParsersAction) -> None:
    """Declare the bench and its arguments."""
    parser = benches.add_parser(NAME, help=HELP, description=HELP)
    parser.set_defaults(bench=run)
    parser.add_argument(
        "archives", metavar="ARCHIVE", type=Path, nargs="+",
        help="folders written by schedtwin import: every one is forecast from every other; the later half of a "
        "single one from its first half",
    )  # fmt: skip
    add_output_arguments(parser)


def run(arguments: Namespace) -> int:
    """Forecast; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.reproduction.benches.forecasts import as_json, as_text, bench_forecasts

    with progress_of(arguments) as progress:
        rows = bench_forecasts(arguments.archives, progress)
    show_result(arguments, as_json(rows), as_text(rows))
    return 0
