"""The quarantine: bad rows with the rule they broke, where they came from, and their content."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.layout import QUARANTINE_SCHEMA, parquet_writer
from logs_schema.views import without_views

_FLUSH_ROWS = 20_000
_FLUSH_LETTERS = 8 << 20
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}


class BadRecord(NamedTuple):
    """One bad row: table and rule, file and row (or line) number in it, and the row as text or JSON."""

    table: str
    rule: str
    source: str
    row: int
    raw: str


class QuarantineWriter:
    """Writes bad rows to one Parquet file, which is created at the first of them.

    Args:
        file: Where to write.
        is_known: Whether a bad row is kept elsewhere already, so that it is counted and not written; None: no row is.

    Attributes:
        counts: Rows written so far by (table, rule).
        num_known: Rows that were known, by table.
    """

    def __init__(self, file: Path, is_known: Callable[[BadRecord], bool] | None = None) -> None:
        self.file, self.is_known = file, is_known
        self.counts: Counter[tuple[str, str]] = Counter()
        self.num_known: Counter[str] = Counter()
        self._gathered: list[BadRecord] = []
        self._num_letters = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, records: Iterable[BadRecord]) -> None:
        """Takes bad rows, in the order in which they are to be kept."""
        for record in records:
            kept = record._replace(raw=_storable(record.raw))
            if self.is_known is not None and self.is_known(kept):
                self.num_known[kept.table] += 1
                continue
            self.counts[kept.table, kept.rule] += 1
            self._gathered.append(kept)
            self._num_letters += len(kept.raw)
            if len(self._gathered) >= _FLUSH_ROWS or self._num_letters >= _FLUSH_LETTERS:
                self._flush()

    def close(self) -> None:
        """Writes what is left and closes the file."""
        self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        if not self._gathered:
            return
        if self._writer is None:
            self._writer = parquet_writer(self.file, QUARANTINE_SCHEMA)
        columns = zip(*self._gathered, strict=True)
        self._writer.write_table(pa.table([list(column) for column in columns], schema=QUARANTINE_SCHEMA))
        self._gathered, self._num_letters = [], 0


def rows_as_json(rows: pa.Table, indices: np.ndarray) -> list[str]:
    """The rows with the given indices as JSON text, nulls left out; whatever they hold."""
    bad = without_views(rows).take(pa.array(indices, pa.int64()))
    columns = [_readable(column.combine_chunks()) for column in bad.columns]
    return [_as_json(dict(zip(rows.column_names, row, strict=True))) for row in zip(*columns, strict=True)]


def _as_json(row: dict[str, Any]) -> str:
    known = {name: value for name, value in row.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, default=str)


def _readable(values: pa.Array) -> list[Any]:
    """Values as Python has them; instants as text, those that no calendar names as counts, bad text escaped."""
    if pa.types.is_timestamp(values.type):
        return [_instant_text(count, values.type) for count in values.cast(pa.int64()).to_pylist()]
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            return [
                None if texts is None else [_escaped(text) for text in texts]
                for texts in values.cast(pa.list_(pa.binary())).to_pylist()
            ]
        return [_escaped(text) for text in values.cast(pa.binary()).to_pylist()]
    except OverflowError:  # a date beyond the year 9999
        return _readable(values.cast(pa.timestamp("s" if pa.types.is_date32(values.type) else "ms")))


def _instant_text(count: int | None, kind: pa.TimestampType) -> str | None:
    if count is None:
        return None
    micros = count * _MICROS[kind.unit] if kind.unit != "ns" else count // 1000
    try:
        instant = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    except OverflowError:
        return f"{count} {kind.unit} since 1970"
    return instant.isoformat() + ("+00:00" if kind.tz else "")


def _escaped(text: bytes | None) -> str | None:
    return None if text is None else text.decode("utf-8", "backslashreplace")


def _storable(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates appear escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
