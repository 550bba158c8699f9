"""`schedtwin inspect`: what a bundle is, verified and replayed before it is shown."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.expecting import add_expected

NAME = "inspect"
HELP = "show what an exported policy is: verified, replayed, its contract for a person or as JSON"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder written by schedtwin export")
    parser.add_argument(
        "--backend",
        choices=("numpy", "onnx"),
        default="numpy",
        help="which copy decides the golden observations",
    )
    add_expected(parser)


def run(arguments: Namespace) -> int:
    """Show the bundle; 0."""
    from evaluation.commands.bundle_text import bundle_facts, bundle_text
    from evaluation.commands.output import show_result

    facts = bundle_facts(arguments.bundle, arguments.backend, expect=arguments.expect, trust=arguments.trust)
    show_result(arguments, facts, "" if arguments.json else bundle_text(facts))
    return 0
