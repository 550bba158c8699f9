"""Where things lie in an archive, and how its Parquet files are written.

ARCHIVE/manifest.json
ARCHIVE/table=requests/date=2013-01-31/part-0.parquet      one folder a day (UTC) of the deciding instant
ARCHIVE/table=nodes/part-0.parquet                         tables without days
ARCHIVE/quarantine/part-0.parquet                          bad rows, with rule and origin
"""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.columns import LABEL, TableSpec

KIND = "archive"
PART = "part-0.parquet"
QUARANTINE = "quarantine"
ROW_GROUP_ROWS = 131_072
QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("raw", pa.string(), nullable=False),
    ]
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).date().toordinal()


def partition(table_name: str, day: date | None) -> str:
    """Path, relative to the archive, of the file with one day of a table (or all of a table without days)."""
    middle = f"date={day.isoformat()}/" if day else ""
    return f"table={table_name}/{middle}{PART}"


def number_of(day: date) -> int:
    """Days since 1970-01-01 of a date."""
    return day.toordinal() - _EPOCH


def date_of(num_days: int) -> date:
    """The date that lies this many days after 1970-01-01."""
    return date.fromordinal(_EPOCH + num_days)


def label_names(spec: TableSpec) -> list[str]:
    """The columns stored, and to be read, as dictionaries."""
    return [column.name for column in spec.columns if column.type == LABEL]


def open_parquet(file: Path, read_dictionary: list[str] | None = None) -> pq.ParquetFile:
    """A Parquet file for reading a row group at a time without reading ahead (which would cost memory)."""
    return pq.ParquetFile(file, read_dictionary=read_dictionary, pre_buffer=False)


def parquet_writer(file: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of an archive's Parquet files; its folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "version": "2.6"}
    return pq.ParquetWriter(file, schema, **options)
