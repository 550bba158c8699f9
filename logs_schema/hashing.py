"""Hashes of files and of plain JSON, in one canonical spelling."""

import hashlib
import json
import os
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from logs_schema.errors import ConfigError


def file_hash(path: Path | str) -> str:
    """SHA-256 of a file's bytes, read in pieces.

    Returns:
        64 hexadecimal digits.
    """
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def json_hash(value: Any) -> str:
    """SHA-256 of a value's canonical JSON (sorted keys, no spaces), so that equal values have equal hashes.

    Returns:
        64 hexadecimal digits.

    Raises:
        ConfigError: the value has no JSON form.
    """
    return hashlib.sha256(_canonical(value, "value").encode()).hexdigest()


def as_json(value: Any, name: str = "value") -> Any:
    """A value as plain JSON: what reading it back from a file would give.

    Args:
        value: JSON types, tuples, dataclasses, paths, or anything with `tolist` (array scalars and arrays).
        name: what to call it in an error.

    Raises:
        ConfigError: it holds something without a JSON form, NaN and infinity included.
    """
    return json.loads(_canonical(value, name))


def _canonical(value: Any, name: str) -> str:
    try:
        text = json.dumps(value, default=_plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        allowed = "null, booleans, finite numbers, text, lists, objects with text keys, dataclasses, paths"
        raise ConfigError(
            f"no JSON form ({error})", where=name, allowed=allowed, advice="convert it first"
        ) from error
    return text


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has none")
