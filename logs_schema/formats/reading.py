"""What every importer shares: what it hands on, and the loop from lines to chunks.

A format turns one line into one row, a mapping from column to value, or raises `BadRow` with the rule that
the line breaks. `parse_lines` gathers rows into chunks, with the number of every row's line in its
file, passes broken lines on as rejects, and reports at the end how the file's lines divide. Nothing holds more
than one chunk. Files are opened in `logs_schema.formats.files`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from logs_schema.columns import INSTANT, TableSpec
from logs_schema.formats.files import MAX_LINE_LETTERS
from logs_schema.formats.pieces import LogPiece

CHUNK_ROWS = 100_000
CHUNK_LETTERS = 1 << 24
SHOWN_LETTERS = 1_000
"""Of a line that is too long, so many letters are quarantined."""
LINE_TOO_LONG = "line_too_long"
LATEST_EPOCH_S = 253_402_300_799.0
"""The last second of the year 9999: an instant beyond it is a broken number."""

FARTHEST_S = 9e12
"""Seconds from 1970 that 64 bits of microseconds still hold; the schema's checks refuse such an instant."""

Row = Mapping[str, Any]
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class ReadingOptions:
    """Facts that are not in a log and are given at its import.

    Attributes:
        origin: Date of the log's time zero, for logs that hide it; None if not given.
        capacity: Cores (processors) of a pool by its name, for logs that hide the size of their machine.
        names: What files of equal names in several folders are called, by their absolute paths.
        piece: What a task reads of the log; None: all.
    """

    origin: datetime | None = None
    capacity: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[Path, str] = field(default_factory=dict)
    piece: LogPiece | None = None

    def name_of(self, path: Path) -> str:
        """What a file is called in the quarantine."""
        return self.names.get(path.absolute(), path.name)


NOTHING_GIVEN = ReadingOptions()


class Chunk(NamedTuple):
    """Rows of one table from one file.

    Attributes:
        table: Name of the table.
        rows: Candidate rows, a subset of the table's columns; checks come later.
        source: Name of the file.
        first_row: Number of the first row's line in the file, counted from 1, where the others follow it; an
            array of the numbers of all of them where they do not.
        raw: The lines as they stood in the file, one per row.
        derived: Whether the rows stand for no lines: a pool that a header describes.
    """

    table: str
    rows: pa.Table
    source: str
    first_row: int | np.ndarray
    raw: Sequence[str] | None
    derived: bool = False


class Reject(NamedTuple):
    """A line that is no row: its table, the rule it breaks, file, line number, and the line."""

    table: str
    rule: str
    source: str
    row: int
    raw: str


class Lines(NamedTuple):
    """How one file's lines (a Parquet file's rows) divide; the rest of them are rows and rejects.

    Attributes:
        source: Name of the file.
        num_lines: All lines of the file.
        num_blank: Those with nothing but white space.
        num_comments: Comments, headers, lines that describe machines, and lines that derived rows are made of.
    """

    source: str
    num_lines: int
    num_blank: int
    num_comments: int


Item = Chunk | Reject | Lines


class BadRow(Exception):
    """Raised by a format for a line that breaks `rule`; it becomes a reject and never leaves the importer."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def parse_lines(
    lines: Iterable[tuple[int, str]],
    parse_row: Callable[[int, str], Parsed | None],
    table: TableSpec,
    source: str,
    as_table: Callable[[TableSpec, Sequence[Parsed]], pa.Table] | None = None,
    num_before: int = 0,
) -> Iterator[Item]:
    """Turns numbered lines into chunks of rows and rejects, and reports at the end how the lines divide.

    Args:
        lines: Line numbers and lines, all of a file or of a piece of it.
        parse_row: Line number and line to a row, None for a blank line, comment or header, BadRow for a broken
            one. All rows must have the same columns.
        table: The table that the rows are for.
        source: Name of the file, for the quarantine.
        as_table: What makes an Arrow table of parsed rows: `tabulate` if None.
        num_before: Lines of the file that stand before these.
    """
    gathered: _Gathered[Parsed] = _Gathered(table, source, as_table or cast(Any, tabulate))
    number, num_blank, num_comments = num_before, 0, 0
    for number, line in lines:
        if len(line) > MAX_LINE_LETTERS:
            yield Reject(table.name, LINE_TOO_LONG, source, number, f"{line[:SHOWN_LETTERS]} ...")
            continue
        try:
            row = parse_row(number, line)
        except BadRow as bad:
            yield Reject(table.name, bad.rule, source, number, line)
            continue
        if row is None:
            num_blank += not line.strip()
            num_comments += bool(line.strip())
            continue
        if gathered.add(row, line, number):
            yield gathered.chunk()
    if gathered.rows:
        yield gathered.chunk()
    yield Lines(source, number - num_before, num_blank, num_comments)


@dataclass
class _Gathered(Generic[Parsed]):
    """Rows on their way into a chunk, with the lines they were read from."""

    table: TableSpec
    source: str
    as_table: Callable[[TableSpec, Sequence[Parsed]], pa.Table]
    rows: list[Parsed] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    num_letters: int = 0

    def add(self, row: Parsed, line: str, number: int) -> bool:
        """Takes a row; whether a chunk is full with it."""
        self.rows.append(row)
        self.raw.append(line)
        self.numbers.append(number)
        self.num_letters += len(line)
        return len(self.rows) >= CHUNK_ROWS or self.num_letters >= CHUNK_LETTERS

    def chunk(self) -> Chunk:
        """The rows so far as a chunk; none are left."""
        rows = self.as_table(self.table, self.rows)
        made = Chunk(self.table.name, rows, self.source, np.array(self.numbers), self.raw)
        self.rows, self.raw, self.numbers, self.num_letters = [], [], [], 0
        return made


def tabulate(table: TableSpec, rows: Sequence[Row]) -> pa.Table:
    """An Arrow table of rows in the declared types; instants are given in seconds since 1970.

    An instant beyond what microseconds can count becomes the farthest that they can, and counts stay numbers of any
    size: the checks refuse what is too large.
    """
    arrays = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        column = table.column(name)
        if column.type == INSTANT:
            arrays[name] = pa.array([micros(value) for value in values], pa.int64()).cast(INSTANT)
        else:
            arrays[name] = _array(values, pa.float64() if column.type == pa.int32() else column.type)
    return pa.table(arrays)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # of JSON, which may hold half a letter
        return pa.array([_in_utf8(value) for value in values], kind)


def _in_utf8(value: Any) -> Any:
    """Texts, and lists of them, with what UTF-8 cannot hold (`\\ud83d` alone) escaped."""
    if isinstance(value, list | tuple):
        return [_in_utf8(one) for one in value]
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def micros(seconds: float | None) -> int | None:
    """Seconds since 1970 in whole microseconds, at most `FARTHEST_S` away."""
    return None if seconds is None else round(min(max(seconds, -FARTHEST_S), FARTHEST_S) * 1e6)
