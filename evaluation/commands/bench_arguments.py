"""Arguments that simulations and benches share: worlds, comma-separated lists, and the form of results."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from pathlib import Path


def add_output_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of every command again, so that they are accepted after the name of the bench."""
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print the result as JSON")
    parser.add_argument("--no-progress", action="store_true", default=SUPPRESS, help="show no progress")


def add_world_arguments(parser: ArgumentParser, preset: str) -> None:
    """Declare the arguments that choose the simulated cluster."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--preset", metavar="NAME", default=preset, help=f"simulated cluster (default: {preset})"
    )
    group.add_argument(
        "--world", metavar="WORLD.toml", type=Path, help="file that declares the simulated cluster instead"
    )


def add_log_arguments(parser: ArgumentParser, *, files: bool = False) -> None:
    """Declare the arguments that choose the simulated log; with `files` also one of a world declared in a file."""
    if files:
        add_world_arguments(parser, "kmps")
    else:
        parser.add_argument(
            "--preset", metavar="NAME", default="kmps", help="simulated cluster (default: kmps)"
        )
    parser.add_argument(
        "--behaviour", metavar="NAME", default="mix",
        help="policy that wrote the log (default: mix; random is the setting of the paper)",
    )  # fmt: skip


def numbers(text: str) -> tuple[int, ...]:
    """The whole numbers of a comma-separated list; ArgumentTypeError for other text."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no list of whole numbers such as 0,1,7,30") from None


def words(text: str) -> tuple[str, ...]:
    """The names of a comma-separated list."""
    return tuple(word(part) for part in text.split(","))


def word(text: str) -> str:
    """A name, written with hyphens or underscores."""
    return text.strip().replace("-", "_")
