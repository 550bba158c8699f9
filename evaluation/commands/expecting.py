"""`--expect`: which bundle it must be, by the content hash that its maker told."""

import re
from argparse import ArgumentParser, ArgumentTypeError


def add_expected(parser: ArgumentParser) -> None:
    """Declares `--expect`."""
    parser.add_argument(
        "--expect",
        metavar="SHA256",
        type=_content_hash,
        help="content hash that the bundle must have, as `schedtwin export` told it (default: any)",
    )


def _content_hash(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ArgumentTypeError(f"'{text}' is not 64 hexadecimal digits")
    return text.lower()
