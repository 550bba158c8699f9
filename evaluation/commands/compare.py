"""`schedtwin compare`: policies on time-shifted days."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

NAME = "compare"
HELP = "judge policies on time-shifted days by replay, by twins of those days and, where known, by the truth"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_step_arguments

    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="folder written by schedtwin import")
    parser.add_argument("twin", metavar="TWIN", type=Path, help="folder written by schedtwin fit")
    parser.add_argument(
        "policy",
        metavar="POLICY",
        type=Path,
        nargs="?",
        help="folder written by schedtwin train (default: none)",
    )
    parser.add_argument("--shifts", metavar="LIST", help='for example "0d,1d,7d,30d"')
    add_step_arguments(parser, "comparison")


def run(arguments: Namespace) -> int:
    """Compare, write the report, show the table; 0."""
    from dataclasses import replace

    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.commands.settings import settings_of, write_product
    from evaluation.pipeline import build_comparison, load_comparison
    from evaluation.tabulation import tabulate

    config = settings_of(arguments)
    if arguments.shifts is not None:
        config = replace(config, shifts=replace(config.shifts, shifts=arguments.shifts))
    made_from = {"archive": arguments.archive, "twin": arguments.twin}
    made_from |= {} if arguments.policy is None else {"policy": arguments.policy}
    with progress_of(arguments) as progress:
        write_product(
            arguments,
            "comparison",
            made_from,
            {"shifts": config.shifts, "judge": config.judge, "intervals": config.intervals},
            lambda out: build_comparison(
                out,
                arguments.archive,
                arguments.twin,
                arguments.policy,
                config,
                progress,
                title=arguments.out.name,
            ),
        )
    comparison = load_comparison(arguments.out)
    text = f"{as_text(tabulate(comparison))}report: {arguments.out / 'report.html'}"
    show_result(arguments, comparison.to_json(), text)
    return 0
