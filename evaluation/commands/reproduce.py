"""`schedtwin reproduce`: the project's tables, from nothing."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

NAME = "reproduce"
HELP = "make the project's main table again, from nothing"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("table", metavar="TABLE", choices=("table2",), help="which table: table2")
    parser.add_argument("--preset", metavar="NAME", default="kmps", help="simulated cluster (default: kmps)")
    parser.add_argument(
        "--behaviour", metavar="NAME", default="mix",
        help="who wrote the log (default: mix; random is the paper's own setting)",
    )  # fmt: skip
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed (default: 0)")
    parser.add_argument("--quick", action="store_true", help="train for less long and live fewer days")
    parser.add_argument("--no-oracle", action="store_true", help="leave the oracles out")
    parser.add_argument(
        "--oracles", metavar="FOLDER", type=Path,
        help="where trained oracles are kept (default: the user's cache); missing ones are trained",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, help="work folder (default: ./table2 and what was asked for)"
    )


def run(arguments: Namespace) -> int:
    """Run what is left of the job and print the table; 0."""
    import json

    from evaluation.commands.bench import trained_oracles
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.reproduction.showing import as_table
    from evaluation.reproduction.table2 import Table2Config, live, quick, table, train_all
    from evaluation.schedulers import load_schedulers

    config = Table2Config(arguments.preset, arguments.behaviour, seed=arguments.seed)
    name = f"table2-{config.preset}-{config.behaviour}"
    if arguments.quick:
        config, name = quick(config), f"{name}-quick"
    workdir = arguments.out or Path(name)
    with progress_of(arguments) as progress:
        oracles = []
        if not arguments.no_oracle:
            oracles = trained_oracles(config.preset, config.days, arguments.oracles, progress, times=1)
        products = train_all(config, workdir, progress)
        lived = live(config, products, oracles, progress)
        found = table(config, lived, load_schedulers(products["policy"])[0], oracles)
    (workdir / "table2.json").write_text(json.dumps(found, indent=1) + "\n")
    show_result(arguments, found, as_text(as_table(found)).rstrip())
    return 0
