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
    from evaluation.commands.assigner_text import assigner_facts, assigner_text
    from evaluation.commands.bundle_text import bundle_facts, bundle_text
    from evaluation.commands.output import show_result
    from evaluation.commands.scaling_text import scaling_facts, scaling_text
    from logs_schema.errors import ConfigError
    from offline_rl.bundle import ASSIGNMENT_KIND, SCALING_KIND, kind_of

    checks = {"expect": arguments.expect, "trust": arguments.trust}
    kind = kind_of(arguments.bundle)
    if kind == SCALING_KIND:
        if arguments.backend != "numpy":
            raise ConfigError(f"a {kind} has one copy", where="--backend", allowed="numpy")
        facts, text_of = scaling_facts(arguments.bundle, **checks), scaling_text
    else:
        assigns = kind == ASSIGNMENT_KIND
        facts_of, text_of = (assigner_facts, assigner_text) if assigns else (bundle_facts, bundle_text)
        facts = facts_of(arguments.bundle, arguments.backend, **checks)
    show_result(arguments, facts, "" if arguments.json else text_of(facts))
    return 0
