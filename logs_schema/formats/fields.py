"""Fields of a text log as numbers and labels, and the header of a comma-separated file.

Every function here raises `BadRow` with a rule that names the field, so that the quarantine can say which.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from logs_schema.errors import FormatError
from logs_schema.formats.reading import LATEST_EPOCH_S, BadRow, head

LARGEST_COUNT = 2**31 - 1


def number(text: str, name: str) -> float:
    """The finite number that `text` writes; BadRow `not_a_number:name` or `not_finite:name`."""
    try:
        value = float(text)
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


def instant(seconds: float | None, name: str) -> float | None:
    """Seconds since 1970 that a calendar can hold, or None; BadRow `out_of_range:name` otherwise."""
    if seconds is not None and not -LATEST_EPOCH_S / 10 < seconds <= LATEST_EPOCH_S:
        raise BadRow(f"out_of_range:{name}")
    return seconds


def count(value: float | None, name: str) -> int | None:
    """A whole number that fits 32 bits, or None; BadRow `not_whole:name` or `out_of_range:name` otherwise."""
    if value is None:
        return None
    if value != int(value):
        raise BadRow(f"not_whole:{name}")
    if abs(value) > LARGEST_COUNT:
        raise BadRow(f"out_of_range:{name}")
    return int(value)


def split_csv(line: str, num_fields: int) -> list[str]:
    """The fields of one comma-separated line; BadRow `field_count` unless there are `num_fields`."""
    try:
        fields = next(csv.reader([line]), [])
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
        FormatError: The first line lacks one of them.
    """

    def __init__(self, path: Path, required: Sequence[str]) -> None:
        first = next(iter(head(path)), "")
        self.names = csv_names(first)
        missing = [name for name in required if name not in self.names]
        if missing:
            raise FormatError(
                f"the header lacks {', '.join(missing)}; it reads {first[:120]!r}",
                where=f"{path}, line 1",
                allowed=f"a header with {', '.join(required)}",
                advice="check that this file is of this format",
            )

    def fields(self, line: str) -> Mapping[str, str]:
        """One line as a mapping from column to text; BadRow `field_count` where they do not match."""
        return dict(zip(self.names, split_csv(line, len(self.names)), strict=True))


def csv_names(line: str) -> list[str]:
    """The names in a header line, without surrounding blanks."""
    return [name.strip() for name in next(csv.reader([line]), [])]
