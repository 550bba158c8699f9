"""The quarantine: bad rows with the rule they broke, where they came from, and what they said."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.layout import QUARANTINE_SCHEMA, parquet_writer

_FLUSH_ROWS = 20_000
_FLUSH_LETTERS = 8 << 20


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

    Attributes:
        counts: Rows so far by (table, rule).
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.counts: Counter[tuple[str, str]] = Counter()
        self._gathered: list[BadRecord] = []
        self._num_letters = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, records: Iterable[BadRecord]) -> None:
        """Takes bad rows, in the order in which they are to be kept."""
        for record in records:
            self.counts[record.table, record.rule] += 1
            self._gathered.append(record._replace(raw=_storable(record.raw)))
            self._num_letters += len(record.raw)
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
    """The rows with the given indices as JSON text, nulls left out."""
    return [_as_json(row) for row in rows.take(pa.array(indices, pa.int64())).to_pylist()]


def _as_json(row: dict[str, Any]) -> str:
    said = {name: value for name, value in row.items() if value is not None}
    return json.dumps(said, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def _storable(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates appear escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
