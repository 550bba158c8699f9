"""`schedtwin assign train`: fit, train and export of the assignment problem in one go, from an archive to a bundle."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.bench_arguments import add_output_arguments

if TYPE_CHECKING:
    from offline_rl.assignment.config import AssignConfig

NAME = "assign"
HELP = "train a scheduler of many requests at once from a log, for schedtwin serve"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    train = actions.add_parser(
        "train", description="fit --problem assignment, train and export in one go, without a certificate",
        help="fit edges, draw rounds, train a network, write the bundle of what won",
    )  # fmt: skip
    train.add_argument(
        "--archive", metavar="ARCHIVE", type=Path, required=True, help="written by schedtwin import"
    )
    train.add_argument("--out", metavar="BUNDLE", type=Path, required=True, help="folder to write")
    train.add_argument(
        "--requests", metavar="N", type=int,
        help="of a round in training (default: as many as come in one at the log's busiest hour, 20 to 100)",
    )  # fmt: skip
    train.add_argument(
        "--edges",
        metavar="N",
        type=int,
        help="of a round, drawn among the log's nodes (default: all, at most 20)",
    )
    train.add_argument("--updates", metavar="N", type=int, help="updates of reinforcement (default: 2000)")
    train.add_argument(
        "--imitation-updates",
        metavar="N",
        type=int,
        help="updates that imitate local search before (default: 2000)",
    )
    train.add_argument("--seed", metavar="N", type=int, default=0, help="of everything drawn (default: 0)")
    train.add_argument("--quick", action="store_true", help="hardly train: to see that everything works")
    train.add_argument("--replace", action="store_true", help="replace a bundle that is already there")
    add_output_arguments(train)


def run(arguments: Namespace) -> int:
    """Fit, train, write the bundle, show what it is worth; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.problems.assignment.in_one_go import train_assigner

    with progress_of(arguments) as progress:
        found = train_assigner(
            arguments.archive, arguments.out, config_of(arguments), arguments.seed, progress, replace=arguments.replace
        )  # fmt: skip
    show_result(arguments, found, _text(found))
    return 0


def config_of(arguments: Namespace) -> "AssignConfig":
    """The configuration with the options of the command line."""
    from dataclasses import replace

    from evaluation.problems.assignment.training import quick
    from logs_schema.errors import ConfigError
    from offline_rl.assignment.config import AssignConfig

    if arguments.seed < 0:
        raise ConfigError(f"--seed {arguments.seed}", where="assign train", allowed="0 or more")
    config = AssignConfig(num_requests=arguments.requests, num_edges=arguments.edges)
    config = quick(config) if arguments.quick else config
    updates = {"num_updates": arguments.updates, "imitation_updates": arguments.imitation_updates}
    given = {name: one for name, one in updates.items() if one is not None}
    return replace(config, learning=replace(config.learning, **given))


def _text(found: dict[str, Any]) -> str:
    return "\n".join([
        *found["words"],
        f"bundle: {found['bundle']}",
        f"content hash: {found['content_hash']}",
    ])  # fmt: skip
