"""`schedtwin reproduce drpc`: autoscalers of an application of microservices, in the truth of later days."""

from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import Any

from evaluation.commands.bench_arguments import add_output_arguments, numbers, words

NAME = "drpc"
HELP = "autoscalers of an application of microservices against each other, in the truth of later days"


def add_table(tables: _SubParsersAction) -> None:
    """Declare the table and its arguments."""
    parser = tables.add_parser(NAME, help=HELP, description=HELP)
    parser.set_defaults(reproduce=run)
    parser.add_argument(
        "--preset", metavar="NAME", help="application (default: boutique; with --quick: chain)"
    )
    parser.add_argument("--log-days", metavar="N", type=int, help="days of the log (default: 7)")
    parser.add_argument("--minutes", metavar="N", type=int, help="length of a trace (default: 300)")
    parser.add_argument(
        "--shifts", metavar="LIST", type=numbers, help="days after the log, with commas (default: 0,1,7,30)"
    )
    parser.add_argument("--seeds", metavar="N", type=int, help="traces of every shift (default: 5)")
    parser.add_argument(
        "--autoscalers", metavar="LIST", type=words, help="names, with commas (default: all of them)"
    )
    parser.add_argument(
        "--updates", metavar="N", type=int, help="trajectories that a teacher is trained on (default: 150)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the log (default: 0)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="chain, 2 days of log, 60 minutes, shifts 0 and 30, 3 seeds, 80 trajectories",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path(NAME), help="work folder (default: ./drpc)"
    )
    add_output_arguments(parser)


def run(arguments: Namespace) -> int:
    """Compute what is missing and print the table; 0."""
    import json

    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.reproduction.drpc import DrpcConfig, compare
    from evaluation.reproduction.showing_drpc import as_table

    quick: dict[str, Any] = (
        {"preset": "chain", "log_days": 2, "minutes": 60, "shifts": (0, 30), "num_seeds": 3, "updates": 80}
        if arguments.quick
        else {}
    )
    chosen: dict[str, Any] = {
        "preset": arguments.preset, "log_days": arguments.log_days, "minutes": arguments.minutes,
        "shifts": arguments.shifts, "num_seeds": arguments.seeds, "autoscalers": arguments.autoscalers,
        "updates": arguments.updates,
    }  # fmt: skip
    chosen = quick | {name: value for name, value in chosen.items() if value is not None}
    with progress_of(arguments) as progress:
        found = compare(DrpcConfig(seed=arguments.seed, **chosen), arguments.out, progress)
    (arguments.out / "drpc.json").write_text(json.dumps(found, indent=1) + "\n")
    show_result(arguments, found, as_text(as_table(found)).rstrip())
    return 0
