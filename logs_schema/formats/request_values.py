"""Fields of any system's log as values of `requests`: instants, durations, amounts, names of nodes.

Units are named by a mapping (`logs_schema.formats.request_mapping`), never guessed. Six are ways of writing:

* `clock`: `[DAYS-][[HOURS:]MINUTES:]SECONDS`, as Slurm writes durations; PostgreSQL, pandas and Python write
  `1 day 02:03:04`, `2 days 00:00:00` and `1 day, 2:03:04`;
* `quantity`: a number with a suffix as in Kubernetes, `500m`, `2Gi` (1024), `2G` (1000); alone it is cores, or bytes;
  small letters are large ones, but for n, u and m (thousandths) without a `b`: `512mb` are megabytes; of durations
  numbers with their units, `120 ms`, `1h30m` (of Go), `2 days`; alone it is seconds;
* `binary_quantity`: the same where K, M, G and T are powers of 1024, as in Slurm (`4000Mc`) and PBS (`512mb`); `m` of
  memory is M; `c` is for each core, `n` for each node;
* `hostlist`: `node[01-04,07],login1`;
* `exec_host`: `node1/0*8+node2/0`, as PBS writes the places of a job: each node counts once;
* `list`: `['node1', 'node2']`, as Python and JSON write lists, also in CSV.

Every function raises `BadRow` with a rule that names the column.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timezone, tzinfo
from functools import cached_property, lru_cache
from typing import NamedTuple

from logs_schema.casting import float_of
from logs_schema.formats.fields import instant, number
from logs_schema.formats.instant_units import LONG_UNITS
from logs_schema.formats.metric_series import QUANTITY, UNITS
from logs_schema.formats.reading import BadRow

CLOCK, HOSTLIST, EXEC_HOST, LIST = "clock", "hostlist", "exec_host", "list"
BINARY_QUANTITY = "binary_quantity"
QUANTITIES = QUANTITY, BINARY_QUANTITY
NODE_LISTS = (HOSTLIST, EXEC_HOST, LIST)
WRITTEN = {"s": (CLOCK, QUANTITY), "cores": QUANTITIES, "GiB": QUANTITIES, "MiB": QUANTITIES}
"""Unit of a column -> ways of writing that a field may have."""
_MEMORY = {name: gib for name, gib in UNITS["GiB"].items()} | {"TiB": 1024.0}
AMOUNT_UNITS: Mapping[str, Mapping[str, float]] = {
    "s": LONG_UNITS,
    "cores": dict(UNITS["cores"]) | {"percent": 0.01},
    "GiB": _MEMORY,
    "MiB": {name: gib * 1024.0 for name, gib in _MEMORY.items()},
    "1": {"1": 1.0, "percent": 0.01, "thousandths": 1e-3},
}
"""Unit of a column -> units that a field may have, and what one of them is in the column's."""
MIDNIGHT = time()
MOST_NODES = 100_000
MOST_BRACKETS = 8
"""Of one name in a list of nodes, such as `rack[1-2]node[1-8]`."""
_CLOCK = re.compile(r"(?:(\d+)(?:-|\s+days?,?\s+))?(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)")
AMOUNT = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
"""A number at the beginning of a regular expression, and its group."""
_QUANTITY = re.compile(AMOUNT + r"([nu]|[kmgtpKMGTPE]?)(i?)([bB]?)()")
_BINARY_QUANTITY = re.compile(AMOUNT + r"([kmgtpKMGTPE]?)(i?)([bB]?)([cn]?)")
_TIMES = re.compile(AMOUNT + r"([a-zA-Z\u00b5\u03bc]*)\s*")
_SPELT = {"": 1.0, "m": 60.0, "\u00b5s": 1e-6, "\u03bcs": 1e-6, **LONG_UNITS} | {
    spelt: LONG_UNITS[unit]
    for unit, words in (("s", "sec second"), ("min", "min minute"), ("h", "hr hour"), ("d", "day"))
    for word in words.split()
    for spelt in (word, f"{word}s")
}
"""Units of durations as they are written -> seconds."""
_PARTS = {"n": 1e-9, "u": 1e-6, "m": 1e-3}
_BYTES = {"GiB": 2.0**30, "MiB": 2.0**20}
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_ZONE_NAME = re.compile(r"\s*(?:UTC|GMT)$")
_GO_ZONE = re.compile(r" ([+-]\d{4}) [A-Z]+(?: m=\S+)?$")
"""How Go prints the zone of an instant, and the reading of its monotonic clock."""
_UTC = re.compile(r"\b(?:UTC|GMT)\b")
_ZONE_IN_LAYOUT = re.compile(r"%Z|\b(?:UTC|GMT)\b|(?<=%[SMf])Z$")
_PLACE = re.compile(r"([^/+*\s():=]+)(?:/[^\s():=]+)?")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


