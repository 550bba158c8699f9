"""`schedtwin reproduce corais`: solvers of the assignment problem, against exact optima and lower bounds."""

from argparse import ArgumentParser, Namespace

from evaluation.commands.common_arguments import add_work_folder
from evaluation.commands.options import add_options, given

NAME = "corais"
HELP = "many requests at once: learned schedulers, rules, exact optima and lower bounds on the paper's scales"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.reproduction.corais import CoraisConfig

    add_options(
        parser,
        CoraisConfig,
        "seed",
        instances="num_instances",
        seeds="networks.num_seeds",
        updates="networks.corais_learning.num_updates",
    )
    parser.add_argument("--quick", action="store_true", help="10 instances, three scales, small networks")
    add_work_folder(parser, NAME)


def run(arguments: Namespace) -> int:
    """Solve what is left to solve and print the tables; 0."""
    from evaluation.commands.output import keep_and_show, progress_of
    from evaluation.reproduction.corais import CoraisConfig, characteristics, live_rounds, quick, solve, table
    from evaluation.reproduction.showing_corais import as_table

    config = given(quick(CoraisConfig()) if arguments.quick else CoraisConfig(), arguments)
    with progress_of(arguments) as progress:
        solved = solve(config, arguments.out, progress)
        rounds = live_rounds(config, arguments.out, progress)
        found = table(config, solved, rounds, characteristics(config, arguments.out, progress))
    keep_and_show(arguments, arguments.out / "corais.json", found, as_table(found))
    return 0
