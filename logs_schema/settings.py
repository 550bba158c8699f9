"""Settings, read from TOML into small frozen dataclasses that stand beside what they configure.

What is not known is refused by name, with what is allowed.
"""

import dataclasses
import datetime as dt
import math
import tomllib
import types
from collections.abc import Mapping
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from logs_schema.errors import ConfigError

Config = TypeVar("Config")
LARGEST_SEED = 2**63 - 1
"""What generators of random numbers take."""


def load_settings(kind: type[Config], path: Path) -> Config:
    """A config of type `kind` from a TOML file.

    Raises:
        ConfigError: The file is missing or not TOML, a key is unknown, or a value is of the wrong type or range.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", where=str(path)) from error
    return build(kind, content, str(path))


def build(kind: type[Config], content: Mapping[str, Any], where: str) -> Config:
    """A config of type `kind` from plain values.

    Raises:
        ConfigError: A key is unknown or missing, or a value is of the wrong type.
    """
    if not isinstance(content, Mapping):
        raise ConfigError(f"{content!r} is not a table", where=where, allowed=_names(kind))
    hints = get_type_hints(kind)
    unknown = sorted(set(content) - set(hints))
    if unknown:
        close = [near[0] for name in unknown if (near := get_close_matches(str(name), list(hints), 1))]
        advice = f"is {', '.join(close)} meant?" if close else "leave it out, or move it to its table"
        raise ConfigError(
            f"unknown key {', '.join(unknown)}", where=where, allowed=_names(kind), advice=advice
        )
    required = [item.name for item in dataclasses.fields(kind) if _is_required(item)]  # type: ignore[arg-type]
    missing = [name for name in required if name not in content]
    if missing:
        raise ConfigError(f"missing key {', '.join(missing)}", where=where, allowed=_names(kind))
    values = {name: _value(hints[name], value, f"{where}: {name}") for name, value in content.items()}
    for name, value in values.items():
        _refuse_seed(name, value, f"{where}: {name}")
    try:
        return kind(**values)
    except ConfigError as error:
        # The file, and its table
        error.where = f"{where.split(': ')[0]}: {error.where}" if error.where else where
        raise


def with_settings(config: Config, settings: Mapping[str, Any], where: str) -> Config:
    """A config with some other values, which may be Python's own or NumPy's.

    Raises:
        ConfigError: As `build`.
    """
    known = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}  # type: ignore[arg-type]
    return build(type(config), {**known, **settings}, where)


def refuse_wrong_types(config: Any, where: str) -> None:
    """ConfigError where a value of a config that was made in Python is of another type than its field."""
    hints = get_type_hints(type(config))
    for item in dataclasses.fields(config):
        _value(hints[item.name], getattr(config, item.name), f"{where} {item.name}")


def _value(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return value if isinstance(value, kind) else build(kind, value, where)  # type: ignore[arg-type]
    if getattr(value, "ndim", None) == 0:  # a number of NumPy, which is not imported for it
        value = value.item()
    if isinstance(value, tuple | range):
        value = list(value)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        inner = [argument for argument in arguments if argument is not type(None)]
        lists = [argument for argument in inner if isinstance(value, list) and get_origin(argument) is tuple]
        return _value((lists or inner)[0], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            like = f", such as [{_quoted(value) if arguments[0] is str else value}]"
            raise ConfigError(
                f"{value!r} is not a list",
                where=where,
                allowed=f"a list of {arguments[0].__name__}{like if isinstance(value, str | int | float) else ''}",
            )
        return tuple(_value(arguments[0], item, where) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError("the number has too many digits", where=where, allowed="a number") from None
    if kind is dt.date:
        return _date(value, where)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        is_unquoted = kind is str and isinstance(value, int | float)
        allowed = f"{kind.__name__}, in quotes: {_quoted(value)}" if is_unquoted else kind.__name__
        raise ConfigError(f"{value!r} is of the wrong type", where=where, allowed=allowed)
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{value!r} is no setting", where=where, allowed="a finite number")
    return value


def _quoted(value: Any) -> str:
    """A value as TOML writes a text."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _date(value: Any, where: str) -> dt.date:
    """A date, also a quoted one."""
    try:
        found = dt.date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, dt.date) or isinstance(found, dt.datetime):
        raise ConfigError(
            f"{value!r} is not a date", where=where, allowed="a date without a time, such as 2024-01-05"
        )
    return found


def refuse_below_one(table: str, **values: int) -> None:
    """ConfigError where one of the values of a table is below 1, or no number."""
    _refuse_below(1, table, values)


def refuse_below_zero(table: str, **values: int) -> None:
    """ConfigError where one of the values of a table is below 0, or no number."""
    _refuse_below(0, table, values)


def _refuse_below(least: int, table: str, values: Mapping[str, int]) -> None:
    for name, value in values.items():
        if not isinstance(value, Real) or value < least:
            raise ConfigError(f"{name} = {value!r}", where=table, allowed=f"{least} or more")


def _refuse_seed(name: str, value: Any, where: str) -> None:
    """ConfigError where a seed, or one of several, is none that generators take; other values pass."""
    if name.rpartition("_")[2] in ("seed", "seeds"):
        for seed in value if isinstance(value, tuple) else (value,):
            if isinstance(seed, int) and not 0 <= seed <= LARGEST_SEED:
                raise ConfigError(f"{name} = {seed}", where=where, allowed=f"0 to {LARGEST_SEED}")


def _is_required(item: "dataclasses.Field[Any]") -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _names(kind: type) -> str:
    return ", ".join(item.name for item in dataclasses.fields(kind))
