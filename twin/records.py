"""Named tuples of arrays with a row for each run, request or job of a log."""

from typing import Any, NamedTuple, TypeVar

Record = TypeVar("Record", bound=NamedTuple)


def at_rows(record: Record, rows: Any) -> Record:
    """Some rows of a record, by a mask, indices or a slice of the first axis."""
    return type(record)(*(leaf[rows] for leaf in record))
