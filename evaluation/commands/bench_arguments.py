"""What simulations and benches take alike: worlds, lists with commas, and how results are shown."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from pathlib import Path


def add_output_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of every command once more, so that they may stand behind the bench's name."""
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print the result as JSON")
    parser.add_argument("--no-progress", action="store_true", default=SUPPRESS, help="show no progress")


def add_world_arguments(parser: ArgumentParser, preset: str) -> None:
    """Declare which cluster is simulated."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--preset", metavar="NAME", default=preset, help=f"simulated cluster (default: {preset})"
    )
    group.add_argument(
        "--world", metavar="WORLD.toml", type=Path, help="file that declares the simulated cluster instead"
    )


def add_log_arguments(parser: ArgumentParser, *, files: bool = False) -> None:
    """Declare which simulated log is learned from; with `files` also of a world that a file declares."""
    if files:
        add_world_arguments(parser, "kmps")
    else:
        parser.add_argument(
            "--preset", metavar="NAME", default="kmps", help="simulated cluster (default: kmps)"
        )
    parser.add_argument(
        "--behaviour", metavar="NAME", default="mix",
        help="who wrote the log (default: mix; random is the paper's own setting)",
    )  # fmt: skip


def numbers(text: str) -> tuple[int, ...]:
    """The whole numbers that a list with commas names; ArgumentTypeError where it names none."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no list of whole numbers such as 0,1,7,30") from None


def words(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(word(part) for part in text.split(","))


def word(text: str) -> str:
    """A name, written with hyphens or underscores."""
    return text.strip().replace("-", "_")
