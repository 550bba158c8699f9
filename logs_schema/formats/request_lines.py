"""Lines of any system's log and the fields in them: CSV, JSON, Parquet, or text by a regular expression.

A row of Parquet is handed on as the line of JSON that it would be, so that columns in columns are paths, and the
quarantine can show it: instants are ISO 8601, with `Z` where the file knows them as UTC or of any zone, durations are
seconds, decimals and days are texts.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.errors import FormatError, first
from logs_schema.formats.fields import CsvLines, csv_names
from logs_schema.formats.files import head
from logs_schema.formats.json_documents import (
    JSON_LINES,
    holds_documents,
    lines_with_lists,
    nested_lines,
    objects_of,
)
from logs_schema.formats.json_lines import refuse_other_content
from logs_schema.formats.json_paths import found_at, is_row, text_of
from logs_schema.formats.pieces import Span, lines_of_span
from logs_schema.formats.reading import BadRow
from logs_schema.formats.request_mapping import RequestMapping

PARQUET = ".parquet"
LINE = "line"
"""The mapping's key for lines that are no CSV, and the name of the rule that others break."""
NO_ENTRY = "no_entry"
"""Rule broken by an object without an entry in the lists that the mapping names as `each`."""
BATCH_ROWS, HEAD_ROWS = 4096, 500
Fields = Callable[[str], Mapping[str, Any]]


def is_json(path: Path) -> bool:
    """Whether a file's lines are objects of JSON."""
    return path.name.endswith((*JSON_LINES, PARQUET))


