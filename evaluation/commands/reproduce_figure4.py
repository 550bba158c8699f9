"""`schedtwin reproduce figure4`: the offload ratio over the parts of the day, twins against the system."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path

from evaluation.commands.bench_arguments import add_log_arguments, add_output_arguments

NAME = "figure4"
HELP = "offload ratio over the parts of the day: one twin, a twin for every part, and the system itself"


def add_table(tables: _SubParsersAction) -> None:
    """Declare the figure and its arguments."""
    parser = tables.add_parser(NAME, help=HELP, description=HELP)
    parser.set_defaults(reproduce=run)
    add_log_arguments(parser)
    parser.add_argument(
        "--seeds", metavar="N", type=int, default=5, help="logs, each with its own twins (default: 5)"
    )
    parser.add_argument("--parts", metavar="N", type=int, default=12, help="parts of the day (default: 12)")
    parser.add_argument(
        "--shift", metavar="N", type=int, default=1,
        help="days from the training day to the simulated day (default: 1)",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one seed, smaller ensembles, shorter fits")
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path(NAME),
        help="work folder; figure4.png and figure4.json are written into it (default: ./figure4)",
    )  # fmt: skip
    add_output_arguments(parser)


def run(arguments: Namespace) -> int:
    """Fit and simulate what is missing, draw the figure and print its table; 0."""
    import json

    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.reproduction.figure4 import Figure4Config, curves, quick, table
    from evaluation.reproduction.showing_figure4 import as_table, plot

    config = Figure4Config(
        arguments.preset, arguments.behaviour, arguments.seeds, arguments.parts, arguments.shift
    )
    config = quick(config) if arguments.quick else config
    with progress_of(arguments) as progress:
        found = table(config, curves(config, arguments.out, progress))
    plot(found, arguments.out / "figure4.png")
    (arguments.out / "figure4.json").write_text(json.dumps(found, indent=1) + "\n")
    show_result(
        arguments, found, as_text(as_table(found)).rstrip() + f"\n{arguments.out / 'figure4.png'} drawn"
    )
    return 0
