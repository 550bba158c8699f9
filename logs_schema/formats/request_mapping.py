"""A mapping from the columns of any system's log of jobs to those of `requests`: a TOML file beside the log.

    separator = ","                      # "|" for `sacct --parsable2`, "\\t"
    quotes = true                        # false: quotes are letters, as in `sacct --parsable2`
    line = ""                            # regular expression of whole lines that are no CSV: named groups are columns
    decimal = "."                        # sign before the decimals of amounts: "," in much of Europe
    thousands = ""                       # sign between thousands: "." or "'" or " "; if empty, such amounts are refused
    header = []                          # names of the columns, where the file's first line is not a header
    each = ""                            # JSON: path of a list (in lists) of which each entry is a row: "spans"
    time_zone = "UTC"                    # of instants that name none, such as "Europe/Berlin"
    time_format = ""                     # for datetime.strptime (%Z: UTC or GMT); if empty, ISO 8601 or numbers
    unknown = []                         # texts that stand for nothing, beside those that always do

    [only]                               # lines whose fields do not match are quarantined
    JobID = "[0-9_]+"                    # column = regular expression

    [columns.arrival]                    # a column of `requests`, or wait_s: then start is arrival + wait_s
    source = "Submit"                    # column of the log, several joined by "/"; the same name if absent
    unit = "ms"                          # of numbers; see `logs_schema.formats.request_values` for ways of writing
    scale = 1.0                          # numbers are multiplied by this as well
    times = "instances"                  # and by those of another column: what is asked for each of several
    combine = ""                         # JSON: "count" where the amount is how many entries a list has
    pattern = "(.+)-[0-9a-f]+"           # regular expression of the whole text: its group is what is meant
    values = {COMPLETED = "completed"}   # text, its first word or number before ".0" = what it means, "" for nothing
    other = "unknown"                    # what every other text, and none, means; without it, other texts stay

    [columns.site]
    constant = "cluster"                 # what is not in the log

Without `arrival` it is start less wait_s, where start may be finish less run_s: `[columns.wait_s]` with `constant = 0`
says that requests never wait. Without `request_id` requests are named by file and line (see `requests_csv`), without
`site` theirs is that of all nodes listed, or `cluster` where there are several or none is listed, and without `status`,
or where its field says nothing, it is unknown. What is running has neither finish nor run time, whatever its fields
say: they tell how long until now, or of a pod the end of one container.
Of JSON a source is a path, `spec.containers.*.resources.requests.cpu`, `attempts[-1].end` for the last entry of a list,
`tags[key=team].value` for that of a key (`logs_schema.formats.json_paths` has all): over a star, and of a list, numbers
are added up and nodes are all taken; of finishes the latest counts, of other texts the first. Where `each` names a list
its entry stands in the row in place of the list, beside what the objects around it hold: `each = "attempts"` reads
`attempts.end` and `job`; what has no such list, or an empty one, is quarantined. True and false are the texts `true`
and `false`. In one text several nodes are written `n1|n2`, as a `hostlist` or as an `exec_host`.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from logs_schema.columns import INSTANT
from logs_schema.errors import FormatError, first
from logs_schema.formats.amount_marks import POINT, AmountMarks, marks_of
from logs_schema.formats.files import read_toml
from logs_schema.formats.instant_forms import refuse_time_format, zone_of
from logs_schema.formats.instant_units import LONG_UNITS
from logs_schema.formats.json_documents import Nesting
from logs_schema.formats.json_paths import steps_of
from logs_schema.formats.request_values import AMOUNT_UNITS, NODE_LISTS, WRITTEN
from logs_schema.tables import REQUESTS

WAIT = "wait_s"
COLUMNS = (*REQUESTS.names, WAIT)
NODE_COLUMNS = ("offered_node", "ran_node", "ran_nodes", "candidates")
NOTHING = frozenset({
    "", "none", "null", "nan", "n/a", "na", "unknown", "none assigned", "<none>", "-", "(null)", r"\n", "<na>",
    "<unknown>", "0001-01-01t00:00:00z", "0001-01-01t00:00:00", "0001-01-01 00:00:00 +0000 utc", "0000-00-00 00:00:00",
})  # fmt: skip
"""Texts that stand for nothing, in any case; the zeros of clocks among them."""
COUNT = "count"
_KINDS = {
    str: "a text in quotes", bool: "true or false", list: "a list of texts in brackets", dict: "a table",
    int: "a number", float: "a number",
}  # fmt: skip


@dataclass(frozen=True)
class MappedColumn:
    """Where the values of a column are, and how they are written."""

    column: str
    sources: tuple[str, ...]
    unit: str = ""
    scale: float = 1.0
    times: str = ""
    combine: str = ""
    pattern: str = ""
    values: Mapping[str, str] | None = None
    other: str | None = None
    constant: Any = None
    marks: AmountMarks = POINT

    @cached_property
    def matcher(self) -> re.Pattern[str]:
        """The pattern as a regular expression."""
        return re.compile(self.pattern)

    @cached_property
    def column_unit(self) -> str:
        """The unit of the column itself."""
        return "s" if self.column == WAIT else REQUESTS.column(self.column).unit

    @cached_property
    def type(self) -> pa.DataType:
        """The type of the column itself."""
        return pa.float64() if self.column == WAIT else REQUESTS.column(self.column).type

    @cached_property
    def is_instant(self) -> bool:
        """Whether the column holds instants."""
        return bool(self.type == INSTANT)

    @cached_property
    def is_count(self) -> bool:
        """Whether the column holds whole numbers."""
        return bool(pa.types.is_integer(self.type))

    @cached_property
    def is_amount(self) -> bool:
        """Whether the column holds numbers."""
        return self.is_count or bool(pa.types.is_floating(self.type))

    @cached_property
    def meanings(self) -> frozenset[str]:
        """What the mapping itself says that texts stand for."""
        return frozenset({self.other or "", *(self.values or {}).values()})

    def allowed_units(self) -> tuple[str, ...]:
        """The units that the column's fields may have."""
        if self.column in NODE_COLUMNS:
            return NODE_LISTS
        if self.is_instant:
            return tuple(LONG_UNITS)
        return (*AMOUNT_UNITS.get(self.column_unit, ()), *WRITTEN.get(self.column_unit, ()))


