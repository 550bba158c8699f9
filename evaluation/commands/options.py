"""Options of a command from the fields of a configuration, which define type, default, choices and help.

The help is the field's description under `Attributes:` of the class's docstring. A field's metadata may hold its
`choices` and the `metavar` of its value. Only options given on the command line set a field, so that the default of the
field applies otherwise.
"""

import re
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

Config = TypeVar("Config")
_ATTRIBUTE = re.compile(r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", re.MULTILINE)


def add_options(parser: ArgumentParser, config: type, names: Mapping[str, str]) -> None:
    """Declares options that set fields of a configuration.

    Args:
        parser: Parser of the command.
        config: A dataclass whose docstring describes every field.
        names: Option, such as "--judge-days", -> field.
    """
    known, types, words = {one.name: one for one in fields(config)}, get_type_hints(config), described(config)
    for option, name in names.items():
        one, kind = known[name], _plain(types[name])
        dest = _dest(config, name)
        if kind is bool:
            parser.add_argument(option, dest=dest, action="store_true", default=SUPPRESS, help=words[name])
            continue
        default = _default(one)
        help_text = words[name] if default is None else f"{words[name]} (default: {default})"
        parser.add_argument(
            option, dest=dest, type=kind, default=SUPPRESS, help=help_text.replace("%", "%%"),
            choices=one.metadata.get("choices"), metavar=one.metadata.get("metavar", _metavar(one, kind)),
        )  # fmt: skip


def given(config: Config, arguments: Namespace) -> Config:
    """The configuration with the fields that options set; ConfigError of the configuration for invalid combinations."""
    cls: Any = type(config)
    dests = {one.name: _dest(cls, one.name) for one in fields(cls)}
    set_here = {name: getattr(arguments, dest) for name, dest in dests.items() if hasattr(arguments, dest)}
    return replace(config, **set_here) if set_here else config  # type: ignore[type-var]


def described(config: type) -> dict[str, str]:
    """Field -> its description under `Attributes:` of the class's docstring, in one line, without a final stop."""
    _, _, listed = (config.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for names, text in _ATTRIBUTE.findall(listed):
        line = " ".join(text.split()).rstrip(".").replace("`", "")
        found |= dict.fromkeys(names.split(", "), line[:1].lower() + line[1:])
    return found


def _dest(config: type, name: str) -> str:
    return f"{config.__name__}.{name}"


def _plain(kind: Any) -> type:
    """The type without None: `int` of `int | None`."""
    parts = [part for part in get_args(kind) if part is not NoneType] or [kind]
    plain: type = parts[0]
    return plain


def _default(one: "Field[Any]") -> Any:
    return None if one.default is MISSING else one.default


def _metavar(one: "Field[Any]", kind: type) -> str | None:
    if "choices" in one.metadata:
        return None
    return "N" if kind in (int, float) else "NAME"
