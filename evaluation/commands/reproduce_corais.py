"""`schedtwin reproduce corais`: solvers of the assignment problem, against exact optima and lower bounds."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path

from evaluation.commands.bench_arguments import add_output_arguments

NAME = "corais"
HELP = "many requests at once: learned schedulers, rules, exact optima and lower bounds on the paper's scales"


def add_table(tables: _SubParsersAction) -> None:
    """Declare the tables and their arguments."""
    parser = tables.add_parser(NAME, help=HELP, description=HELP)
    parser.set_defaults(reproduce=run)
    parser.add_argument(
        "--instances", metavar="N", type=int,
        help="instances of a scale of table III; a tenth of it for table IV, a hundredth for table V (default: 1000)",
    )  # fmt: skip
    parser.add_argument("--seeds", metavar="N", type=int, help="networks of every kind (default: 5)")
    parser.add_argument(
        "--updates",
        metavar="N",
        type=int,
        help="updates of CoRaiS and its ablations (default: 40000, the paper's)",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the instances (default: 0)")
    parser.add_argument("--quick", action="store_true", help="10 instances, three scales, small networks")
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path(NAME), help="work folder (default: ./corais)"
    )
    add_output_arguments(parser)


def run(arguments: Namespace) -> int:
    """Solve what is left to solve and print the tables; 0."""
    import json
    from dataclasses import replace

    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.reproduction.corais import CoraisConfig, characteristics, live_rounds, quick, solve, table
    from evaluation.reproduction.showing_corais import as_table

    config = CoraisConfig(seed=arguments.seed)
    config = quick(config) if arguments.quick else config
    if arguments.instances is not None:
        config = replace(config, num_instances=arguments.instances)
    networks = config.networks
    if arguments.seeds is not None:
        networks = replace(networks, num_seeds=arguments.seeds)
    if arguments.updates is not None:
        networks = replace(
            networks, corais_learning=replace(networks.corais_learning, num_updates=arguments.updates)
        )
    config = replace(config, networks=networks)
    with progress_of(arguments) as progress:
        solved = solve(config, arguments.out, progress)
        rounds = live_rounds(config, arguments.out, progress)
        found = table(config, solved, rounds, characteristics(config, arguments.out, progress))
    (arguments.out / "corais.json").write_text(json.dumps(found, indent=1) + "\n")
    show_result(arguments, found, as_text(as_table(found)).rstrip())
    return 0
