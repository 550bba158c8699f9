"""Output of commands: the result on standard output, everything else on standard error."""

import json
import shlex
import sys
from argparse import Namespace
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from evaluation.jobs.progress import shown_progress
from logs_schema.progress import Progress


def show_result(arguments: Namespace, result: Any, text: str) -> None:
    """Print a command's result, as text or with `--json` as JSON, where what is no number is null."""
    print(_as_json(result, indent=2, ensure_ascii=False) if arguments.json else text)


def keep_and_show(arguments: Namespace, file: Path, result: Any, table: Any, note: str = "") -> None:
    """Write a result as JSON, and print it as `show_result` does, with its table and a note as text."""
    file.write_text(_as_json(result, indent=1) + "\n")
    show_result(arguments, result, as_text(table).rstrip() + note)


def _as_json(result: Any, **form: Any) -> str:
    from logs_schema.records import to_plain

    return json.dumps(to_plain(result), allow_nan=False, **form)


def follow_up(*words: object) -> str:
    """The command to go on with, `words` quoted for the shell where they need it."""
    return f"next: {shlex.join(['schedtwin', *map(str, words)])}"


def progress_of(arguments: Namespace) -> AbstractContextManager[Progress]:
    """The progress display of a command.

    Args:
        arguments: of the command; `no_progress` disables it.
    """
    return shown_progress(not arguments.no_progress)


def as_text(renderable: Any) -> str:
    """The text that rich prints, as wide as the terminal (160 columns without a terminal, and at most)."""
    from rich.console import Console

    width = min(160, get_terminal_size().columns) if sys.stdout.isatty() else 160
    console = Console(width=width, markup=False, emoji=False)  # names hold brackets and colons of their own
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()
