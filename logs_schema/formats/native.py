"""The project's own tables as CSV or Parquet: one file a table, a folder of them, or an existing archive.

Readings of the format:

* The table is told by the file's name (`requests.csv`, `requests-2.csv.gz`), else its folder's (`requests/`,
  `table=requests/`), else by the columns.
* Columns are those of the table's declaration; nullable ones may be absent, unknown ones are refused.
* CSV has a header line; an empty field is null; lists are written `a|b`; booleans true/false or 1/0.
* Instants are ISO 8601 (UTC where no zone is named) or seconds since 1970; they are absolute, so an `origin`
  changes nothing.
* Rows are numbered by line in CSV, from 1 in Parquet. A re-imported archive brings its facts, but not its
  quarantine.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.archive import Archive
from logs_schema.columns import TableSpec
from logs_schema.errors import FormatError
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.formats.fields import csv_names
from logs_schema.formats.reading import CHUNK_ROWS, Chunk, Reject, numbered_lines
from logs_schema.layout import QUARANTINE, label_names, open_parquet
from logs_schema.product import MANIFEST
from logs_schema.tables import TABLES

NAME = "native"
DESCRIPTION = "this project's own tables: CSV (plain or .gz) or Parquet, a folder of them, or an archive"
EXPECTED = "a header line with columns of one of the tables " + ", ".join(spec.name for spec in TABLES)
_ENDINGS = (".csv", ".csv.gz", ".parquet")
_PARQUET_MAGIC = "PAR1"
_MIN_KNOWN_NAMES = 2


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The CSV and Parquet files that `paths` name; folders are searched to any depth.

    Raises:
        FormatError: A path does not exist, holds no such file, or is another kind of file.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        inside = [path] if path.is_file() else sorted(path.rglob("*"))
        files = [
            file
            for file in inside
            if file.name.endswith(_ENDINGS) and file.parent.name != QUARANTINE and file.is_file()
        ]
        if not files:
            what = "no CSV or Parquet file is here" if path.exists() else "there is no such file or folder"
            allowed = f"files ending in {', '.join(_ENDINGS)}"
            raise FormatError(what, where=str(path), allowed=allowed, advice="check the path")
        found.extend(files)
    return found


def looks_like(lines: Sequence[str]) -> bool:
    """Whether these first lines are Parquet, or a header with at least two columns of one of our tables."""
    first = next(iter(lines), "")
    if first.startswith(_PARQUET_MAGIC):
        return True
    names = set(csv_names(first))
    return any(len(names & set(spec.names)) >= _MIN_KNOWN_NAMES for spec in TABLES)


def read(paths: Sequence[Path], *, origin: datetime | None = None) -> Iterator[Chunk | Reject]:
    """Reads tables from CSV and Parquet files, in the order of the tables and then of the files.

    Args:
        paths: Files, folders or archives.
        origin: Not needed: instants are absolute.

    Raises:
        FormatError: A file's table cannot be told, or it has unknown columns, or lacks required ones.
    """
    told = [(table_of(path, column_names(path)), path) for path in data_files(paths)]
    for spec in TABLES:
        for path in (path for table, path in told if table is spec):
            check_columns(spec, column_names(path), path)
            yield from read_parquet(spec, path) if path.suffix == ".parquet" else read_csv(spec, path)


def facts(paths: Sequence[Path]) -> dict[str, Any]:
    """The facts of re-imported archives; for other files, that instants are absolute."""
    kept: dict[str, Any] = {}
    for path in map(Path, paths):
        if (path / MANIFEST).is_file():
            kept |= Archive(path).facts
    return describe(NAME, clock=ABSOLUTE_CLOCK) | kept


def column_names(path: Path) -> list[str]:
    """The column names of a CSV or Parquet file."""
    if path.suffix == ".parquet":
        return list(_open(path).schema_arrow.names)
    return csv_names(next((line for _, line in numbered_lines(path)), ""))


def table_of(path: Path, names: Sequence[str]) -> TableSpec:
    """The table that a file holds, by its name, its folders' names, or its columns.

    Raises:
        FormatError: None of these tells.
    """
    stem = re.split(r"[-.]", path.name)[0]
    folders = [parent.name.removeprefix("table=") for parent in path.parents]
    for name in (stem, *folders[:2]):
        for spec in TABLES:
            if name == spec.name:
                return spec
    fitting = [spec for spec in TABLES if set(names) <= set(spec.names) and _required(spec) <= set(names)]
    if len(fitting) == 1:
        return fitting[0]
    raise FormatError(
        "neither the file's name nor its columns tell which table it holds",
        where=f"{path}, columns {', '.join(names)}",
        allowed=", ".join(f"{spec.name}.csv, {spec.name}.parquet" for spec in TABLES),
        advice="name the file after its table",
    )


def check_columns(spec: TableSpec, names: Sequence[str], path: Path) -> None:
    """FormatError that lists the allowed columns if any are unknown, repeated or lacking."""
    troubles = {
        "has unknown columns": [name for name in names if name not in spec.names],
        "has repeated columns": sorted({name for name in names if names.count(name) > 1}),
        "lacks columns": sorted(_required(spec) - set(names)),
    }
    for trouble, columns in troubles.items():
        if columns:
            raise FormatError(
                f"the file {trouble}: {', '.join(columns)}",
                where=f"{path}, table {spec.name}",
                allowed=", ".join(spec.names),
                advice="rename, drop or add these columns; all but "
                + f"{', '.join(sorted(_required(spec)))} may be absent",
            )


def read_csv(spec: TableSpec, path: Path) -> Iterator[Chunk | Reject]:
    """Reads one CSV file; lines with another number of fields than the header are rejected."""
    records = _records(path)
    names = [name.strip() for name in next(records)[1]]
    rows: list[list[str]] = []
    raw: list[str] = []
    numbers: list[int] = []
    source = _source(path)
    for number, fields, text in records:
        if len(fields) != len(names):
            rule = "field_count" if fields else "not_csv"
            yield Reject(spec.name, rule, source, number, text)
            continue
        rows.append(fields)
        raw.append(text)
        numbers.append(number)
        if len(rows) >= CHUNK_ROWS:
            yield Chunk(spec.name, _texts(names, rows), source, np.array(numbers), raw)
            rows, raw, numbers = [], [], []
    if rows:
        yield Chunk(spec.name, _texts(names, rows), source, np.array(numbers), raw)


def read_parquet(spec: TableSpec, path: Path) -> Iterator[Chunk]:
    """Reads one Parquet file, one batch of a row group at a time."""
    first, source = 1, _source(path)
    try:
        for batch in _open(path, _texts_in(spec, path)).iter_batches(CHUNK_ROWS):
            yield Chunk(spec.name, pa.Table.from_batches([batch]), source, first, None)
            first += batch.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from error


def _records(path: Path) -> Iterator[tuple[int, list[str], str]]:
    """First line, fields and text of each record; no fields where it is no CSV; blank lines are left out."""
    gathered: list[tuple[int, str]] = []

    def lines() -> Iterator[str]:
        for numbered in numbered_lines(path):
            gathered.append(numbered)
            yield f"{numbered[1]}\n"

    reader = csv.reader(lines(), strict=True)
    while True:
        gathered.clear()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error:
            fields = []
        text = "\n".join(line for _, line in gathered)
        if fields or text.strip():
            yield gathered[0][0], fields, text


def _source(path: Path) -> str:
    """The file's name with the partition folders above it, such as `date=2013-01-31/part-0.parquet`."""
    folders = [folder for folder in path.parts[:-1] if "=" in folder]
    return "/".join([*folders, path.name])


def _texts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table({
        name: pa.array([text or None for text in column], pa.string())
        for name, column in zip(names, columns, strict=True)
    })  # fmt: skip


def _texts_in(spec: TableSpec, path: Path) -> list[str]:
    """The labels of a table that a file stores as text: they are read as dictionaries."""
    schema = _open(path).schema_arrow
    present = [name for name in label_names(spec) if name in schema.names]
    return [name for name in present if schema.field(name).type in (pa.string(), pa.large_string())]


def _open(path: Path, read_dictionary: list[str] | None = None) -> pq.ParquetFile:
    try:
        return open_parquet(path, read_dictionary)
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> FormatError:
    return FormatError(
        f"the file cannot be read as Parquet: {error}", where=str(path), advice="write or fetch it again"
    )


def _required(spec: TableSpec) -> set[str]:
    return {column.name for column in spec.columns if not column.nullable}