class Instant(NamedTuple):
    """Seconds since 1970; `again_s` is the second reading of an hour that a clock shows twice, else the same."""

    first_s: float
    again_s: float

    def not_before(self, earlier_s: float | None) -> float:
        """The first reading, or the second where only that one is not before another instant."""
        if earlier_s is None or self.first_s >= earlier_s or self.again_s < earlier_s:
            return self.first_s
        return self.again_s

    def not_after(self, later_s: float) -> float:
        """The second reading, or the first where the second is after another instant."""
        return self.again_s if self.again_s <= later_s else self.first_s


@dataclass(frozen=True)
class InstantReading:
    """How instants are written.

    Attributes:
        zone: Time zone of instants that name none.
        layout: Their form for `datetime.strptime`, where `%Z`, `UTC` and `Z` at the end are UTC; ISO 8601, numbers, or
            as Go prints them (`2024-03-01 12:00:00.5 +0100 CET`) if empty.
        origin_s: What numbers count from, in seconds since 1970.
    """

    zone: tzinfo = UTC
    layout: str = ""
    origin_s: float = 0.0

    @cached_property
    def _layout_with_zone(self) -> str:
        """The layout with `%z` for a name of UTC: strptime takes names of some zones, and drops what they say."""
        return self.layout if "%z" in self.layout else _ZONE_IN_LAYOUT.sub("%z", self.layout, count=1)

    def read(self, text: str, name: str, unit: str, scale: float = 1.0) -> Instant:
        """The instant of `text`, of numbers times `scale`.

        Raises:
            BadRow: `not_an_instant:name`, `out_of_range:name`, or `skipped_by_clock:name` for what the clocks of the
                zone never show. A midnight that they skip is the beginning of its day.
        """
        if not self.layout:
            try:
                value = float_of(text)
            except ValueError:
                value = None
            if value is not None:
                number(text, name)
                seconds = instant(self.origin_s + value * scale * LONG_UNITS[unit], name) or 0.0
                return Instant(seconds, seconds)
        layout = self._layout_with_zone
        if "%z" in layout and not _ZONE_IN_LAYOUT.search(layout):
            text = _UTC.sub("+0000", text)
        try:
            written = datetime.strptime(text, layout) if layout else _from_iso(text)
            if written.tzinfo is None:
                written = written.replace(tzinfo=self.zone)
            first_s = written.timestamp()
            if isinstance(written.tzinfo, timezone):  # no hour comes twice there
                return Instant(first_s, first_s)
            found = Instant(first_s, written.replace(fold=1).timestamp())
        except (ValueError, OverflowError):
            raise BadRow(f"not_an_instant:{name}") from None
        if found.again_s >= found.first_s:
            return found
        if written.time() == MIDNIGHT:
            return Instant(found.first_s, found.first_s)
        raise BadRow(f"skipped_by_clock:{name}")


