"""`schedtwin inspect`: the description of a bundle, after verification and replay."""

from argparse import ArgumentParser, Namespace

from evaluation.commands.common_arguments import add_inputs
from evaluation.commands.expecting import add_expected

NAME = "inspect"
HELP = "verify and replay an exported policy, and show its contract as tables or as JSON"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_inputs(parser, "bundle")
    parser.add_argument(
        "--backend",
        choices=("numpy", "onnx"),
        default="numpy",
        help="backend that replays the golden decisions",
    )
    add_expected(parser)


def run(arguments: Namespace) -> int:
    """Show the bundle; 0."""
    from evaluation.commands.bundle_pages import page_of
    from evaluation.commands.output import show_result

    page = page_of(arguments.bundle)
    facts = page.facts(arguments.bundle, arguments.backend, expect=arguments.expect, trust=arguments.trust)
    show_result(arguments, facts, "" if arguments.json else page.text(facts))
    return 0
