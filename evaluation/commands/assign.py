"""`schedtwin assign train`: a scheduler of many requests at once, trained on rounds of a log, as a bundle."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.bench_arguments import add_output_arguments

if TYPE_CHECKING:
    from evaluation.problems.assignment.training import AssignerTrainingConfig

NAME = "assign"
HELP = "train a scheduler of many requests at once from a log, for schedtwin serve"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    train = actions.add_parser(
        "train", help="fit edges, draw rounds, train a network, write its bundle", description=HELP
    )
    train.add_argument(
        "--archive", metavar="ARCHIVE", type=Path, required=True, help="written by schedtwin import"
    )
    train.add_argument("--out", metavar="BUNDLE", type=Path, required=True, help="folder to write")
    train.add_argument("--requests", metavar="N", type=int, help="of a round in training (default: 100)")
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
    """Train, write the bundle, show what it is worth; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.problems.assignment.training import train_assigner

    with progress_of(arguments) as progress:
        found = train_assigner(
            arguments.archive, arguments.out, config_of(arguments), progress, replace=arguments.replace
        )
    show_result(arguments, found, _text(found))
    return 0


def config_of(arguments: Namespace) -> "AssignerTrainingConfig":
    """What the arguments ask for."""
    from dataclasses import replace

    from evaluation.problems.assignment.training import AssignerTrainingConfig, quick
    from logs_schema.errors import ConfigError

    config = AssignerTrainingConfig(seed=arguments.seed)
    config = quick(config) if arguments.quick else config
    asked = {"num_requests": arguments.requests, "num_edges": arguments.edges}
    rounds = replace(config.rounds, **{name: one for name, one in asked.items() if one is not None})
    updates = {"num_updates": arguments.updates, "imitation_updates": arguments.imitation_updates}
    for name, one in updates.items():
        if one is not None and one < 0:
            raise ConfigError(f"{name} = {one}", where="assign train", allowed="0 or more")
    if arguments.seed < 0:
        raise ConfigError(f"--seed {arguments.seed}", where="assign train", allowed="0 or more")
    learning = replace(config.learning, **{name: one for name, one in updates.items() if one is not None})
    return replace(config, rounds=rounds, learning=learning)


def _text(found: dict[str, Any]) -> str:
    held_out, num_rows = found["held_out"], found["num_rows"]
    lines = [f"{len(found['edges'])} edges from {num_rows:,} requests, sizes by {found['size']}"]
    lines += [f"  {note}" for note in found["notes"]]
    ratio, worst = held_out["over_local_search"], held_out["worst_over_local_search"]
    return "\n".join([
        *lines,
        f"trained on rounds of {found['num_requests']} requests and {found['num_edges']} edges",
        f"{held_out['num_rounds']} other rounds: makespan {ratio:.4f} of that of local search in equal time "
        f"({1000 * held_out['search_s']:g} ms), {worst:.4f} at worst",
        f"bundle: {found['bundle']}",
        f"content hash: {found['content_hash']}",
    ])  # fmt: skip
