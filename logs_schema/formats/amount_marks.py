"""Amounts as much of the world writes them: `1.234,5` for what is elsewhere `1,234.5`. A mapping names both signs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from logs_schema.errors import FormatError

DECIMALS = ".", ","
THOUSANDS = "", ".", ",", "'", " ", "\u00a0", "\u202f"


@dataclass(frozen=True)
class AmountMarks:
    """The signs in amounts.

    Attributes:
        decimal: Before the decimals, of `DECIMALS`.
        thousands: Between thousands, of `THOUSANDS`; if empty, such amounts are none.
    """

    decimal: str = "."
    thousands: str = ""

    @cached_property
    def _amount(self) -> re.Pattern[str]:
        decimal, thousands = re.escape(self.decimal), re.escape(self.thousands)
        grouped = rf"\d{{1,3}}(?:{thousands}\d{{3}})+|" if thousands else ""
        return re.compile(
            rf"([+-]?)({grouped}\d*)(?:{decimal}(\d*))?((?:[eE][+-]?\d+)?[\sA-Za-z\u00b5\u03bc/%]*)"
        )

    def plain(self, text: str) -> str | None:
        """An amount with a point before its decimals and no sign between thousands, with its unit; None for none."""
        if (self.decimal, self.thousands) == (".", ""):
            return text
        found = self._amount.fullmatch(text)
        if not found or not (found[2] or found[3]):
            return None
        whole = found[2].replace(self.thousands, "") if self.thousands else found[2]
        return f"{found[1]}{whole}.{found[3]}{found[4]}" if found[3] else f"{found[1]}{whole}{found[4]}"


POINT = AmountMarks()
"""A point before decimals, and nothing between thousands."""


def marks_of(path: Path, settings: Mapping[str, str]) -> AmountMarks:
    """The signs that a mapping names as `decimal` and `thousands`; FormatError for others than are written."""
    decimal, thousands = settings.get("decimal", "."), settings.get("thousands", "")
    if decimal not in DECIMALS or thousands not in THOUSANDS or decimal == thousands:
        raise FormatError(
            f"decimal is {decimal!r} and thousands is {thousands!r}", where=str(path),
            allowed='decimal "." or ",", thousands another one of them, an apostrophe, a blank or nothing',
        )  # fmt: skip
    return AmountMarks(decimal, thousands)
