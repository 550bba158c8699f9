"""`schedtwin reproduce figure4`: the offload ratio over the parts of the day, twins against the system."""

from argparse import ArgumentParser, Namespace

from evaluation.commands.common_arguments import add_work_folder
from evaluation.commands.options import add_options, given

NAME = "figure4"
HELP = "offload ratio over the parts of the day: one twin, a twin for every part, and the system itself"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.reproduction.figure4 import Figure4Config

    add_options(parser, Figure4Config, "preset", "behaviour", "shift", seeds="num_seeds", parts="num_parts")
    parser.add_argument("--quick", action="store_true", help="one seed, smaller ensembles, shorter fits")
    add_work_folder(parser, NAME)


def run(arguments: Namespace) -> int:
    """Fit and simulate what is missing, draw the figure and print its table; 0."""
    from evaluation.commands.output import keep_and_show, progress_of
    from evaluation.reproduction.figure4 import Figure4Config, curves, quick, table
    from evaluation.reproduction.showing_figure4 import as_table, plot

    config = given(quick(Figure4Config()) if arguments.quick else Figure4Config(), arguments)
    with progress_of(arguments) as progress:
        found = table(config, curves(config, arguments.out, progress))
    plot(found, arguments.out / "figure4.png")
    drawn = f"\n{arguments.out / 'figure4.png'} drawn"
    keep_and_show(arguments, arguments.out / "figure4.json", found, as_table(found), drawn)
    return 0