def lines_of(path: Path, mapping: RequestMapping, span: Span | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a file or of a span of it, the rows of Parquet, the objects of a JSON document, or the entries of
    the lists in them that the mapping names, with numbers from 1."""
    if mapping.each and is_json(path):
        return enumerate(_nested(path, mapping), 1)
    if path.name.endswith(PARQUET):
        return enumerate(_rows(path, BATCH_ROWS), 1)
    return enumerate(objects_of(path), 1) if holds_documents(path) else lines_of_span(path, span)


def first_lines(path: Path, mapping: RequestMapping) -> list[str]:
    """The first of them."""
    is_parquet = path.name.endswith(PARQUET)
    if mapping.each and is_json(path):
        return list(islice(_nested(path, mapping), HEAD_ROWS))
    if not is_parquet and not holds_documents(path):
        return head(path)
    return list(islice(_rows(path, HEAD_ROWS) if is_parquet else objects_of(path), HEAD_ROWS))


def _nested(path: Path, mapping: RequestMapping) -> Iterator[str]:
    if path.name.endswith(PARQUET):
        return nested_lines(_rows(path, BATCH_ROWS), mapping.nesting)
    if holds_documents(path, mapping.nesting):
        return objects_of(path, mapping.nesting)
    return nested_lines(lines_with_lists(path), mapping.nesting)


def field_reader(path: Path, mapping: RequestMapping) -> tuple[Fields, int]:
    """Reads a line's fields, and how many lines the names take; FormatError where a file lacks a column.

    Of lines that the mapping leaves out it raises BadRow.
    """
    if path.name.endswith(PARQUET):
        with _opened(path) as file:
            _refuse_absent(path, mapping, file.schema_arrow.names)
        return _chosen(_entries(mapping), mapping), 0
    if path.name.endswith(JSON_LINES):
        if not holds_documents(path, mapping.nesting):
            refuse_other_content(path)
        return _chosen(_entries(mapping), mapping), 0
    if mapping.each:
        refuse_other_content(path)
        raise FormatError(
            f"the file is no JSON, and the mapping reads each entry of {mapping.each}", where=str(path),
            allowed=f"JSON named {', '.join(JSON_LINES[::2])}, or Parquet", advice="name it so, or leave `each` out",
        )  # fmt: skip
    if mapping.line is not None:
        refuse_other_content(path)
        return _chosen(_matched_fields(mapping), mapping), 0
    if mapping.header:
        names = [str(name) for name in mapping.header]
    else:
        names = csv_names(next(iter(head(path)), ""), mapping.separator)
    if missing := [name for name in mapping.sources if names.count(name) != 1]:
        refuse_other_content(path)
        machines = "a file that lists the machines is to be named nodes.csv; " if "node_id" in names else ""
        raise FormatError(
            f"the file has no column {first(missing)}, or has it twice",
            where=f"{path}, line 1",
            allowed=", ".join(names)[:1000],
            advice=f"{machines}mend the mapping {mapping.path}, or its separator; what two files tell has to be joined "
            "first, to a line a request: SELECT * FROM submitted LEFT JOIN ended USING (job); lines without columns, "
            "such as those of a web server, are read by a regular expression, the mapping's key line",
        )
    return _chosen(_csv_fields(names, mapping), mapping), 0 if mapping.header else 1


def json_fields(line: str) -> Mapping[str, Any]:
    """The object of JSON that a line is; BadRow `not_json` where it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise BadRow("not_json") from None
    if not isinstance(found, dict):
        raise BadRow("not_json")
    return found


def _entries(mapping: RequestMapping) -> Fields:
    """Reads objects of JSON; BadRow `no_entry:PATH` for one without the lists that the mapping names, or empty ones."""
    nesting = mapping.nesting

    def as_entry(line: str) -> Mapping[str, Any]:
        fields = json_fields(line)
        if not is_row(fields, nesting.each):
            raise BadRow(f"{NO_ENTRY}:{mapping.each}")
        return fields

    return as_entry if nesting.each else json_fields


def _chosen(as_fields: Fields, mapping: RequestMapping) -> Fields:
    """Reads the fields of lines that the mapping's table `only` selects; BadRow `other_row:column` for others."""

    def as_chosen(line: str) -> Mapping[str, Any]:
        fields = as_fields(line)
        for source, pattern in mapping.only.items():
            if not pattern.fullmatch(text_of(found_at(fields, source))):
                raise BadRow(f"other_row:{source}")
        return fields

    return as_chosen


def _csv_fields(names: Sequence[str], mapping: RequestMapping) -> Fields:
    lines = CsvLines(mapping.separator, quotes=mapping.quotes)

    def as_fields(line: str) -> Mapping[str, Any]:
        return dict(zip(names, lines.fields(line, len(names)), strict=True))

    return as_fields


def _matched_fields(mapping: RequestMapping) -> Fields:
    """Reads the named groups of the mapping's regular expression; BadRow `no_match:line`."""
    pattern = mapping.line
    assert pattern is not None

    def as_fields(line: str) -> Mapping[str, Any]:
        found = pattern.fullmatch(line)
        if not found:
            raise BadRow(f"no_match:{LINE}")
        return found.groupdict("")

    return as_fields


def _refuse_absent(path: Path, mapping: RequestMapping, names: Sequence[str]) -> None:
    absent = [
        source
        for source in mapping.sources
        if not any(source == name or source.startswith((f"{name}.", f"{name}[")) for name in names)
    ]
    if absent:
        raise FormatError(
            f"the file has no column {first(absent)}",
            where=str(path),
            allowed=", ".join(names)[:1000],
            advice=f"mend the mapping {mapping.path}",
        )


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise FormatError(
            f"the file cannot be read as Parquet: {error}", where=str(path), advice="write or fetch it again"
        ) from error


def _rows(path: Path, num_rows: int) -> Iterator[str]:
    """The rows of a Parquet file as lines of JSON."""
    with _opened(path) as file:
        schema = file.schema_arrow
        steps = [pa.schema([field.with_type(as_type(field.type)) for field in schema]) for as_type in _STEPS]
        try:
            for batch in file.iter_batches(num_rows):
                rows = pa.Table.from_batches([batch])
                for step in steps:
                    rows = rows.cast(step, safe=False)
                for row in rows.to_pylist(maps_as_pydicts="lossy"):
                    yield json.dumps(row, ensure_ascii=False, default=_as_json)
        except (OSError, pa.ArrowException) as error:
            raise FormatError(
                f"the file cannot be read as Parquet: {error}",
                where=str(path),
                advice="write or fetch it again; where a type of its columns is named here, leave that column out",
            ) from error


def _as_json(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """A type with instants of any zone as such of UTC, and what is counted in nanoseconds in microseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz else kind
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time64(kind):
        return pa.time64("us")
    return _in_utc(kind.value_type) if pa.types.is_dictionary(kind) else _inside(kind, _in_utc)


def _as_text(kind: pa.DataType) -> pa.DataType:
    """A type with instants as texts: they may lie beyond what Python's calendar holds."""
    return pa.string() if pa.types.is_timestamp(kind) else _inside(kind, _as_text)


_STEPS = (_in_utc, _as_text)


def _inside(kind: pa.DataType, as_type: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with the types that it is made of replaced."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(as_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(as_type(kind.key_type), as_type(kind.item_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(as_type(kind.value_type))
    return pa.list_(as_type(kind.value_type)) if pa.types.is_list(kind) else kind
