"""What commands hand back: a result on standard output, everything else on standard error."""

import json
import sys
from argparse import Namespace
from contextlib import AbstractContextManager
from shutil import get_terminal_size
from typing import Any

from evaluation.jobs.progress import shown_progress
from logs_schema.progress import Progress


def show_result(arguments: Namespace, result: Any, text: str) -> None:
    """Print a command's result.

    Args:
        arguments: of the command; `json` chooses the form.
        result: the result as plain JSON.
        text: the result as a person reads it.
    """
    print(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) if arguments.json else text)


def progress_of(arguments: Namespace) -> AbstractContextManager[Progress]:
    """The progress display that a command's arguments ask for.

    Args:
        arguments: of the command; `no_progress` silences it.
    """
    return shown_progress(not arguments.no_progress)


def as_text(renderable: Any) -> str:
    """What rich would print, as wide as the terminal (160 columns where there is none, and at most)."""
    from rich.console import Console

    console = Console(width=min(160, get_terminal_size().columns) if sys.stdout.isatty() else 160)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()
