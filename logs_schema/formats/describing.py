"""The facts that an importer hands to the archive: what is known of the log beyond its rows.

`limits` name capabilities (see `logs_schema.capabilities`) that the log does *not* support although columns
may be filled, with the reason: for example waits that a simulator made up. `notes` are readings of the format.
"""

from collections.abc import Mapping, Sequence
from typing import Any

ABSOLUTE_CLOCK = "absolute"
RELATIVE_CLOCK = "relative"


def describe(
    name: str, *, clock: str, limits: Mapping[str, str] | None = None, notes: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """The facts about one log.

    Args:
        name: The format's name.
        clock: `absolute` if instants are true dates, `relative` if they count from a hidden origin.
        limits: Capability to the reason why the log does not support it.
        notes: Readings and oddities worth knowing, one sentence each.
        more: Further facts as JSON values.
    """
    return {"format": name, "clock": clock, "limits": dict(limits or {}), "notes": list(notes), **more}
