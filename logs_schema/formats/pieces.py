"""A log cut into pieces that tasks of their own read: spans of lines of a large text file, and small files together.

A file is cut after a newline, so no line belongs to two pieces. Compressed files, Parquet, documents of JSON, and files
whose lines have no end within reach stay whole.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

from logs_schema.formats.files import MAX_LINE_LETTERS, is_plain_text, lines_in, numbered_lines, read_errors
from logs_schema.formats.json_documents import holds_documents

PIECE_BYTES = 1 << 25
"""Of a file, about; a task holds so much text in memory."""


class Span(NamedTuple):
    """Lines of a text file that stand together, from byte `begin` to byte `end`."""

    begin: int
    end: int
    first_line: int  # its number, from 1


class LogPiece(NamedTuple):
    """The files `first` to `last`, the latter not among them; or a span of one."""

    first: int
    last: int
    span: Span | None = None

    @property
    def is_first(self) -> bool:
        """Whether nothing of the log stands before it."""
        return self.first == 0 and self.num_before == 0

    @property
    def num_before(self) -> int:
        """Lines of the file that stand before it."""
        return 0 if self.span is None else self.span.first_line - 1


def pieces_of(files: Sequence[Path], *, whole: bool = False) -> list[LogPiece]:
    """The pieces of a log, in the order in which they stand in its files; with `whole` no file is cut."""
    found: list[LogPiece] = []
    begun, num_bytes = 0, 0
    for number, path in enumerate(files):
        size = path.stat().st_size
        spans = _spans(path, size) if size > PIECE_BYTES and not whole else []
        if number > begun and (spans or num_bytes + size > PIECE_BYTES):
            found.append(LogPiece(begun, number))
            begun, num_bytes = number, 0
        num_bytes += size
        if spans:
            found += [LogPiece(number, number + 1, span) for span in spans]
            begun, num_bytes = number + 1, 0
    return found if begun == len(files) and found else [*found, LogPiece(begun, len(files))]


def lines_of_span(path: Path, span: Span | None) -> Iterator[tuple[int, str]]:
    """The lines of a span of a file, or of all of it, as `numbered_lines` reads them; raises as it does."""
    if span is None:
        yield from numbered_lines(path)
        return
    with read_errors(path), path.open("rb") as file:
        file.seek(span.begin)
        held = BytesIO(file.read(span.end - span.begin))
    encoding = "utf-8" if span.begin else "utf-8-sig"
    yield from lines_in(TextIOWrapper(held, encoding=encoding, errors="backslashreplace"), span.first_line)


def _spans(path: Path, size: int) -> list[Span]:
    """The spans of a large text file; none where it cannot be cut."""
    if not is_plain_text(path) or holds_documents(path):
        return []
    found: list[Span] = []
    begin, line = 0, 1
    with read_errors(path), path.open("rb") as file:
        while begin < size:
            held = file.read(PIECE_BYTES) + file.readline(MAX_LINE_LETTERS)
            end = begin + len(held)
            if begin == end or (end < size and not held.endswith(b"\n")):
                return []
            found.append(Span(begin, end, line))
            begin, line = end, line + held.count(b"\n") + held.count(b"\r") - held.count(b"\r\n")
    return found
