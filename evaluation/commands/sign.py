"""`schedtwin sign`: a detached signature of a bundle, for `--trust`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.common_arguments import add_inputs

NAME = "sign"
HELP = "sign an exported policy with an Ed25519 key, for `--trust`"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_inputs(parser, "bundle")
    parser.add_argument(
        "--key",
        metavar="PEM",
        required=True,
        type=Path,
        help="private key in PEM form, for example from openssl genpkey",
    )


def run(arguments: Namespace) -> int:
    """Sign the bundle; 0."""
    from evaluation.commands.output import show_result
    from offline_rl.signing import sign_bundle

    path = sign_bundle(arguments.bundle, arguments.key)
    show_result(arguments, {"signature": str(path)}, f"{path} written; keep it beside the bundle")
    return 0
