"""Trees of frozen dataclasses to JSON and back, by their declared types.

Understands dataclasses, tuples, dictionaries with text keys, enumerations, dates, optional values and plain
JSON values. Numbers that JSON cannot represent (NaN, infinities) become null, or are written as Python does.
"""

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from logs_schema.errors import SchemaError

Record = TypeVar("Record")


def to_plain(value: Any, *, finite: bool = True) -> Any:
    """What `json.dumps(..., allow_nan=False)` takes, of a tree of records; without `finite` NaN stays what it is."""
    plain = partial(to_plain, finite=finite)
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if finite and isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_plain(kind: type[Record], data: Any) -> Record:
    """The record of type `kind` that `to_plain` made `data` from.

    Raises:
        SchemaError: A field is missing or unknown: the file was written by another version.
    """
    return _read(kind, data, kind.__name__)


def _read(kind: Any, data: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return None if data is None else _read(inner[0], data, where)
    if origin is tuple:
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple(
            _read(each, item, f"{where}[{index}]")
            for index, (each, item) in enumerate(zip(kinds, data, strict=True))
        )
    if origin in (dict, Mapping):
        return {key: _read(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return _read_record(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is date:
        return date.fromisoformat(data)
    return float(data) if kind is float and data is not None else data


def _read_record(kind: Any, data: Any, where: str) -> Any:
    names = {item.name for item in fields(kind)}
    if not isinstance(data, Mapping) or set(data) != names:
        found = set(data) if isinstance(data, Mapping) else set()
        raise SchemaError(
            f"not a {kind.__name__} of this version",
            where=f"{where}: missing {sorted(names - found)}, unknown {sorted(found - names)}",
            allowed=f"exactly the fields {sorted(names)}",
            advice="write the file again with this version",
        )
    hints = get_type_hints(kind)
    return kind(**{name: _read(hints[name], data[name], f"{where}.{name}") for name in names})
