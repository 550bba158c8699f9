"""`schedtwin reproduce drpc`: autoscalers of an application of microservices, in the truth of later days."""

from argparse import ArgumentParser, Namespace

from evaluation.commands.common_arguments import add_work_folder
from evaluation.commands.options import add_options, given

NAME = "drpc"
HELP = "autoscalers of an application of microservices against each other, in the truth of later days"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.reproduction.drpc import DrpcConfig

    add_options(
        parser, DrpcConfig, "preset", "log_days", "minutes", "shifts", "autoscalers", "updates", "seed",
        "refreshed_days",
        seeds="num_seeds",
    )  # fmt: skip
    parser.add_argument(
        "--quick",
        action="store_true",
        help="chain, 2 days of log, 60 minutes, shifts 0 and 30, 3 seeds, 80 trajectories",
    )
    add_work_folder(parser, NAME)


def run(arguments: Namespace) -> int:
    """Compute what is missing and print the table; 0."""
    from evaluation.commands.output import keep_and_show, progress_of
    from evaluation.reproduction.drpc import DrpcConfig, compare, quick
    from evaluation.reproduction.showing_drpc import as_table

    config = given(quick(DrpcConfig()) if arguments.quick else DrpcConfig(), arguments)
    with progress_of(arguments) as progress:
        found = compare(config, arguments.out, progress)
    keep_and_show(arguments, arguments.out / "drpc.json", found, as_table(found))
    return 0
