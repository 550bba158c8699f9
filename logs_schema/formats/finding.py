"""Finds a log format by its name."""

from types import ModuleType

from logs_schema import formats
from logs_schema.errors import FormatError


def format_modules() -> list[ModuleType]:
    """The modules of all formats."""
    return [getattr(formats, name) for name in formats.__all__]


def format_names() -> list[str]:
    """The names of the formats that can be imported, sorted."""
    return sorted(module.NAME for module in format_modules())


def find_format(name: str) -> ModuleType:
    """The format called `name`; FormatError that lists all where there is none."""
    for module in format_modules():
        if name == module.NAME:
            return module
    raise FormatError(
        f"there is no log format called {name!r}",
        allowed=", ".join(format_names()),
        advice="choose one of these; native is the project's own CSV or Parquet",
    )
