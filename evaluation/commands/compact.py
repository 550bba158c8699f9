"""`schedtwin compact`: many small files of an archive become few."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from evaluation.commands.options import add_options, given

NAME = "compact"
HELP = "join an archive's many small files; rows, their order and the content hash stay"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from logs_schema.compacting import CompactConfig

    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="folder or address of an archive")
    parser.add_argument(
        "--small",
        metavar="MIB",
        type=_mebibytes,
        default=16.0,
        help="files from this size on stay alone (default: 16)",
    )
    add_options(parser, CompactConfig, "newest_days")
    parser.set_defaults(changes_archive=True)


def _mebibytes(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0.0 < size < 2.0**20:
        raise ArgumentTypeError(f"{text!r} is no size of files in MiB; allowed: more than 0, such as 16")
    return size


def run(arguments: Namespace) -> int:
    """Compact the archive; 0."""
    from evaluation.commands.output import progress_of, show_result
    from logs_schema.compacting import CompactConfig, compact

    config = given(CompactConfig(small_bytes=int(arguments.small * 2**20)), arguments)
    with progress_of(arguments) as progress:
        done = compact(arguments.archive, config, progress)
    result = {
        "files_before": done.num_files_before,
        "files": done.num_files,
        "content_hash": done.content_hash,
    }
    text = f"{arguments.archive}: {done.num_files:,} files, {done.num_files_before:,} before"
    show_result(arguments, result, f"{text}; content {done.content_hash[:12]}, as before")
    return 0
