"""`schedtwin reproduce table1`: all methods of agent generation, compared with agents of held-out days."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.common_arguments import add_work_folder
from evaluation.commands.options import refuse_idle, seed, words

NAME = "table1"
HELP = "fidelity of all methods of agent generation, on archives or a simulated log"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments; not from their configuration, so that a wrong path is reported before heavy imports."""
    parser.add_argument(
        "archives", metavar="ARCHIVE", nargs="*", type=Path, help="archives (default: a log is simulated)"
    )
    parser.add_argument("--preset", metavar="NAME", help="simulated cluster (default: kmps)")
    parser.add_argument(
        "--behaviour",
        metavar="NAME",
        help="policy that wrote the log (default: mix; random is the setting of the paper)",
    )
    parser.add_argument(
        "--days",
        metavar="N",
        type=int,
        help="days of the simulated log, every other one held out (default: 36)",
    )
    parser.add_argument(
        "--methods", metavar="LIST", type=words, help="methods, with commas (default: all of them)"
    )
    parser.add_argument("--seeds", metavar="N", type=int, help="fits of every method (default: 5)")
    parser.add_argument(
        "--rows", metavar="N", type=int, help="agents of each sample at most (default: 20000)"
    )
    parser.add_argument(
        "--rounds", metavar="N", type=int, help="rounds of trained methods at most (default: their own)"
    )
    parser.add_argument("--seed", metavar="N", type=seed, help="of the simulated log (default: 0)")
    parser.add_argument("--quick", action="store_true", help="8 days, 2 seeds, 4000 rows, 400 rounds")
    add_work_folder(parser, NAME)


def run(arguments: Namespace) -> int:
    """Fit what is missing and print the table; 0."""
    from evaluation.commands.output import keep_and_show, progress_of
    from evaluation.reproduction.showing_table1 import as_table
    from evaluation.reproduction.table1 import Table1Config, compare, table

    of_simulated = {name: getattr(arguments, name) for name in ("preset", "behaviour", "days", "seed")}
    said = [f"--{name}" for name, value in of_simulated.items() if value is not None]
    if arguments.archives:
        refuse_idle(
            said,
            "a table of archives",
            where="reproduce table1",
            allowed="options of a simulated log, or archives",
            advice="leave the options out, or the archives",
        )
    quick = {"days": 8, "num_seeds": 2, "max_rows": 4000, "num_rounds": 400} if arguments.quick else {}
    chosen = of_simulated | {
        "methods": arguments.methods,
        "num_seeds": arguments.seeds,
        "max_rows": arguments.rows,
        "num_rounds": arguments.rounds,
    }
    chosen = quick | {name: value for name, value in chosen.items() if value is not None}
    config = Table1Config(tuple(arguments.archives), **chosen)
    with progress_of(arguments) as progress:
        found = table(config, compare(config, arguments.out, progress))
    keep_and_show(arguments, arguments.out / "table1.json", found, as_table(found))
    return 0
