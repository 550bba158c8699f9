"""The error tree: every error that a user can cause has what, where, what is allowed and what to do.

The four parts stay readable as fields, so that a caller may show or test them one by one; the message is
their concatenation. `first` helps with the common case *these rows, so many of them*.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any


class SchedtwinError(Exception):
    """Root of the errors a user can cause.

    Args:
        what: what is wrong, as one sentence without its full stop.
        where: file, table, column, first rows and their count.
        allowed: what would have been right.
        advice: what to do about it.
    """

    def __init__(self, what: str, *, where: str = "", allowed: str = "", advice: str = "") -> None:
        self.what, self.where, self.allowed, self.advice = what, where, allowed, advice
        super().__init__(what)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.what, self.where, self.allowed, self.advice)

    @property
    def brief(self) -> str:
        """What is wrong and, where it is known, where: in one line."""
        return f"{self.what} ({self.where})" if self.where else self.what

    def __str__(self) -> str:
        parts = (("where", self.where), ("allowed", self.allowed), ("what to do", self.advice))
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in parts if text)])


def _again(kind: type[SchedtwinError], what: str, where: str, allowed: str, advice: str) -> SchedtwinError:
    """An error as it was raised in another process."""
    return kind(what, where=where, allowed=allowed, advice=advice)


class SchemaError(SchedtwinError):
    """A table does not have the declared columns, types or units."""


class ArchiveError(SchedtwinError):
    """An archive is missing, damaged, or of another version."""


class ArchiveChangedError(ArchiveError):
    """Another process has changed an archive meanwhile."""


class FormatError(SchedtwinError):
    """A whole log file cannot be read in the format that was given for it."""


class ProductError(SchedtwinError):
    """A product folder is missing, damaged, of another kind, or in the way."""


class ConfigError(SchedtwinError):
    """A configuration or a command's arguments are not possible."""


def counted(number: int, noun: str) -> str:
    """A number of things in words: `1 row`, `1,200 rows`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def first(items: Iterable[object], *, num_shown: int = 5) -> str:
    """The first few items and how many there are, such as `3, 7, 12, ... (41 in all)`.

    Args:
        items: rows, names or files; may be a generator.
        num_shown: how many to spell out.

    Returns:
        One line of text; `none` if there are no items.
    """
    iterator = iter(items)
    shown = [str(item) for item in islice(iterator, num_shown)]
    num_left = sum(1 for _ in iterator)
    if not shown:
        return "none"
    return ", ".join(shown) + (f", ... ({len(shown) + num_left} in all)" if num_left else "")
