"""How a mapping names the form of instants and their time zone, and the refusal of what can be none."""

import re
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from logs_schema.errors import FormatError

YEARS = ("%Y", "%y", "%G", "%c", "%x")
"""What reads a year in a form of instants."""


def refuse_time_format(path: Path, layout: str) -> None:
    """FormatError for a form of instants that no text can have, or that leaves their year open: it would be 1900."""
    if not layout:
        return
    try:
        datetime.strptime("", layout)
        what = ""
    except re.error as error:
        what = str(error)
    except ValueError as error:
        what = "" if "does not match format" in str(error) else str(error)
    what = what or ("" if any(one in layout for one in YEARS) else "it names no year")
    if what:
        raise FormatError(
            f"time_format {layout!r} cannot be read ({what})", where=str(path),
            allowed="directives of datetime.strptime, each once, %Y among them; seconds since 1970 need none",
        )  # fmt: skip


def zone_of(path: Path, name: str) -> tzinfo:
    """The time zone that a mapping names; FormatError where there is none of this name."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise FormatError(
            f"there is no time zone {name!r}", where=str(path), allowed='"UTC", or a name such as "Europe/Berlin"',
            advice="mend it; where a machine has no time zones at all, pip install tzdata",
        ) from error  # fmt: skip
