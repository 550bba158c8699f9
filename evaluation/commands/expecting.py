"""`--expect` and `--trust`: verification of a bundle by its content hash or by its signature."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path


def add_expected(parser: ArgumentParser) -> None:
    """Declares `--expect` and `--trust`."""
    parser.add_argument(
        "--expect",
        metavar="SHA256",
        type=_content_hash,
        help="required content hash of the bundle, as printed by `schedtwin export` (default: any)",
    )
    parser.add_argument(
        "--trust",
        metavar="PEM",
        type=Path,
        help="public key that the bundle must be signed with (see `schedtwin sign`; default: no signature required)",
    )


def _content_hash(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ArgumentTypeError(f"'{text}' is not 64 hexadecimal digits")
    return text.lower()