@dataclass(frozen=True)
class RequestMapping:
    """The content of a mapping file."""

    path: Path
    columns: Mapping[str, MappedColumn]
    separator: str = ","
    quotes: bool = True
    line: re.Pattern[str] | None = None
    header: Sequence[str] = ()
    each: str = ""
    zone: tzinfo = UTC
    time_zone: str = "UTC"
    time_format: str = ""
    unknown: frozenset[str] = NOTHING
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    @property
    def sources(self) -> list[str]:
        """Every column of the log that is read."""
        named = [source for one in self.columns.values() for source in (*one.sources, one.times) if source]
        return list(dict.fromkeys([*named, *self.only]))

    @cached_property
    def nesting(self) -> Nesting:
        """The lists of which each entry is a row, and what is read of it."""
        return Nesting(steps_of(self.each) if self.each else (), tuple(self.sources))

    @property
    def says_waits(self) -> bool:
        """Whether waits are not the log's: a constant, or instants of arrival that are those of the start as well."""
        wait, arrival, start = (self.columns.get(name) for name in (WAIT, "arrival", "start"))
        if start is not None and arrival is not None:
            return arrival.sources == start.sources
        return wait is not None and wait.constant is not None

    def without_nodes(self) -> "RequestMapping":
        """The mapping without columns that hold names of nodes."""
        return replace(
            self, columns={name: one for name, one in self.columns.items() if name not in NODE_COLUMNS}
        )

    def is_nothing(self, text: str) -> bool:
        """Whether a field says nothing."""
        return text.casefold() in self.unknown


