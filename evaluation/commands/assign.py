"""`schedtwin assign train`: fit, train and export of the assignment problem in one go, from an archive to a bundle."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.actions import Action, add_actions
from evaluation.commands.common_arguments import add_out
from evaluation.commands.options import add_options, given, seed

if TYPE_CHECKING:
    from offline_rl.assignment.config import AssignConfig

NAME = "assign"
HELP = "train a scheduler of many requests at once from a log, for schedtwin serve"
TRAIN = "fit --problem assignment, train and export in one go, without a certificate; write the bundle of what won"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the only action."""
    add_actions(parser, "actions", "ACTION", [Action("train", TRAIN, _add_train, _train)])


def run(arguments: Namespace) -> int:
    """Run the chosen action; 0."""
    return int(arguments.action.run(arguments))


def _add_train(parser: ArgumentParser) -> None:
    from offline_rl.assignment.config import AssignConfig

    parser.add_argument(
        "--archive", metavar="ARCHIVE", type=Path, required=True, help="written by schedtwin import"
    )
    add_out(parser, "bundle")
    add_options(parser, AssignConfig, requests="num_requests", edges="num_edges")
    add_options(parser, AssignConfig.learning, "imitation_updates", updates="num_updates")
    parser.add_argument("--seed", metavar="N", type=seed, default=0, help="of everything drawn (default: 0)")
    parser.add_argument("--quick", action="store_true", help="hardly train: to see that everything works")


def _train(arguments: Namespace) -> int:
    """Fit, train, write the bundle, show what it is worth; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.problems.assignment.end_to_end import train_assigner

    with progress_of(arguments) as progress:
        found = train_assigner(
            arguments.archive,
            arguments.out,
            config_of(arguments),
            arguments.seed,
            progress,
            replace=arguments.replace,
        )
    show_result(arguments, found, _text(found))
    return 0


def config_of(arguments: Namespace) -> "AssignConfig":
    """The configuration with the options of the command line."""
    from dataclasses import replace

    from offline_rl.assignment.config import AssignConfig
    from offline_rl.assignment.training import quick

    config = given(quick(AssignConfig()) if arguments.quick else AssignConfig(), arguments)
    return replace(config, learning=given(config.learning, arguments))


def _text(found: dict[str, Any]) -> str:
    return "\n".join(
        [
            *found["words"],
            f"bundle: {found['bundle']}",
            f"content hash: {found['content_hash']}",
        ]
    )
