"""`schedtwin export`: a policy as a bundle that runs without the training stack."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

NAME = "export"
HELP = "export a policy as NumPy and ONNX, replayed against the original"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("policy", metavar="POLICY", type=Path, help="folder written by schedtwin train")
    parser.add_argument("--out", metavar="BUNDLE", required=True, type=Path, help="folder to write")
    parser.add_argument(
        "--policy", dest="named", metavar="NAME",
        help="name of the policy as in comparisons: of placement twin, bc_greedy, expected_on_time, ...; of an "
        "application teacher, students, students_discrete, students_lookahead; of many requests at once network, "
        "insertion_local_search (default: the one that training chose; of an application the best in the twin)",
    )  # fmt: skip
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        help="seed of the policy (default: the best in the twin); without --policy of the policy twin",
    )
    parser.add_argument(
        "--rule", metavar="NAME", help="of a queue: a published rule for the same pool in place of the policy"
    )
    parser.add_argument(
        "--comparison", metavar="COMPARISON", type=Path,
        help="of a queue: result of schedtwin compare; the index is exported where it is better there than what the "
        "ladder of the training chose",
    )  # fmt: skip
    parser.add_argument("--licence", metavar="TEXT", help="licence of the bundle, for its contract")
    parser.add_argument("--replace", action="store_true", help="replace a bundle that is already there")


def run(arguments: Namespace) -> int:
    """Export the policy; 0."""
    from evaluation.commands.output import show_result
    from evaluation.problems.kit import ExportOptions
    from evaluation.problems.kits import kit_of
    from logs_schema.product import read_manifest

    options = ExportOptions(
        arguments.seed,
        arguments.licence,
        arguments.named,
        arguments.rule,
        arguments.comparison,
        arguments.replace,
    )
    kit = kit_of(arguments.policy)
    facts = dict(kit.need(kit.export, "schedtwin export")(arguments.out, arguments.policy, options))
    written = {"bundle": str(arguments.out), "content_hash": read_manifest(arguments.out).content_hash}
    which = facts.get("chosen") or f"{facts.get('policy', 'the order')}, seed {facts['seed']}"
    copies = "NumPy and ONNX" if (arguments.out / "policy.onnx").is_file() else "NumPy"
    text = f"{arguments.out} written: {which}; replayed in {copies} against the original\n"
    text += f"to be loaded with --expect {written['content_hash']}"
    show_result(arguments, facts | written, text)
    return 0