def read_request_mapping(path: Path) -> RequestMapping:
    """Reads a mapping.

    Raises:
        FormatError: The file is no TOML, has an unknown key, column or unit, or does not say when requests arrived.
    """
    settings = read_toml(path)
    tables, only = settings.pop("columns", {}), settings.pop("only", {})
    _check(
        path,
        settings,
        {
            "separator": str,
            "quotes": bool,
            "line": str,
            "decimal": str,
            "thousands": str,
            "header": list,
            "each": str,
            "time_zone": str,
            "time_format": str,
            "unknown": list,
        },
    )
    if not isinstance(tables, dict) or not _tells_arrivals(set(tables)):
        raise FormatError(
            "the mapping does not say when requests arrived", where=str(path),
            allowed="a table [columns.arrival]; or [columns.wait_s] (constant = 0 where requests never wait) beside "
            "start, or beside finish and run_s",
            advice="see the example in logs_schema/formats/request_mapping.py",
        )  # fmt: skip
    if not isinstance(only, dict):
        raise FormatError(
            "only is no table", where=str(path), allowed='[only] with COLUMN = "regular expression"'
        )
    if len(separator := settings.get("separator", ",")) != 1 or separator in '\r\n"':
        raise FormatError(
            "the separator is not one character", where=str(path), allowed='such as ",", "|" or "\\t"'
        )
    refuse_time_format(path, settings.get("time_format", ""))
    name = settings.get("time_zone", "UTC")
    unknown = settings.pop("unknown", [])
    marks = marks_of(
        path, {name: settings.pop(name) for name in ("decimal", "thousands") if name in settings}
    )
    columns = {column: replace(_column(path, column, table), marks=marks) for column, table in tables.items()}
    if line := settings.pop("line", ""):
        settings["line"] = _pattern(f"{path}, line", line)
    mapping = RequestMapping(
        path, columns, **settings, zone=zone_of(path, name),
        unknown=NOTHING | {str(one).casefold() for one in unknown},
        only={column: _pattern(f"{path}, [only] {column}", text) for column, text in only.items()},
    )  # fmt: skip
    _refuse_line(mapping, settings)
    if mapping.each and not all(re.fullmatch(r"[^*\[\]]+", step) for step in mapping.nesting.each):
        raise FormatError(
            f"each is {mapping.each!r}", where=str(path),
            allowed='names of members on the way to a list, without stars and brackets: "data.spans"',
        )  # fmt: skip
    return mapping


def _refuse_line(mapping: RequestMapping, settings: Mapping[str, Any]) -> None:
    """FormatError where lines are read by a regular expression and columns are not its groups, or keys of CSV stand
    beside it."""
    if mapping.line is None:
        return
    if beside := sorted({"separator", "quotes", "header", "each"} & set(settings)):
        raise FormatError(
            f"line stands beside {first(beside)}", where=str(mapping.path),
            allowed="line for text that is no CSV, or the keys of CSV",
        )  # fmt: skip
    groups = list(mapping.line.groupindex)
    if absent := [source for source in mapping.sources if source not in groups]:
        raise FormatError(
            f"the regular expression of lines has no group {first(absent)}", where=f"{mapping.path}, line",
            allowed=first(groups, num_shown=40) if groups else "named groups",
            advice=f"name what it matches: (?P<{absent[0]}>...)",
        )  # fmt: skip


def _tells_arrivals(columns: Set[str]) -> bool:
    """Whether these columns give arrivals, or what they follow from."""
    return "arrival" in columns or columns >= {WAIT, "start"} or columns >= {WAIT, "finish", "run_s"}


