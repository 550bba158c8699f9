"""Where things lie in an archive, and how its Parquet files are written.

ARCHIVE/manifest.json
ARCHIVE/table=requests/date=2013-01-31/part-0.parquet      one folder a day (UTC) of the deciding instant
ARCHIVE/table=nodes/part-0.parquet                         tables without days
ARCHIVE/quarantine/part-0.parquet                          bad rows, with rule and origin

After `schedtwin compact` (see `logs_schema.packs`):
ARCHIVE/table=requests/dates=2013-01-31--2013-02-27/part-0.parquet
ARCHIVE/quarantine/pack-0-6.parquet
"""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.calendar import EPOCH_DATE
from logs_schema.columns import LABEL, TableSpec, arrow_schema
from logs_schema.tables import SCHEMA_VERSION

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
_EPOCH = EPOCH_DATE.toordinal()


def partition(table_name: str, day: date | None) -> str:
    """Path, relative to the archive, of the file with one day of a table (or all of a table without days)."""
    middle = f"date={day.isoformat()}/" if day else ""
    return f"table={table_name}/{middle}{PART}"


def day_of(file: Path | str) -> date:
    """The day of a file in a table with days."""
    return date.fromisoformat(Path(file).parent.name.removeprefix("date="))


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
    """A Parquet file for reading a row group at a time without reading ahead (which would cost memory).

    Of the columns to be read as dictionaries older files may lack some.
    """
    metadata = pq.read_metadata(file)
    labels = [name for name in read_dictionary or () if name in metadata.schema.names]
    return pq.ParquetFile(file, metadata=metadata, read_dictionary=labels, pre_buffer=False)


def there(parquet: pq.ParquetFile, names: Sequence[str]) -> list[str]:
    """Those of some columns that a file has: an archive of an older version lacks columns that came later."""
    known = set(parquet.schema_arrow.names)
    return [name for name in names if name in known]


def completed(rows: pa.Table, spec: TableSpec, names: Sequence[str]) -> pa.Table:
    """Columns of rows that were read, in the order given; what is not there is null where it may be.

    Raises:
        ArrowInvalid: A column that must hold values is not there.
    """
    missing = set(names).difference(rows.column_names)
    if not missing:
        return rows.select(list(names))
    if required := sorted(name for name in missing if not spec.column(name).nullable):
        raise pa.ArrowInvalid(f"there is no column {', '.join(required)}")
    full = arrow_schema(spec, SCHEMA_VERSION)
    schema = pa.schema([full.field(name) for name in names], metadata=full.metadata)
    columns = [
        pa.nulls(rows.num_rows, field.type) if field.name in missing else rows[field.name].cast(field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def parquet_writer(file: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of an archive's Parquet files; its folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "version": "2.6"}
    return pq.ParquetWriter(file, schema, **options)
