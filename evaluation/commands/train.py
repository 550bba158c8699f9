"""`schedtwin train`: policies in a twin."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.common_arguments import add_inputs
from evaluation.commands.engine_arguments import add_engine_arguments, refuse_idle_engine

NAME = "train"
HELP = "train policies in a twin by its problem's recipe; for placement behaviour cloning, then PPO near the clone"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_step_arguments

    add_inputs(parser, "twin")
    parser.add_argument(
        "--force",
        action="store_true",
        help="train also in a twin that has not passed schedtwin certify; later reports state it",
    )
    parser.add_argument(
        "--certificate",
        metavar="CERTIFICATE",
        type=Path,
        help="the twin's certificate, if schedtwin certify was told to --keep it elsewhere",
    )
    add_step_arguments(parser, "policy")
    add_engine_arguments(parser)


def run(arguments: Namespace) -> int:
    """Train the policies and print their in-model values; 0."""
    from evaluation.certify.persistence import (
        KIND,
        certification_folder,
        certification_in,
        refuse_uncertified,
    )
    from evaluation.commands.output import show_result
    from evaluation.commands.settings import make_step, settings_of
    from evaluation.problems.kits import kit_of

    config, kit = settings_of(arguments), kit_of(arguments.twin)
    folder = certification_folder(arguments.twin, arguments.certificate)
    found = certification_in(folder)
    train = kit.need(kit.train, "schedtwin train")
    refuse_idle_engine(arguments, kit, NAME)
    kit.refuse_untrainable(arguments.twin)
    if not arguments.force:
        refuse_uncertified(found, arguments.twin)
    inputs = {"twin": arguments.twin} | ({} if folder is None else {KIND: folder})
    facts = make_step(arguments, train(config), inputs)
    lines = kit.trained(facts)
    lines += [] if found.passed else [f"{found.words}; later reports state it"]
    judged = "" if kit.compare is None else ": schedtwin compare evaluates the policies"
    lines.append(f"{arguments.out} written; in-model values are no proof{judged}")
    show_result(arguments, facts, "\n".join(lines))
    return 0