def _column(path: Path, name: str, table: Any) -> MappedColumn:
    where = f"{path}, [columns.{name}]"
    if name not in COLUMNS:
        raise FormatError(f"requests have no column {name!r}", where=where, allowed=", ".join(COLUMNS))
    if not isinstance(table, dict):
        raise FormatError(
            "a column is no table", where=where, allowed="[columns.COLUMN] with source, unit, ..."
        )
    own = {"column", "sources", "marks"}
    kinds: dict[str, Any] = {one.name: (str,) for one in fields(MappedColumn) if one.name not in own} | {
        "source": (str, list), "scale": (int, float), "values": dict, "constant": (str, int, float, bool)
    }  # fmt: skip
    _check(path, table, kinds, where)
    if "constant" in table and len(table) > 1:
        raise FormatError(
            "a constant stands beside a source", where=where, allowed="a constant alone, or a source"
        )
    if "values" in table:
        table = table | {"values": _texts(where, table["values"])}
    source = table.get("source", name)
    sources = () if "constant" in table else (source,) if isinstance(source, str) else tuple(map(str, source))
    mapped = MappedColumn(name, sources, **{key: value for key, value in table.items() if key != "source"})
    if not sources and mapped.constant is None:
        raise FormatError("a column has no source", where=where, allowed="a column of the log, or several")
    if mapped.unit and mapped.unit not in (units := mapped.allowed_units()):
        raise FormatError(
            f"{name} cannot be given in {mapped.unit!r}", where=where, allowed=", ".join(units) or "no unit"
        )
    if mapped.other is not None and mapped.values is None and not mapped.pattern:
        raise FormatError(
            "other stands alone", where=where, allowed="other beside values or a pattern: what all other texts mean"
        )  # fmt: skip
    if mapped.times and not mapped.is_amount:
        raise FormatError(
            f"{name} is no amount, and has times", where=where, allowed="times of amounts and durations"
        )
    if mapped.combine and (
        mapped.combine != COUNT or not mapped.is_amount or mapped.unit or len(sources) > 1
    ):
        raise FormatError(
            f"{name} cannot be combined by {mapped.combine!r}", where=where,
            allowed=f'"{COUNT}" of one source, for an amount without a unit',
        )  # fmt: skip
    if mapped.pattern and _pattern(where, mapped.pattern).groups != 1:
        raise FormatError("the pattern has not one group", where=where, allowed="one, around what is meant")
    allowed = () if name == WAIT else REQUESTS.column(name).allowed
    meant = [
        *(mapped.values or {}).values(),
        *(one for one in (mapped.other, mapped.constant) if one is not None),
    ]
    if wrong := [one for one in meant if allowed and one not in allowed]:
        raise FormatError(f"{name} cannot be {first(wrong)}", where=where, allowed=", ".join(allowed))
    return mapped


def _texts(where: str, values: Mapping[str, Any]) -> dict[str, str]:
    """What texts of the log stand for, as texts; FormatError for something that is no single value."""
    if wrong := [text for text, meant in values.items() if not isinstance(meant, str | int | float)]:
        raise FormatError(
            f"{wrong[0]!r} stands for {values[wrong[0]]!r}",
            where=where,
            allowed="a text, number or truth value",
        )
    return {
        text: str(meant).lower() if isinstance(meant, bool) else str(meant) for text, meant in values.items()
    }


def _check(path: Path, table: Mapping[str, Any], kinds: Mapping[str, Any], where: str = "") -> None:
    if unknown := sorted(set(table) - set(kinds)):
        raise FormatError(
            f"the mapping has unknown keys: {', '.join(unknown)}", where=where or str(path),
            allowed=", ".join(sorted({*kinds, *(() if where else ("columns", "only"))})),
            advice="see the example in logs_schema/formats/request_mapping.py",
        )  # fmt: skip
    if wrong := [key for key, value in table.items() if not isinstance(value, kinds[key])]:
        kind = kinds[wrong[0]]
        words = [_KINDS[one] for one in (kind if isinstance(kind, tuple) else (kind,))]
        raise FormatError(
            f"{first(wrong)} is {table[wrong[0]]!r}, of the wrong type", where=where or str(path),
            allowed=" or ".join(dict.fromkeys(words)),
        )  # fmt: skip


def _pattern(where: str, text: Any) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        raise FormatError(f"the regular expression cannot be read ({error})", where=where) from error
