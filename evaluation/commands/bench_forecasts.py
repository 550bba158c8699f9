"""`schedtwin bench forecasts`: what users saw in one log, forecast from another log of the same application."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

NAME = "forecasts"
HELP = "forecast response times and use of one log of an application from another, beside simple models"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "archives",
        metavar="ARCHIVE",
        type=Path,
        nargs="+",
        help="folders written by schedtwin import: every one is forecast from every other; the later half of a "
        "single one from its first half",
    )


def run(arguments: Namespace) -> int:
    """Forecast; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.reproduction.benches.forecasts import as_json, as_text, bench_forecasts

    with progress_of(arguments) as progress:
        rows = bench_forecasts(arguments.archives, progress)
    show_result(arguments, as_json(rows), as_text(rows))
    return 0
