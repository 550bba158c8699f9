"""Lines of metrics, CSV or JSON, and what stands in them: the fields of a line by column, instants, numbers."""

import ast
import csv
import functools
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

from logs_schema.casting import float_of
from logs_schema.errors import FormatError, first
from logs_schema.formats.amount_marks import POINT, AmountMarks
from logs_schema.formats.fields import csv_names
from logs_schema.formats.files import numbered_lines
from logs_schema.formats.instant_units import INSTANT_UNITS
from logs_schema.formats.json_documents import JSON_LINES
from logs_schema.formats.json_lines import refuse_other_content
from logs_schema.formats.json_paths import below
from logs_schema.formats.mapping import MappedMetric, MetricsMapping
from logs_schema.formats.metric_series import NOT_A_NUMBER, QUANTITY
from logs_schema.formats.reading import BadRow, Reject
from logs_schema.formats.request_mapping import NOTHING
from logs_schema.formats.request_values import AMOUNT, Instant, InstantReading, quantity
from logs_schema.tables import DEPLOYMENT_SAMPLES

NOT_AN_INSTANT = "not_an_instant:time"
SEPARATOR_LINE = re.compile(r"sep=.\s*", re.IGNORECASE)
"""A first line that tells Excel the separator."""
STAR = "*"
_RATE = re.compile(AMOUNT + r"(K|Mil|M|Bil|B|G)?\s*(?:[a-z]*/s|[a-z]*ps)?", re.IGNORECASE)
_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "mil": 1e6, "b": 1e9, "bil": 1e9, "g": 1e9}


class MetricLine(NamedTuple):
    """A line of a file, by columns."""

    instant_s: float
    fields: dict[str, Any]  # text, or what JSON holds
    name: str  # of the file
    number: int
    line: str

    def found(self, source: str) -> Any:
        """What the line holds in a column or at a path of JSON, {name: ...} where it has a star; None for nothing."""
        if self.line[:1] == "{":
            return at(self.fields, source.split("."))
        return by_name(source, self.fields) if STAR in source else self.fields.get(source)


class NotANumberError(ValueError):
    """A field holds something else where a number is meant."""

    rule = NOT_A_NUMBER


class NoDeploymentError(NotANumberError):
    """A line with numbers names no deployment."""

    rule = "null:deployment"


@dataclass
class _SeriesClock:
    """Reads the instants of one series, which rise or fall: so an hour that a clock shows twice is told apart."""

    last_s: float | None = None
    falls: bool | None = None  # None: not known yet

    def read(self, found: Instant) -> float:
        last_s = self.last_s
        if last_s is not None and (found.again_s < last_s if self.falls is None else self.falls):
            at_s = found.not_after(last_s)
        else:
            at_s = found.not_before(last_s)
        if last_s is not None and at_s != last_s:
            self.falls = at_s < last_s
        self.last_s = at_s
        return at_s


def lines_of(
    path: Path, name: str, mapping: MetricsMapping, counts: list[int]
) -> Iterator[MetricLine | Reject]:
    """The lines of a file that is called `name`, counted in `counts`; those that hold no row are rejected."""
    is_json = path.name.endswith(JSON_LINES)
    header: list[str] = []
    named = (mapping.deployment_column, mapping.series_column)
    apart = [column.split(".") if is_json else [column] for column in named if column]
    clocks = defaultdict[tuple[str, ...], _SeriesClock](_SeriesClock)
    instants, unit_s = InstantReading(mapping.zone, mapping.time_format), INSTANT_UNITS[mapping.time_unit]
    is_local, last_text, instant = instants.zone is not UTC, None, None
    if is_json:
        refuse_other_content(path)
    for number, line in numbered_lines(path):
        counts[0] = number
        if not line.strip():
            counts[1] += 1
            continue
        if not is_json and not header:
            if not SEPARATOR_LINE.fullmatch(line):
                header = csv_names(line, mapping.separator)
                _refuse_missing(mapping, header, path)
            continue
        fields = fields_of(line, header, mapping)
        text = "" if fields is None else time_in(fields, mapping, is_json=is_json)
        if text != last_text:  # many lines are of one instant
            instant, last_text = _instant(text, unit_s, instants), text
        if fields is None or instant is None:
            counts[2] += 1
            rule = NOT_AN_INSTANT if fields is not None else "not_json" if is_json else "field_count"
            yield Reject(DEPLOYMENT_SAMPLES.name, rule, name, number, line)
            continue
        if header:  # a star in the name of a column is no instant
            fields.pop(mapping.time_column)
        at_s = instant.first_s
        if is_local:  # there an hour may come twice
            series = tuple([str(at(fields, path)) if is_json else fields.get(path[0], "") for path in apart])
            at_s = clocks[series].read(instant)
        yield MetricLine(at_s, fields, name, number, line)


