"""From loosely typed rows to the declared types, without losing the rest of a chunk to one bad value.

Types that can mean the declared one are converted: text to numbers, instants, booleans and labels; integers
to floats; seconds since 1970 (or ISO 8601 text, UTC where it names no zone) to instants; `a|b` to lists. Empty text
is null, as in CSV. A value that cannot be read, such as text that is not UTF-8, becomes null and is noted as a fault,
so that its row, and only its row, is quarantined. A type that cannot mean the declared one is an error of the whole
table.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.calendar import EPOCH
from logs_schema.columns import INSTANT, LABEL, LABELS, Column, TableSpec, arrow_schema
from logs_schema.errors import SchemaError, first
from logs_schema.options import refuse_type
from logs_schema.tables import SCHEMA_VERSION
from logs_schema.views import without_views

LIST_SEPARATOR = "|"
EARLIEST_S = -62_135_596_800
LATEST_S = 253_402_300_799
"""Seconds since 1970 of the first and last second that a calendar date can name (years 1 to 9999)."""

Masks = dict[str, np.ndarray]
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PER_SECOND = {"s": 1, "ms": 1000}
"""Units of instants that microseconds cannot always hold."""
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


class Cast(NamedTuple):
    """Rows in the declared types.

    Attributes:
        rows: The given columns in declared order and type, one chunk each; absent columns stay absent.
        faults: Rule name such as `not_a_number:cpu_cores` to the mask `[rows]` of values that broke it.
    """

    rows: pa.Table
    faults: Masks


def cast_rows(spec: TableSpec, rows: pa.Table, where: str = "") -> Cast:
    """Casts candidate rows to the types of their declaration.

    Args:
        spec: The table's declaration.
        rows: Candidate rows; nullable columns may be absent.
        where: File or other origin, for errors.

    Raises:
        ConfigError: There is no declaration, or there are no rows.
        SchemaError: A column is unknown, given twice, missing, or of a type that cannot mean the declared
            one.
    """
    _refuse_other_than_rows(spec, rows, where)
    _check_names(spec, rows, where)
    rows = without_views(rows)
    arrays: list[pa.Array] = []
    faults: Masks = {}
    names = [name for name in spec.names if name in rows.column_names]
    for name in names:
        column = spec.column(name)
        values, masks = _cast_column(column, _one_chunk(rows[name]), f"{where or spec.name}, column {name}")
        arrays.append(values)
        faults |= {f"{kind}:{name}": mask for kind, mask in masks.items() if mask.any()}
    return Cast(pa.table(arrays, names=names), faults)


def complete(spec: TableSpec, rows: pa.Table) -> pa.Table:
    """Rows in the declared types with every declared column, absent ones null, and units in the metadata."""
    _refuse_other_than_rows(spec, rows, "complete")
    schema = arrow_schema(spec, SCHEMA_VERSION)
    arrays = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def with_columns(rows: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """`rows` with the content of some columns replaced, by arrays or lists, in the types that the columns have."""
    for name, values in columns.items():
        field = rows.schema.field(name)
        is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
        column = values.cast(field.type) if is_arrow else pa.array(values, field.type)
        rows = rows.set_column(rows.column_names.index(name), field, column)
    return rows


def seconds_to_instant(seconds: pa.Array) -> tuple[pa.Array, Masks]:
    """Seconds since 1970 `[n]` (integers or floats, nulls allowed) as instants, and what could not be one."""
    known = seconds.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(seconds, 0).to_numpy(zero_copy_only=False)
    finite = np.isfinite(numbers)
    inside = (numbers >= EARLIEST_S) & (numbers <= LATEST_S)
    safe = np.where(finite & inside, numbers, 0)
    # Microseconds do not fit narrower ones
    safe = safe.astype(np.int64 if safe.dtype.kind in "iu" else np.float64)
    micros = safe * 1_000_000 if safe.dtype.kind in "iu" else np.rint(safe * 1e6)
    good = known & finite & inside
    instants = pa.array(micros.astype(np.int64), pa.int64(), mask=~good).cast(INSTANT)
    return instants, {"not_finite": known & ~finite, "out_of_range": known & finite & ~inside}


def _refuse_other_than_rows(spec: Any, rows: Any, where: str) -> None:
    refuse_type("spec", spec, TableSpec, where, "give it a declaration, such as logs_schema.REQUESTS")
    refuse_type("rows", rows, pa.Table, where, "pyarrow.table(...) makes one of columns")


def _check_names(spec: TableSpec, rows: pa.Table, where: str) -> None:
    found = Counter(rows.column_names)
    unknown = [name for name in found if name not in spec.names]
    missing = [column.name for column in spec.columns if not column.nullable and column.name not in found]
    twice = sorted(name for name, times in found.items() if times > 1)
    for what, names in (("unknown", unknown), ("missing", missing), ("repeated", twice)):
        if names:
            raise SchemaError(
                f"table {spec.name} has {what} columns: {first(names, num_shown=20)}",
                where=where or spec.name,
                allowed=", ".join(spec.names),
                advice="rename, drop or add columns; those that may be null may be absent",
            )


def _one_chunk(values: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.unify_dictionaries()
    return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)


def _cast_column(column: Column, values: pa.Array, where: str) -> tuple[pa.Array, Masks]:
    values, broken = _in_utf8(values)
    cast, masks = _cast_readable(column, _without_empty(values), where)
    return cast, masks if broken is None else masks | {"not_utf8": broken}


def _cast_readable(column: Column, values: pa.Array, where: str) -> tuple[pa.Array, Masks]:
    found = values.type
    if found == column.type:
        return values, {}
    if pa.types.is_null(found):
        return pa.nulls(len(values), column.type), {}
    if pa.types.is_dictionary(found) and column.type != LABEL:
        values = values.dictionary_decode()
    if _is_text(values.type):
        values = values.cast(pa.string())
    result = _CASTS[column.type](values)
    if result is None:
        raise SchemaError(
            f"a column of type {found} cannot be read as {column.type}",
            where=where,
            allowed=_ALLOWED[column.type],
            advice="convert the column before importing it",
        )
    return result


def _in_utf8(values: pa.Array) -> tuple[pa.Array, np.ndarray | None]:
    """The values with null in place of text that is not UTF-8, and where that was; None where it was nowhere.

    Arrow takes text from Parquet as it is, so that it would fail at the first read.
    """
    if pa.types.is_dictionary(values.type):
        names, broken = _in_utf8(values.dictionary)
        if broken is None:
            return values, None
        values = pa.DictionaryArray.from_arrays(values.indices, names)
        return values, np.append(broken, False)[values.indices.fill_null(len(broken)).to_numpy()]
    holds_lists = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
    if not (_is_text(values.type) or (holds_lists and _is_text(values.type.value_type))):
        return values, None
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        kind = pa.list_(pa.binary()) if holds_lists else pa.binary()
        broken = np.array([not _is_utf8(value) for value in values.cast(kind).to_pylist()], bool)
        kept = pa.array(np.arange(len(values)), pa.int64(), mask=broken)
        return values.take(kept), broken
    return values, None


def _without_empty(values: pa.Array) -> pa.Array:
    """The values with null in place of empty text."""
    is_dictionary = pa.types.is_dictionary(values.type)
    texts = values.dictionary if is_dictionary else values
    if not _is_text(texts.type):
        return values
    empty = pc.equal(texts, pa.scalar("", texts.type))
    if not pc.any(empty).as_py():
        return values
    if is_dictionary:
        empty = empty.take(values.indices)
    kept = pc.if_else(pc.fill_null(empty, False), None, pa.array(np.arange(len(values)), pa.int64()))
    return values.take(kept)


def _is_utf8(value: bytes | list[bytes | None] | None) -> bool:
    try:
        for text in value if isinstance(value, list) else [value]:
            (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_text(found: pa.DataType) -> bool:
    return pa.types.is_string(found) or pa.types.is_large_string(found)


def _to_label(values: pa.Array) -> tuple[pa.Array, Masks] | None:
    if pa.types.is_dictionary(values.type):
        names = _to_text(values.dictionary)
        if names is None:
            return None
        if names[0].null_count == 0 and len(pc.unique(names[0])) == len(names[0]):
            return pa.DictionaryArray.from_arrays(values.indices.cast(pa.int32()), names[0]), {}
        values = names[0].take(values.indices)
    text = _to_text(values)
    return None if text is None else (text[0].dictionary_encode(), {})


def _to_text(values: pa.Array) -> tuple[pa.Array, Masks] | None:
    if _is_text(values.type) or pa.types.is_integer(values.type):
        return values.cast(pa.string()), {}
    return None


def _to_list(values: pa.Array) -> tuple[pa.Array, Masks] | None:
    if _is_text(values.type):
        parts = pc.split_pattern(values, LIST_SEPARATOR)
        names = pc.utf8_trim_whitespace(parts.values)
        return pa.ListArray.from_arrays(parts.offsets, names, mask=parts.is_null()), {}
    if not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
        return None
    try:
        return values.cast(LABELS), {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _to_float(values: pa.Array) -> tuple[pa.Array, Masks] | None:
    if _is_text(values.type):
        return _read_text(values, float_of, pa.float64(), "not_a_number")
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.float64(), safe=False), {}
    return None


def _to_count(values: pa.Array) -> tuple[pa.Array, Masks] | None:
    result = _to_float(values)
    if result is None:
        return None
    numbers, masks = result
    known = numbers.is_valid().to_numpy(zero_copy_only=False)
    floats = pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False)
    finite = np.isfinite(floats)
    whole = finite & (floats == np.floor(floats))
    inside = np.abs(floats) <= np.iinfo(np.int32).max
    good = known & whole & inside
    counts = pa.array(np.where(good, floats, 0).astype(np.int32), mask=~good)
    masks = masks | {
        "not_finite": known & ~finite,
        "not_whole": known & finite & ~whole,
        "out_of_range": known & whole & ~inside,
    }
    return counts, masks


def _to_truth(values: pa.Array) -> tuple[pa.Array, Masks] | None:
    if _is_text(values.type) or pa.types.is_integer(values.type):
        return _read_text(values.cast(pa.string()), _truth_of, pa.bool_(), "not_a_boolean", attempts=())
    return None


def _to_instant(values: pa.Array) -> tuple[pa.Array, Masks] | None:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return None if _is_coarse(values) else seconds_to_instant(values)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _as_micros(values)
    if not _is_text(kind):
        return None
    try:
        return seconds_to_instant(values.cast(pa.float64()))
    except pa.ArrowInvalid:
        return _read_text(values, _instant_of, INSTANT, "not_an_instant", (INSTANT, pa.timestamp("us")))


def _is_coarse(seconds: pa.Array) -> bool:
    """Whether most seconds are too large for their precision: in 32 bits those of this century are minutes off."""
    if not (pa.types.is_float32(seconds.type) or pa.types.is_float16(seconds.type)):
        return False
    numbers = np.abs(seconds.drop_null().to_numpy(zero_copy_only=False))
    numbers = numbers[numbers <= LATEST_S]
    return bool(len(numbers) and np.median(np.spacing(numbers)) > 1.0)


def _as_micros(values: pa.Array) -> tuple[pa.Array, Masks]:
    """Timestamps or dates of any unit as instants, those beyond the calendar as faults."""
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s" if pa.types.is_date32(values.type) else "ms"))
    unit, tz = values.type.unit, values.type.tz
    far = np.zeros(len(values), bool)
    if unit in _PER_SECOND:
        seconds = pc.divide(values.cast(pa.int64()), _PER_SECOND[unit])
        far = seconds_to_instant(seconds)[1]["out_of_range"]
        values = values.take(pa.array(np.arange(len(values)), pa.int64(), mask=far))
    return values.cast(pa.timestamp("us", tz=tz), safe=False).cast(INSTANT), {"out_of_range": far}


def _read_text(
    values: pa.Array,
    read: Callable[[str], Any],
    wanted: pa.DataType,
    fault: str,
    attempts: tuple[pa.DataType, ...] | None = None,
) -> tuple[pa.Array, Masks]:
    """All values at once where Arrow can read them all, else one by one to find the bad ones, and those too far off."""
    for attempt in (wanted,) if attempts is None else attempts:
        try:
            return values.cast(attempt).cast(wanted), {}
        except pa.ArrowInvalid:
            continue
    read_values: list[Any] = []
    bad, far = np.zeros(len(values), bool), np.zeros(len(values), bool)
    for row, text in enumerate(values.to_pylist()):
        try:
            read_values.append(None if text is None else read(text.strip()))
        except (ValueError, OverflowError) as error:
            read_values.append(None)
            (far if isinstance(error, OverflowError) else bad)[row] = True
    return pa.array(read_values, wanted), {fault: bad, "out_of_range": far}


def float_of(value: Any) -> float:
    """The number that a text or a field of JSON holds; ValueError for other texts (`1_000` is a number in Python
    alone) and for numbers beyond measure, TypeError for what is neither."""
    if isinstance(value, str) and "_" in value:
        raise ValueError(value)
    try:
        return float(value)
    except OverflowError as error:  # of a whole number with hundreds of digits
        raise ValueError(value) from error


def _truth_of(text: str) -> bool:
    try:
        return _TRUTHS[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _instant_of(text: str) -> datetime:
    if NUMBER.fullmatch(text):
        return EPOCH + timedelta(seconds=float(text))
    instant = datetime.fromisoformat(text)
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


_CASTS: Mapping[pa.DataType, Callable[[pa.Array], tuple[pa.Array, Masks] | None]] = {
    LABEL: _to_label,
    LABELS: _to_list,
    INSTANT: _to_instant,
    pa.string(): _to_text,
    pa.float64(): _to_float,
    pa.int32(): _to_count,
    pa.bool_(): _to_truth,
}
_ALLOWED: Mapping[pa.DataType, str] = {
    LABEL: "text, dictionary of text, or integers",
    LABELS: f"lists of text, or text separated by '{LIST_SEPARATOR}'",
    INSTANT: "timestamps, dates, ISO 8601 text, or seconds since 1970 (not in single precision)",
    pa.string(): "text or integers",
    pa.float64(): "numbers, or text that writes numbers",
    pa.int32(): "whole numbers, or text that writes them",
    pa.bool_(): "booleans, 0 and 1, or the words true and false",
}
