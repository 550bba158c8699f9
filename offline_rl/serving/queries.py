"""A question to the server, in whichever format it came: one request, and the nodes it may be offered to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from logs_schema.errors import first
from offline_rl.runner import Node, Request
from offline_rl.serving.errors import QueryError

MAX_TEXT = 512
"""Longest name or label that is taken, in characters."""
LAST_S = 2e11
"""Latest instant that is taken, in seconds since 1970: in the year 8307."""
_UNFIT = frozenset("|\n\r\0")
"""What a name or label must not contain: the log writes lists as `a|b`, one row a line."""


@dataclass(frozen=True, slots=True)
class PlacementQuery:
    """One question: on which node should this request run?

    Attributes:
        request_id: Identity of the request; a repeated one replaces its older decision.
        arrival_s: When it was submitted, seconds since 1970.
        request: Its labels and the amounts it requests.
        names: The nodes that may be named in the answer, in the caller's order, without repetition.
        machines: Facts about nodes that came with the question, by name; they hold for it alone.
        agent, session: Of the sender, for the log.
        output_mib: For the log.
        unspecified: Columns of the log that the caller left out: the request has a default there, the log a
            null.
    """

    request_id: str
    arrival_s: float
    request: Request
    names: tuple[str, ...]
    machines: Mapping[str, Node] = field(default_factory=dict)
    agent: str | None = None
    session: str | None = None
    output_mib: float | None = None
    unspecified: frozenset[str] = frozenset()


def mapping_of(value: Any, where: str) -> dict[str, Any]:
    """`value` if it is a JSON object, nothing for null; QueryError for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise QueryError("a JSON object is needed here", where=f"{where}: {_shown(value)}")
    return value


def list_of(value: Any, where: str) -> list[Any]:
    """`value` if it is a JSON list, nothing for null; QueryError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise QueryError("a JSON list is needed here", where=f"{where}: {_shown(value)}")
    return value


def object_of(value: Any, where: str, allowed: Sequence[str]) -> dict[str, Any]:
    """A JSON object with no keys but the allowed ones, nothing for null; QueryError for anything else."""
    found = mapping_of(value, where)
    unknown = [str(key)[:80] for key in found if key not in allowed]
    if unknown:
        raise QueryError(
            f"{where} has unknown keys", where=first(sorted(unknown)), allowed=", ".join(allowed)
        )
    return found


def text_of(value: Any, where: str) -> str | None:
    """A label: None for null and for empty text.

    Raises:
        QueryError: It is no text, is longer than `MAX_TEXT`, or contains `|`, a line break or a null character.
    """
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > MAX_TEXT or not _UNFIT.isdisjoint(value):
        raise QueryError(
            "this cannot be a name or label",
            where=f"{where}: {_shown(value)}",
            allowed=f"text of at most {MAX_TEXT} characters without '|' and line breaks",
        )
    return value


def number_of(value: Any, where: str, *, lower: float = 0.0, upper: float = 1e15) -> float | None:
    """A finite number in [lower, upper], also written as text (annotations are); None for null; else QueryError."""
    if value is None or value == "":
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not lower <= number <= upper:
        raise QueryError(
            "this number cannot be used", where=f"{where}: {_shown(value)}", allowed=f"{lower:g} to {upper:g}"
        )
    return number


def instant_of(value: Any, where: str) -> float | None:
    """Seconds since 1970 from ISO 8601 text (UTC without a zone) or a number; None for null; else QueryError."""
    if not isinstance(value, str) or not value:
        return number_of(value, where, upper=LAST_S)
    try:
        instant = datetime.fromisoformat(value)
        seconds = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise QueryError(
            "this is no instant", where=f"{where}: {_shown(value)}", allowed="ISO 8601"
        ) from error
    return number_of(seconds, where, upper=LAST_S)


def shown_instant(seconds: float) -> str:
    """An instant for messages."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def names_of(values: list[Any], where: str) -> tuple[str, ...]:
    """Distinct node names in order; QueryError where one is no name."""
    if all(type(value) is str and value for value in values):
        text_of_all = "".join(values)  # one pass over all of them where they are in order
        longest = max(map(len, values), default=0)
        if longest <= MAX_TEXT and _UNFIT.isdisjoint(text_of_all):
            return tuple(dict.fromkeys(values))
    for index, value in enumerate(values):
        if text_of(value, f"{where}[{index}]") is None:
            raise QueryError("a node has no name", where=f"{where}[{index}]")
    return tuple(dict.fromkeys(values))


def _shown(value: Any) -> str:
    try:
        return repr(value)[:80]
    except (RecursionError, ValueError):  # nested beyond reason, or a number with too many digits
        return f"a {type(value).__name__}"
