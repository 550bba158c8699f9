"""Trees of frozen dataclasses to JSON and back, by their declared types.

Understands dataclasses, tuples, dictionaries with text keys, enumerations, dates, optional values and plain
JSON values. Numbers that JSON cannot represent (NaN, infinities) become null, or are written as Python does.
"""

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from logs_schema.errors import SchemaError

Record = TypeVar("Record")
Reader = Callable[[Any], Any]


def to_plain(value: Any, *, finite: bool = True) -> Any:
    """What `json.dumps(..., allow_nan=False)` takes, of a tree of records; without `finite` NaN stays what it is."""
    kind = type(value)
    if kind is float:
        return None if finite and not math.isfinite(value) else value
    if value is None or kind in (str, int, bool):
        return value
    if issubclass(kind, Enum):
        return value.value
    if is_dataclass(kind):
        return {name: to_plain(getattr(value, name), finite=finite) for name in _names(kind)}
    if issubclass(kind, list | tuple):
        return [to_plain(item, finite=finite) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, finite=finite) for key, item in value.items()}
    if issubclass(kind, np.generic | np.ndarray):
        return to_plain(value.tolist(), finite=finite)
    return value.isoformat() if issubclass(kind, date) else value


def with_tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    """Fields read from JSON, with tuples instead of its lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}


def from_plain(kind: type[Record], data: Any) -> Record:
    """The record of type `kind` that `to_plain` made `data` from.

    Raises:
        SchemaError: A field is missing or unknown: the file was written by another version.
    """
    declared: Any = kind
    try:
        record: Record = _reader(declared)(data)
    except _ForeignRecord as error:
        names, found = error.names, error.found
        raise SchemaError(
            f"not a {error.kind} of this version",
            where=f"{kind.__name__}{''.join(reversed(error.path))}: missing {sorted(names - found)}, "
            f"unknown {sorted(found - names)}",
            allowed=f"exactly the fields {sorted(names)}",
            advice="write the file again with this version",
        ) from None
    return record


class _ForeignRecord(Exception):
    """Data with other fields than a record's; `path` grows on the way out, innermost first."""

    def __init__(self, kind: str, names: set[str], found: set[str]) -> None:
        super().__init__(kind)
        self.kind, self.names, self.found = kind, names, found
        self.path: list[str] = []


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


@cache
def _reader(kind: Any) -> Reader:
    """What makes a value of a declared type of plain data."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = _reader(next(argument for argument in arguments if argument is not type(None)))
        return lambda data: None if data is None else inner(data)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin in (dict, Mapping):
        values = _reader(arguments[1])
        return lambda data: {key: _within(f".{key}", values, item) for key, item in data.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return _record_reader(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind is date:
        return date.fromisoformat
    if kind is float:
        return lambda data: None if data is None else float(data)
    return lambda data: data


def _tuple_reader(kinds: tuple[Any, ...]) -> Reader:
    if kinds[-1] is Ellipsis:
        every = _reader(kinds[0])
        return lambda data: tuple(_within(f"[{index}]", every, item) for index, item in enumerate(data))
    readers = [_reader(each) for each in kinds]
    return lambda data: tuple(
        _within(f"[{index}]", read, item)
        for index, (read, item) in enumerate(zip(readers, data, strict=True))
    )


def _record_reader(kind: type) -> Reader:
    names = set(_names(kind))
    readers: dict[str, Reader] = {}

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping) or data.keys() != names:
            raise _ForeignRecord(kind.__name__, names, set(data) if isinstance(data, Mapping) else set())
        if not readers:  # not before: a record may hold others of its kind
            hints = get_type_hints(kind)
            readers.update({name: _reader(hints[name]) for name in names})
        return kind(**{name: _within(f".{name}", read_one, data[name]) for name, read_one in readers.items()})

    return read


def _within(step: str, read: Reader, data: Any) -> Any:
    try:
        return read(data)
    except _ForeignRecord as error:
        error.path.append(step)
        raise