def fields_of(line: str, header: Sequence[str], mapping: MetricsMapping) -> dict[str, Any] | None:
    """What a line holds, by the names of the header, or by keys of JSON where there is none; None for neither."""
    try:
        if not header:
            found = json.loads(line)
            return found if isinstance(found, dict) else None
        fields = next(csv.reader([line], delimiter=mapping.separator))
    except (ValueError, RecursionError, csv.Error):
        return None
    if len(fields) != len(header):
        return None
    return {name: text.strip() for name, text in zip(header, fields, strict=True)}


def time_in(fields: Mapping[str, Any], mapping: MetricsMapping, *, is_json: bool) -> str:
    """The text of a line's instant."""
    found = at(fields, mapping.time_column.split(".") if is_json else [mapping.time_column])
    return "" if found is None else str(found)


def at(fields: Any, path: Sequence[str]) -> Any:
    """What stands at a path, {name: ...} where it has a star; None where there is nothing."""
    while path:
        if path[0] == STAR and isinstance(fields, dict):
            of_names = {name: at(value, path[1:]) for name, value in fields.items()}
            return {name: value for name, value in of_names.items() if value is not None}
        fields, path = below(fields, path)
    return fields


def by_name(source: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What columns hold whose names are `source` with something for its star, by what stands there."""
    matches = ((_starred(source).fullmatch(name), value) for name, value in fields.items())
    return {match[1]: value for match, value in matches if match}


@functools.cache
def _starred(source: str) -> re.Pattern[str]:
    before, _, after = source.partition(STAR)
    return re.compile(f"{re.escape(before)}(.+){re.escape(after)}")


def is_unknown(found: Any) -> bool:
    """Whether a field says nothing."""
    return found is None or (isinstance(found, str) and found.strip().casefold() in NOTHING)


def number_of(found: Any, marks: AmountMarks = POINT) -> float:
    """A number whose text has these signs, NaN for nothing; NotANumberError for anything else."""
    try:
        number = float_of("nan" if is_unknown(found) else plainly(found, marks))
    except (TypeError, ValueError) as error:
        raise NotANumberError from error
    if math.isinf(number):
        raise NotANumberError
    return number


def plainly(found: Any, marks: AmountMarks) -> Any:
    """What was found, a text with a point before its decimals; NotANumberError where it has other signs."""
    text = marks.plain(found.strip()) if isinstance(found, str) else found
    if text is None:
        raise NotANumberError
    return text


def amount_of(mapped: MappedMetric, found: Any) -> float:
    """A number of a metric, in the unit of the column where it is written with its own; NotANumberError for others.

    Of fields that are counted any text is as good.
    """
    if mapped.metric.combine == "count" and not is_unknown(found):
        return 1.0
    if mapped.metric.unit != QUANTITY or is_unknown(found):
        return number_of(found, mapped.marks)
    column, text = mapped.metric.column, str(plainly(found, mapped.marks)).strip()
    unit = DEPLOYMENT_SAMPLES.column(column).unit
    try:
        if unit in ("cores", "GiB") and text.endswith("%"):  # of what scale says, else of one
            return number_of(text[:-1]) / 100.0
        if unit != "1/s":
            return quantity(text, column, unit, is_binary=False)[0]
    except BadRow as error:
        raise NotANumberError from error
    if not (rate := _RATE.fullmatch(text)):
        raise NotANumberError
    return number_of(rate[1]) * _THOUSANDS[(rate[2] or "").lower()]


def names_of(text: str) -> Any:
    """What a text such as `{'web': 2}` holds; NotANumberError where it cannot be read."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise NotANumberError from error


def _refuse_missing(mapping: MetricsMapping, header: list[str], path: Path) -> None:
    metrics = mapping.of_file(path.name)
    needed = [mapping.time_column, *(one.source for one in metrics)]
    needed += [name for one in metrics for name in (one.times, one.per, *one.when) if name]
    needed += [name for name in (mapping.deployment_column, mapping.series_column) if name]
    columns = dict.fromkeys(name for name in header if name != mapping.time_column)

    def is_there(name: str) -> bool:
        return bool(by_name(name, columns)) if STAR in name else header.count(name) == 1

    if missing := [name for name in dict.fromkeys(needed) if not is_there(name)]:
        refuse_other_content(path)
        raise FormatError(
            f"the file has no column {first(missing)}, or has it twice",
            where=f"{path}, line 1",
            allowed=", ".join(header),
            advice=f"mend the mapping {mapping.path}, or name the files that it is for; of metrics in files of their "
            'own say in which each is, file = "cpu*.csv"',
        )


def _instant(text: str, unit_s: float, instants: InstantReading) -> Instant | None:
    """The instant of a number, ISO 8601, as Go prints it, or of the mapping's form; None for anything else."""
    if not instants.layout:
        with suppress(ValueError):
            seconds = float_of(text) * unit_s
            return Instant(seconds, seconds) if math.isfinite(seconds) else None
    try:
        return instants.read(text, "time", "s")
    except BadRow:
        return None
