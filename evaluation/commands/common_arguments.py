"""Arguments that commands share: products that are read or written, simulated clusters, and the form of results."""

import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from evaluation.commands.options import refuse_idle

MADE_BY = {"archive": "import", "twin": "fit", "policy": "train", "bundle": "export"}
"""Product -> the command that makes it."""
PLOTS = (".png", ".svg", ".pdf")


def place(text: str) -> Path:
    """A folder, or an address in a store; `file://FOLDER/NAME` is neither: its first part would be a machine."""
    if re.match(r"file://[^/]", text):
        raise ArgumentTypeError(
            f"{text!r} names no folder from the root on; write file:///FOLDER, or a plain path"
        )
    return Path(text)


def add_inputs(parser: ArgumentParser, *products: str) -> None:
    """Declare the products that a command reads, by their place."""
    for name in products:
        parser.add_argument(
            name, metavar=name.upper(), type=place, help=f"folder written by schedtwin {MADE_BY[name]}"
        )


def add_out(parser: ArgumentParser, product: str, help_text: str = "folder to write") -> None:
    """Declare the product that a command writes, `--out` and `--replace`."""
    parser.add_argument("--out", metavar=product.upper(), required=True, type=place, help=help_text)
    parser.set_defaults(writes_product=True)
    add_replace(parser, product)


def add_replace(parser: ArgumentParser, product: str) -> None:
    """Declare `--replace`."""
    which = f"{'an' if product[0] in 'aeiou' else 'a'} {product}"
    parser.add_argument("--replace", action="store_true", help=f"replace {which} that is already there")
    parser.set_defaults(makes=product)


def add_work_folder(parser: ArgumentParser, name: str) -> None:
    """Declare the folder in which a reproduction keeps what it has computed."""
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        default=Path(name),
        help=f"work folder; results in it are used again (default: ./{name})",
    )


def add_output_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of every command again, so that they are accepted after the name of an action."""
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print the result as JSON")
    parser.add_argument("--no-progress", action="store_true", default=SUPPRESS, help="show no progress")
    parser.add_argument(
        "-v", "--verbose", action="store_true", default=SUPPRESS, help="show where an error came from"
    )


def add_plot(parser: ArgumentParser) -> None:
    """Declare the file of a plot, which is refused before anything is measured for it."""
    parser.add_argument("--out", metavar="PLOT", type=_plot, help="plot to write, .png, .svg or .pdf")


def _plot(text: str) -> Path:
    path = Path(text)
    if path.suffix not in PLOTS or path.is_dir() or not path.absolute().parent.is_dir():
        raise ArgumentTypeError(f"{text!r} is no {', '.join(PLOTS)} file in a folder that exists")
    return path


def add_world_arguments(parser: ArgumentParser, preset: str) -> None:
    """Declare the arguments that choose the simulated cluster."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--preset", metavar="NAME", default=preset, help=f"simulated cluster (default: {preset})"
    )
    group.add_argument(
        "--world", metavar="WORLD.toml", type=Path, help="file that declares the simulated cluster instead"
    )


def add_reference_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments that choose the trained references of a simulated cluster."""
    parser.add_argument("--no-reference", action="store_true", help="leave the references out")
    parser.add_argument(
        "--references",
        metavar="FOLDER",
        type=Path,
        help="folder of trained references (default: the user's cache); missing ones are trained",
    )


def refuse_idle_references(arguments: Namespace) -> None:
    """ConfigError where references are left out, and options say something of them."""
    said = {
        "--references": arguments.references,
        "--reference-updates": getattr(arguments, "reference_updates", None),
    }
    if arguments.no_reference:
        idle = [name for name, value in said.items() if value is not None]
        refuse_idle(
            idle,
            "a table whose references are left out",
            where=", ".join(["--no-reference", *idle]),
            allowed="--no-reference without them",
            advice="leave one or the other out",
        )
