"""`--expect` and `--trust`: which bundle it must be, by the content hash that its maker told, or by who signed it."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path


def add_expected(parser: ArgumentParser) -> None:
    """Declares `--expect` and `--trust`."""
    parser.add_argument(
        "--expect",
        metavar="SHA256",
        type=_content_hash,
        help="content hash that the bundle must have, as `schedtwin export` told it (default: any)",
    )
    parser.add_argument(
        "--trust",
        metavar="PEM",
        type=Path,
        help="public key of whoever must have signed the bundle with `schedtwin sign` (default: anybody, or nobody)",
    )


def _content_hash(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ArgumentTypeError(f"'{text}' is not 64 hexadecimal digits")
    return text.lower()
