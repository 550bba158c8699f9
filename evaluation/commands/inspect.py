"""`schedtwin inspect`: the description of a bundle, after verification and replay."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.expecting import add_expected

NAME = "inspect"
HELP = "verify and replay an exported policy, and show its contract as tables or as JSON"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder written by schedtwin export")
    parser.add_argument(
        "--backend",
        choices=("numpy", "onnx"),
        default="numpy",
        help="backend that replays the golden decisions",
    )
    add_expected(parser)


def run(arguments: Namespace) -> int:
    """Show the bundle; 0."""
    from evaluation.commands.bundle_text import bundle_facts, bundle_text
    from evaluation.commands.output import show_result
    from evaluation.commands.scaling_text import scaling_facts, scaling_text
    from logs_schema.errors import ConfigError
    from offline_rl.bundle import SCALING_KIND, kind_of

    if kind_of(arguments.bundle) == SCALING_KIND:
        if arguments.backend != "numpy":
            raise ConfigError("an autoscaler has one copy", where="--backend", allowed="numpy")
        found = scaling_facts(arguments.bundle, expect=arguments.expect, trust=arguments.trust)
        show_result(arguments, found, "" if arguments.json else scaling_text(found))
        return 0
    facts = bundle_facts(arguments.bundle, arguments.backend, expect=arguments.expect, trust=arguments.trust)
    show_result(arguments, facts, "" if arguments.json else bundle_text(facts))
    return 0