def _from_iso(text: str) -> datetime:
    """The instant of ISO 8601, also with the name of UTC or a zone as Go prints it; ValueError for anything else."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(_ZONE_NAME.sub("+00:00", _GO_ZONE.sub(r"\1", text)))


def clock_s(text: str, name: str) -> float:
    """Seconds of `1-02:03:04`, `1 day 02:03:04`, `02:03:04`, `03:04` or `4`; BadRow `not_a_duration:name`."""
    found = _CLOCK.fullmatch(text)
    if not found:
        raise BadRow(f"not_a_duration:{name}")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    if found[1] and not found[2]:  # Slurm writes 1-02 and 1-02:03: what follows days are hours
        hours, minutes, seconds = (minutes, seconds, 0.0) if found[3] else (seconds, 0.0, 0.0)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def quantity(text: str, name: str, unit: str, *, is_binary: bool) -> tuple[float, str]:
    """A number with its suffix, and whether it is for each core (`c`) or node (`n`), else empty.

    Args:
        text: Such as `500m`, `1500000000n` or `2Gi`, and `4000Mc` of a binary one.
        name: The column, for the rule.
        unit: Of the result: cores, GiB, MiB or s.
        is_binary: Whether K, M, G and T are powers of 1024.

    Raises:
        BadRow: `not_a_quantity:name`.
    """
    if unit == "s":
        return written_s(text, name), ""
    found = (_BINARY_QUANTITY if is_binary else _QUANTITY).fullmatch(text)
    if not found:
        raise BadRow(f"not_a_quantity:{name}")
    value, prefix, binary, byte, per = found.groups()
    base = 1024.0 if binary or is_binary else 1000.0
    if byte or binary or (is_binary and unit in _BYTES):  # 512mb are no thousandths
        prefix = prefix.upper()
    if prefix not in _PARTS and prefix.upper() not in _POWERS:
        raise BadRow(f"not_a_quantity:{name}")
    factor = _PARTS[prefix] if prefix in _PARTS else base ** _POWERS[prefix.upper()]
    return number(value, name) * factor / _BYTES.get(unit, 1.0), per


def written_s(text: str, name: str) -> float:
    """Seconds of `120 ms`, `1h30m` or `90`; BadRow `not_a_quantity:name`."""
    parts = _TIMES.findall(text)
    if not parts or _TIMES.sub("", text) or any(unit.lower() not in _SPELT for _, unit in parts):
        raise BadRow(f"not_a_quantity:{name}")
    return sum(number(value, name) * _SPELT[unit.lower()] for value, unit in parts)


def hostlist(text: str, name: str) -> list[str]:
    """The nodes of `node[01-04,07],login1`, in order; BadRow `not_a_hostlist:name`."""
    try:
        return list(_hosts(text))
    except ValueError:
        raise BadRow(f"not_a_hostlist:{name}") from None


@lru_cache(maxsize=8)
def _hosts(text: str) -> tuple[str, ...]:
    """The nodes of a list, which several columns of a line may be read from; ValueError where it is none."""
    nodes: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        if part.count("[") > MOST_BRACKETS:
            raise ValueError(part)
        for node in _expanded(part.strip()):
            nodes.append(node)
            if len(nodes) > MOST_NODES:
                raise ValueError(part)
    if not nodes or text.count("[") != text.count("]") or "/" in text:  # node1/0+node2/0 is no list of names
        raise ValueError(text)
    return tuple(nodes)


def exec_host(text: str, name: str) -> list[str]:
    """The nodes of `node1/0*8+node2/0`, each once, in order; BadRow `not_an_exec_host:name`."""
    found = [_PLACE.fullmatch(place.strip()) for place in text.split("+")]
    nodes = list(dict.fromkeys(one[1] for one in found if one))
    if not all(found) or len(nodes) > MOST_NODES:
        raise BadRow(f"not_an_exec_host:{name}")
    return nodes


def written_list(text: str, name: str) -> list[str]:
    """The names in `['node1', 'node2']`, in order; BadRow `not_a_list:name`."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list | tuple) or not all(isinstance(one, str | int) for one in found):
        raise BadRow(f"not_a_list:{name}")
    return [str(one) for one in found]


def _expanded(part: str) -> Iterator[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        if " " in part:
            raise ValueError(part)
        yield part
        return
    inside, _, after = rest.partition("]")
    for piece in map(str.strip, inside.split(",")):
        if not piece or " " in before:
            raise ValueError(part)
        found = _RANGE.fullmatch(piece)
        numbers = [piece]
        if found:
            low, high = int(found[1]), int(found[2])
            if not 0 <= high - low <= MOST_NODES:
                raise ValueError(part)
            numbers = [str(one).zfill(len(found[1])) for one in range(low, high + 1)]
        for one in numbers:
            yield from (f"{before}{one}{end}" for end in _expanded(after))
