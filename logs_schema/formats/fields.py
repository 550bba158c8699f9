"""Fields of a text log as numbers and labels, and the header of a comma-separated file.

Every function here raises `BadRow` with a rule that names the field, for the quarantine.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from logs_schema.casting import float_of
from logs_schema.checks import LARGEST
from logs_schema.errors import FormatError
from logs_schema.formats.files import MAX_LINE_LETTERS, numbered_lines
from logs_schema.formats.reading import LATEST_EPOCH_S, BadRow

LARGEST_COUNT = 2**31 - 1


def number(text: str, name: str) -> float:
    """The finite number that `text` writes; BadRow `not_a_number:name` or `not_finite:name`."""
    try:
        value = float_of(text)
    except ValueError:
        raise BadRow(f"not_a_number:{name}") from None
    if not math.isfinite(value):
        raise BadRow(f"not_finite:{name}")
    return value


def number_or_none(text: str, name: str) -> float | None:
    """The number that `text` writes, None where it is empty."""
    return number(text, name) if text.strip() else None


def not_negative(value: float | None, name: str) -> float | None:
    """`value` itself if it is unknown or at least zero; BadRow `negative:name` otherwise."""
    if value is not None and value < 0:
        raise BadRow(f"negative:{name}")
    return value


def positive(value: float | None, name: str) -> float | None:
    """`value` itself if unknown or greater than zero; BadRow `negative:name` or `zero:name` otherwise."""
    if value is not None and value <= 0:
        raise BadRow(f"negative:{name}" if value < 0 else f"zero:{name}")
    return value


def limited(value: float | None, name: str) -> float | None:
    """`value` itself if unknown or of a size that archives hold; BadRow `too_large:name` otherwise."""
    if value is not None and abs(value) > LARGEST:
        raise BadRow(f"too_large:{name}")
    return value


def instant(seconds: float | None, name: str) -> float | None:
    """Seconds since 1970 that a calendar can hold, or None; BadRow `out_of_range:name` otherwise."""
    if seconds is not None and not -LATEST_EPOCH_S / 10 < seconds <= LATEST_EPOCH_S:
        raise BadRow(f"out_of_range:{name}")
    return seconds


def duration(seconds: float | None, name: str) -> float | None:
    """Seconds, at least 0, that a calendar can hold, or None; BadRow `negative:` or `out_of_range:name` otherwise."""
    return instant(not_negative(seconds, name), name)


def count(value: float | None, name: str) -> int | None:
    """A whole number that fits 32 bits, or None; BadRow `not_whole:name` or `out_of_range:name` otherwise."""
    if value is None:
        return None
    if value != int(value):
        raise BadRow(f"not_whole:{name}")
    if abs(value) > LARGEST_COUNT:
        raise BadRow(f"out_of_range:{name}")
    return int(value)


class CsvLines:
    """Reads lines of fields one by one, so that no quote reaches into the next line.

    Args:
        separator: One character.
        quotes: Whether a field in quotes may hold separators; else quotes are letters like others.
    """

    def __init__(self, separator: str = ",", *, quotes: bool = True) -> None:
        self._lines: list[str] = []
        self._separator, self._quotes = separator, quotes
        self._reader = csv.reader(self, strict=True, delimiter=separator)

    def __iter__(self) -> "CsvLines":
        return self

    def __next__(self) -> str:
        if not self._lines:
            raise StopIteration
        return self._lines.pop()

    def fields(self, line: str, num_fields: int) -> list[str]:
        """The fields of a line; BadRow `not_csv` where a quote does not end, `field_count` unless `num_fields`."""
        fields = line.split(self._separator)
        if self._quotes and '"' in line:
            self._lines.append(line)
            try:
                fields = next(self._reader)
            except csv.Error:
                raise BadRow("not_csv") from None
        if len(fields) != num_fields:
            raise BadRow("field_count")
        return fields


class Header:
    """The header line of a comma-separated file: which field holds which column.

    Args:
        path: The file; its first line is the header.
        required: Columns that must be there; others are ignored.

    Raises:
        FormatError: The first line lacks one of them, or has one twice.
    """

    def __init__(self, path: Path, required: Sequence[str]) -> None:
        first, self.names = read_header(path)
        self._lines = CsvLines()
        missing = [name for name in required if self.names.count(name) != 1]
        if missing:
            raise FormatError(
                f"the header lacks (or repeats) {', '.join(missing)}; it reads {first[:120]!r}",
                where=f"{path}, line 1",
                allowed=f"a header with {', '.join(required)}",
                advice="check that this file is of this format",
            )

    def fields(self, line: str) -> Mapping[str, str]:
        """One line as a mapping from column to text; BadRow `field_count` where they do not match."""
        return dict(zip(self.names, self._lines.fields(line, len(self.names)), strict=True))


def read_header(path: Path) -> tuple[str, list[str]]:
    """The first line of a comma-separated file, and the names in it; FormatError where it is too long for one."""
    line = next((line for _, line in numbered_lines(path)), "")
    if len(line) > MAX_LINE_LETTERS:
        raise FormatError(
            f"the header is longer than {MAX_LINE_LETTERS:,} letters; it begins with {line[:120]!r}",
            where=f"{path}, line 1",
            allowed="names of columns, separated by commas",
            advice="check that this is the right file",
        )
    return line, csv_names(line)


def csv_names(line: str, separator: str = ",") -> list[str]:
    """The names in a header line, without surrounding blanks; none where its quotes do not read as CSV."""
    try:
        return [name.strip() for name in next(csv.reader([line], strict=True, delimiter=separator), [])]
    except csv.Error:
        return []
