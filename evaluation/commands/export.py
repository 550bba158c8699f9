"""`schedtwin export`: a policy as a bundle that runs without the training stack."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.common_arguments import add_inputs
from evaluation.commands.options import add_options, given

NAME = "export"
HELP = "export a policy as NumPy and ONNX, replayed against the original"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.problems.options import ExportOptions

    add_inputs(parser, "policy")
    parser.add_argument("--out", metavar="BUNDLE", required=True, type=Path, help="folder to write")
    add_options(parser, ExportOptions, "policy", "seed", "rule", "comparison", "licence", "replace")
    parser.set_defaults(makes="bundle")


def run(arguments: Namespace) -> int:
    """Export the policy; 0."""
    from evaluation.commands.output import show_result
    from evaluation.problems.kits import kit_of
    from evaluation.problems.options import ExportOptions
    from logs_schema.product import read_manifest

    options = given(ExportOptions(), arguments)
    kit = kit_of(arguments.policy)
    facts = dict(kit.need(kit.export, "schedtwin export")(arguments.out, arguments.policy, options))
    written = {"bundle": str(arguments.out), "content_hash": read_manifest(arguments.out).content_hash}
    which = facts.get("chosen") or f"{facts.get('policy', 'the order')}, seed {facts['seed']}"
    copies = "NumPy and ONNX" if (arguments.out / "policy.onnx").is_file() else "NumPy"
    text = f"{arguments.out} written: {which}; replayed in {copies} against the original\n"
    text += f"to be loaded with --expect {written['content_hash']}"
    show_result(arguments, facts | written, text)
    return 0
