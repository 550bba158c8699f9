"""The command line `schedtwin`: finds the command, runs it, turns errors into messages and exit statuses.

Nothing heavy is imported before a command is chosen: its options derive from its configuration.
"""

import argparse
import gc
import os
import select
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from evaluation.commands import COMMANDS
from evaluation.commands.actions import LateParser
from evaluation.commands.inputs import refuse_missing
from evaluation.commands.statuses import DONE, INTERRUPTED, TERMINATED, USER_ERROR
from evaluation.commands.stopping import Terminated, leave_threads, sigterm_raises
from logs_schema.disk import FULL
from logs_schema.extras import how_to_install

DESCRIPTION = "Learn a digital twin from scheduling logs, train schedulers inside it, judge and export them."
TRAINING_STACK = {
    "jax", "jaxlib", "flax", "optax", "pyarrow", "sklearn", "scipy", "matplotlib", "rich", "jinja2",
}  # fmt: skip
"""Modules of the extra `train`, which an installation that only runs policies does without."""


_ADVICE = {
    FileNotFoundError: "check the path; a file is written only into a folder that is there",
    FileExistsError: "choose another path: a file stands where a folder is needed",
    NotADirectoryError: "choose another path: a file stands where a folder is needed",
    IsADirectoryError: "name a file, not a folder",
    PermissionError: "choose a path that you may read and write, or change its permissions",
}
"""What to do about an error of the operating system."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments without the program's name; those of the process by default.

    Returns:
        The exit status.
    """
    try:
        if argv is not None:
            return _main(list(argv))
        status = _main(sys.argv[1:])
        if status != DONE:
            leave_threads(status)
        return status
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in TRAINING_STACK:
            raise
        print(
            f"schedtwin: this command needs '{missing}', which is not installed\n"
            f"  what to do: {how_to_install('train')}",
            file=sys.stderr,
        )
        return USER_ERROR


def _main(argv: list[str]) -> int:
    _keep_compiled_programs()
    _sum_in_one_order()
    arguments = None
    try:
        arguments = _parser().parse_args(argv)  # which imports what the options of the command derive from
        gc.set_threshold(50_000, 20, 20)  # tracing programs makes many objects and little garbage
        with sigterm_raises():
            refuse_missing(arguments)
            status = int(arguments.command.run(arguments))
            sys.stdout.flush()
        return status
    except KeyboardInterrupt as end:
        print("interrupted; run again to resume", file=sys.stderr)
        return TERMINATED if isinstance(end, Terminated) else INTERRUPTED
    except BrokenPipeError:
        if not _is_output_unread():
            raise  # of a process or a connection that is gone
        _close_standard_output()
        return DONE
    except Exception as error:
        if arguments is None or not _is_users(error):
            raise
        if arguments.verbose:
            traceback.print_exc()
        print(f"schedtwin {arguments.command.NAME}: {_told(error)}", file=sys.stderr)
        if isinstance(error, OSError) and error.filename is None:
            _close_standard_output()
        return USER_ERROR


def _told(error: Exception) -> str:
    """An error a user can cause, in its parts."""
    if isinstance(error, OSError) and error.filename is None:
        reason = FULL[error.errno or 0]
        return f"{reason}: not all could be written\n  what to do: make room, and run it again"
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.strerror[:1].lower()}{error.strerror[1:]}\n  where: {error.filename}"
        advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), "")
        return f"{message}\n  what to do: {advice}" if advice else message
    return str(error)


def _parser() -> LateParser:
    parser = LateParser("schedtwin", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"schedtwin {version('schedtwin')}")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        chosen = choices.add_parser(
            command.NAME,
            help=command.HELP,
            description=command.HELP,
            declare=partial(_add_arguments, command),
        )
        chosen.set_defaults(command=command)
    return parser


def _add_arguments(command: ModuleType, parser: argparse.ArgumentParser) -> None:
    command.add_arguments(parser)
    everywhere = parser.add_argument_group("options of every command")
    everywhere.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
    everywhere.add_argument("--no-progress", action="store_true", help="do not show progress")
    everywhere.add_argument("-v", "--verbose", action="store_true", help="show where an error came from")


def _is_users(error: Exception) -> bool:
    from logs_schema.errors import SchedtwinError

    if isinstance(error, OSError):
        # No name: of what is printed, or an open file
        return error.filename is not None or error.errno in FULL
    return isinstance(error, SchedtwinError)


def _is_output_unread() -> bool:
    """Whether the reader of standard output has closed the pipe."""
    try:
        output = select.poll()
        output.register(sys.stdout.fileno(), 0)  # errors are told of unasked
        return bool(output.poll(0))
    except (OSError, ValueError):  # no file of the operating system
        return False


def _close_standard_output() -> None:
    """Nothing is printed from now on, also not what waits to be printed when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _keep_compiled_programs() -> None:
    """Enables JAX's persistent compilation cache, unless the environment configures it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "schedtwin" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


def _sum_in_one_order() -> None:
    """Keeps linear algebra of this process and its workers to one thread: the order of its sums, and with it the last
    digits, would depend on the number of threads, and Ray gives a task one. Small networks, as servers run them,
    would lose time by more. Before NumPy is imported."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


if __name__ == "__main__":
    sys.exit(main())
