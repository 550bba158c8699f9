"""Options of a command from the fields of a configuration, which define type, default, choices and help.

The help is the field's description under `Attributes:` of the class's docstring. A field's metadata may hold its
`choices` and the `metavar` of its value; the suffix of its name says the unit. Lists are written with commas; a field
that is true by default is switched off. Only options given on the command line set a field, so that the default of the
field applies otherwise.
"""

import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, replace
from datetime import date
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from logs_schema.errors import ConfigError
from logs_schema.settings import LARGEST_SEED

Config = TypeVar("Config")
_ATTRIBUTE = re.compile(r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", re.MULTILINE)
_UNITS = {"_s": "SECONDS", "_cores": "CORES", "_gib": "GIB"}


def add_options(parser: ArgumentParser | _ArgumentGroup, config: object, *names: str, **renamed: str) -> None:
    """Declares options that set fields of a configuration.

    Args:
        parser: Parser of the command, or a group of it.
        config: A dataclass whose docstring describes every field, or an instance, whose values are the defaults.
        names: Fields whose options are called as they are: `judge_days` is set by `--judge-days`.
        renamed: Option, in the same form, -> field; a dotted one is a field of a configuration within:
            `seeds="networks.num_seeds"` is set by `--seeds`. An option in ms may set a field in s.
    """
    for option, path in (dict(zip(names, names, strict=True)) | renamed).items():
        owner, name = config, path
        while "." in name:
            outer, _, name = name.partition(".")
            owner = _default(owner, outer)
        cls = _class_of(owner)
        _add_option(
            parser,
            f"--{option.replace('_', '-')}",
            f"{_class_of(config).__name__}.{path}",
            _field(cls, name),
            get_type_hints(cls)[name],
            _default(owner, name),
            described(cls)[name],
        )


def given(config: Config, arguments: Namespace) -> Config:
    """The configuration with the fields that options set; ConfigError of the configuration for invalid combinations."""
    return _replaced(config, set_fields(type(config), arguments))


def set_fields(config: type, arguments: Namespace) -> dict[str, Any]:
    """Field -> value, of those that options set on the command line; names of fields within are dotted."""
    prefix = f"{config.__name__}."
    known = vars(arguments).items()
    return {dest.removeprefix(prefix): value for dest, value in known if dest.startswith(prefix)}


def refuse_idle(said: Iterable[str], what: str, *, where: str, allowed: str, advice: str) -> None:
    """ConfigError where options were `said` that change nothing of `what` is asked for."""
    if options := ", ".join(said):
        raise ConfigError(f"{what} does not take {options}", where=where, allowed=allowed, advice=advice)


def described(config: type) -> dict[str, str]:
    """Field -> its description under `Attributes:` of the class's docstring, in one line, without a final stop."""
    _, _, listed = (config.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for names, text in _ATTRIBUTE.findall(listed):
        line = " ".join(text.split()).replace("`", "")
        line = line if line.endswith("...") else line.removesuffix(".")
        first = line[:1] if line[1:2].isupper() else line[:1].lower()
        found |= dict.fromkeys(names.split(", "), first + line[1:])
    return found


def numbers(text: str) -> tuple[int, ...]:
    """The whole numbers of a comma-separated list; ArgumentTypeError for other text."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no list of whole numbers such as 0,1,7,30") from None


def seed(text: str) -> int:
    """A seed of random numbers; ArgumentTypeError for other text."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= LARGEST_SEED:
        raise ArgumentTypeError(f"{text!r} is no seed: whole numbers from 0 to {LARGEST_SEED} are")
    return number


def words(text: str) -> tuple[str, ...]:
    """The names of a comma-separated list."""
    return tuple(word(part) for part in text.split(","))


def word(text: str) -> str:
    """A name, written with hyphens or underscores."""
    return text.strip().replace("-", "_")


def day(text: str) -> date:
    """A calendar day; ArgumentTypeError for other text."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no day such as 2024-01-31") from None


def _seconds(milliseconds: str) -> float:
    try:
        return float(milliseconds) / 1000.0
    except ValueError:
        raise ArgumentTypeError(f"{milliseconds!r} is no number of milliseconds, such as 50") from None


_READ: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (int, "N"),
    float: (float, "N"),
    str: (str, "NAME"),
    Path: (Path, "FILE"),
    date: (day, "DATE"),
    tuple[int, ...]: (numbers, "LIST"),
    tuple[str, ...]: (words, "LIST"),
}
"""Type of a field -> how text is read, and how its value is called in help."""


def _add_option(
    parser: ArgumentParser | _ArgumentGroup,
    option: str,
    dest: str,
    one: "Field[Any]",
    hint: Any,
    default: Any,
    text: str,
) -> None:
    kind, text = _plain(hint), text.replace("%", "%%")
    if kind is bool:
        action = "store_false" if default is True else "store_true"
        parser.add_argument(option, dest=dest, action=action, default=SUPPRESS, help=text)
        return
    choices = one.metadata.get("choices", get_args(kind) if get_origin(kind) is Literal else None)
    read, metavar = (str, "NAME") if get_origin(kind) is Literal else _READ[kind]
    metavar = next((unit for suffix, unit in _UNITS.items() if one.name.endswith(suffix)), metavar)
    if one.name == "seed":
        read = seed
    if option.endswith("-ms") and one.name.endswith("_s"):
        read, metavar, default = _seconds, "MS", 1000.0 * default
    if default not in (None, "", ()):
        text += f" (default: {_shown(default)})".replace("%", "%%")
    parser.add_argument(
        option,
        dest=dest,
        type=read,
        default=SUPPRESS,
        help=text,
        choices=choices,
        metavar=None if choices else one.metadata.get("metavar", metavar),
    )


def _class_of(config: object) -> type:
    return config if isinstance(config, type) else type(config)


def _field(config: type, name: str) -> "Field[Any]":
    return next(one for one in fields(config) if one.name == name)


def _default(config: object, name: str) -> Any:
    """The value of a field, of a class its default."""
    if not isinstance(config, type):
        return getattr(config, name)
    one = _field(config, name)
    if one.default_factory is not MISSING:
        return one.default_factory()
    return None if one.default is MISSING else one.default


def _plain(kind: Any) -> Any:
    """The type without None: `int` of `int | None`."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return next(part for part in get_args(kind) if part is not NoneType)


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _replaced(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with other values of fields, all at once; of fields within by dotted names."""
    here = {name: value for name, value in values.items() if "." not in name}
    for outer in {name.partition(".")[0] for name in values.keys() - here}:
        within = {
            name.removeprefix(f"{outer}."): value
            for name, value in values.items()
            if name.startswith(f"{outer}.")
        }
        here[outer] = _replaced(getattr(config, outer), within)
    return replace(config, **here) if here else config  # type: ignore[type-var]
