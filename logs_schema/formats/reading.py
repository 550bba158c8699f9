"""What every importer shares: finding and opening files, numbered lines, and the loop from lines to chunks.

A format turns one line into one row, a mapping from column to value, or raises `BadRow` with the rule that
the line breaks. `parse_lines` gathers rows into chunks, with the number of every row's line in its
file, and passes broken lines on as rejects. Nothing holds more than one chunk.
"""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from logs_schema.columns import INSTANT, TableSpec
from logs_schema.errors import FormatError

CHUNK_ROWS = 100_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_EPOCH_S = 253_402_300_799.0
"""The last second of the year 9999: an instant beyond it is a broken number."""

Row = Mapping[str, Any]


class Chunk(NamedTuple):
    """Rows of one table from one file.

    Attributes:
        table: Name of the table.
        rows: Candidate rows, a subset of the table's columns; checks come later.
        source: Name of the file.
        first_row: Number of the first row's line in the file, counted from 1, where the others follow it; an
            array of the numbers of all of them where they do not.
        raw: The lines as they stood in the file, one per row.
    """

    table: str
    rows: pa.Table
    source: str
    first_row: int | np.ndarray
    raw: Sequence[str] | None


class Reject(NamedTuple):
    """A line that is no row: its table, the rule it breaks, file, line number, and the line."""

    table: str
    rule: str
    source: str
    row: int
    raw: str


class BadRow(Exception):
    """Raised by a format for a line that breaks `rule`; it becomes a reject and never leaves the importer."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def find_files(paths: Sequence[Path], suffixes: Sequence[str]) -> list[Path]:
    """The files that `paths` name: files as they are, folders by their entries that end in one of `suffixes`.

    Args:
        paths: Files or folders.
        suffixes: Endings looked for in folders, such as `.swf`; each may be followed by `.gz`.

    Returns:
        Files in the order given, a folder's sorted by name.

    Raises:
        FormatError: A path does not exist, or a folder holds no such file.
    """
    endings = tuple(suffixes) + tuple(f"{suffix}.gz" for suffix in suffixes)
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FormatError("there is no such file or folder", where=str(path), advice="check the path")
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(entry for entry in path.iterdir() if entry.is_file() and entry.name.endswith(endings))
        if not inside:
            raise FormatError(
                "the folder holds no log of this format",
                where=str(path),
                allowed=f"files ending in {', '.join(endings)}",
                advice="name the log file itself",
            )
        found.extend(inside)
    return found


def only_file(files: Sequence[Path], reason: str) -> Path:
    """The one file of `files`; FormatError that gives `reason` where there are several or none."""
    if len(files) == 1:
        return files[0]
    names = ", ".join(path.name for path in files) or "nothing"
    raise FormatError(
        f"expected one log file, found {len(files)}: {names}",
        allowed=f"one file, since {reason}",
        advice="import one at a time, each into an archive of its own",
    )


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, plain or gzip, with their numbers from 1; undecodable bytes appear escaped.

    Raises:
        FormatError: The file cannot be opened, or its compressed data is broken.
    """
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")


def head(path: Path, num_characters: int = 1 << 17) -> list[str]:
    """The first lines of a text file: enough to recognise a format by, little even of a binary file.

    Raises:
        FormatError: The file cannot be opened, or its compressed data is broken.
    """
    with opened(path) as file:
        return file.read(num_characters).splitlines()


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """A text file for reading, plain or gzip; FormatError when it cannot be opened or its data is broken."""
    try:
        open_text = gzip.open if path.name.endswith(".gz") else open
        # a byte order mark would hide the first line, header or comment, from who reads it
        with open_text(path, "rt", encoding="utf-8-sig", errors="backslashreplace") as file:
            yield cast(IO[str], file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        what = f"the compressed data is broken: {error}"
        raise FormatError(what, where=str(path), advice="fetch it again") from error
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise FormatError(what, where=str(path), advice="check it") from error


def parse_lines(
    lines: Iterable[tuple[int, str]],
    parse_row: Callable[[int, str], Row | None],
    table: TableSpec,
    source: str,
) -> Iterator[Chunk | Reject]:
    """Turns numbered lines into chunks of rows and rejects.

    Args:
        lines: Line numbers and lines.
        parse_row: Line number and line to a row, None for a line that says nothing, BadRow for a broken one.
            All rows must have the same columns.
        table: The table that the rows are for.
        source: Name of the file, for the quarantine.
    """
    rows: list[Row] = []
    raw: list[str] = []
    numbers: list[int] = []
    for number, line in lines:
        try:
            row = parse_row(number, line)
        except BadRow as bad:
            yield Reject(table.name, bad.rule, source, number, line)
            continue
        if row is None:
            continue
        rows.append(row)
        raw.append(line)
        numbers.append(number)
        if len(rows) >= CHUNK_ROWS:
            yield Chunk(table.name, tabulate(table, rows), source, np.array(numbers), raw)
            rows, raw, numbers = [], [], []
    if rows:
        yield Chunk(table.name, tabulate(table, rows), source, np.array(numbers), raw)


def tabulate(table: TableSpec, rows: Sequence[Row]) -> pa.Table:
    """An Arrow table of rows in the declared types; instants are given in seconds since 1970."""
    arrays = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        column = table.column(name)
        if column.type == INSTANT:
            arrays[name] = pa.array([micros(value) for value in values], pa.int64()).cast(INSTANT)
        else:
            arrays[name] = pa.array(values, column.type)
    return pa.table(arrays)


def micros(seconds: float | None) -> int | None:
    """Seconds since 1970 in whole microseconds."""
    return None if seconds is None else round(seconds * 1e6)
