"""The project's own tables as CSV or Parquet: one file a table, a folder of them, or an existing archive.

Readings of the format:

* The table is identified by the file's name (`requests.csv`, `requests-2.csv.gz`), else its folder's (`requests/`,
  `table=requests/`), else by the columns.
* Columns are those of the table's declaration; nullable ones may be absent, unknown ones are refused.
* CSV has a header line; blanks around a field do not count, and an empty one is null; lists are written `a|b`;
  booleans true/false or 1/0.
* Instants are ISO 8601 (UTC where no zone is named) or seconds: since 1970, or since the `origin` given.
* A line of a CSV file is a row: there are no line breaks inside a field.
* Rows are numbered by line in CSV, from 1 in Parquet. A re-imported archive brings its facts, but not its
  quarantine.
* `slots.toml`, beside the tables in a folder or named by itself, says how a system that decides in slots is run; it is
  kept as it is among the archive's facts (`slots`), for the problem of orchestration to read.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.archive import Archive
from logs_schema.columns import TableSpec
from logs_schema.errors import FormatError, first
from logs_schema.formats.counting import Origin
from logs_schema.formats.describing import ABSOLUTE_CLOCK, RELATIVE_CLOCK, describe
from logs_schema.formats.fields import CsvLines, csv_names, read_header
from logs_schema.formats.files import each_once, is_hidden, numbered_lines, read_toml, refuse_special
from logs_schema.formats.reading import (
    CHUNK_ROWS,
    NOTHING_GIVEN,
    Chunk,
    Item,
    Lines,
    ReadingOptions,
    parse_lines,
)
from logs_schema.layout import QUARANTINE, label_names, open_parquet
from logs_schema.product import MANIFEST
from logs_schema.tables import TABLES
from logs_schema.views import without_views

NAME = "native"
DESCRIPTION = "this project's own tables: CSV (plain or .gz) or Parquet, a folder of them, or an archive"
EXPECTED = "a header line with columns of one of the tables " + ", ".join(spec.name for spec in TABLES)
_ENDINGS = (".csv", ".csv.gz", ".parquet")
SLOTS = "slots.toml"
_PARQUET_MAGIC = "PAR1"
_MIN_KNOWN_NAMES = 2


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The CSV and Parquet files that `paths` name; folders are searched to any depth, but not archives inside them.

    Raises:
        FormatError: A path does not exist, holds no such file, or is another kind of file.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.exists() and not path.is_dir():
            refuse_special(path)
        if path.name == SLOTS and path.is_file() and len(paths) > 1:
            continue
        if path.is_file() and path.name.endswith(_ENDINGS):
            found.append(path)
            continue
        files = [file for file in _inside(path) if file.name.endswith(_ENDINGS)]
        if not files:
            what = "no CSV or Parquet file is here" if path.exists() else "there is no such file or folder"
            allowed = f"files ending in {', '.join(_ENDINGS)}"
            raise FormatError(what, where=str(path), allowed=allowed, advice="check the path")
        for file in files:
            refuse_special(file)
        found.extend(files)
    return each_once(found)


def inventory_files(paths: Sequence[Path]) -> list[Path]:
    """The `slots.toml` of a log, in its folder or named by itself."""
    beside = (path / SLOTS if path.is_dir() else path for path in map(Path, paths))
    return [path for path in beside if path.name == SLOTS and path.is_file()]


def not_read(paths: Sequence[Path]) -> list[str]:
    """Names of the files in these folders that end in something else, such as JSON lines; archives have other files."""
    return [
        str(file.relative_to(path))
        for path in map(Path, paths)
        if path.is_dir() and not (path / MANIFEST).is_file()
        for file in _inside(path)
        if not file.name.endswith(_ENDINGS) and file != path / SLOTS
    ]


def _inside(folder: Path) -> list[Path]:
    """The files at any depth of a folder, but for hidden ones, quarantined rows, and archives inside it."""
    inside = sorted(folder.rglob("*"))
    products = {file.parent for file in inside if file.name == MANIFEST} - {folder}
    return [
        file
        for file in inside
        if file.parent.name != QUARANTINE
        and not is_hidden(file, folder)
        and file.is_file()
        and products.isdisjoint(file.parents)
    ]


def looks_like(lines: Sequence[str]) -> bool:
    """Whether these first lines are Parquet, or a header with at least two columns of one of our tables."""
    first = next(iter(lines), "")
    if first.startswith(_PARQUET_MAGIC):
        return True
    names = set(csv_names(first))
    return any(len(names & set(spec.names)) >= _MIN_KNOWN_NAMES for spec in TABLES)


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads tables from CSV and Parquet files, in the order of the tables and then of the files.

    Args:
        paths: Files, folders or archives.
        given: Facts that are not in the log.

    Raises:
        FormatError: A file's table cannot be identified, or it has unknown columns, or lacks required ones.
    """
    files_of_tables = [(table_of(path, column_names(path)), path) for path in data_files(paths)]
    origin = None if given.origin is None else Origin(given.origin)
    for spec in TABLES:
        for path in (path for table, path in files_of_tables if table is spec):
            check_columns(spec, column_names(path), path)
            read_one = read_parquet if path.suffix == ".parquet" else read_csv
            items = read_one(spec, path, given.names.get(path.absolute(), ""))
            for item in items:
                yield item if origin is None or not isinstance(item, Chunk) else origin.moved(item)
    if origin is not None:
        origin.refuse_unused(first(path for _, path in files_of_tables))


def parts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> list[list[Path]]:
    """Every file by itself, in the order of `read`; with an origin all at once: it must be of use to some file."""
    files = data_files(paths)
    if given.origin is not None:
        return [list(paths)]
    files_of_tables = [(table_of(path, column_names(path)), path) for path in files]
    return [[path] for spec in TABLES for table, path in files_of_tables if table is spec]


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """The facts of re-imported archives; for other files, that instants are dates unless an origin is given.

    Raises:
        FormatError: A `slots.toml` is not TOML.
    """
    kept: dict[str, Any] = {}
    for path in map(Path, paths):
        if (path / MANIFEST).is_file():
            kept |= Archive(path).facts
    for told in inventory_files(paths):
        kept[told.stem] = read_toml(
            told,
            "cannot be read as TOML",
            allowed="settings of a system that decides in slots, such as slot_s = 0.25",
            advice="mend the file, or take it away",
        )
    if ignored := not_read(paths):
        kept |= {"not_read": first(ignored)}
    return describe(NAME, clock=RELATIVE_CLOCK if given.origin else ABSOLUTE_CLOCK) | kept


def column_names(path: Path) -> list[str]:
    """The column names of a CSV or Parquet file."""
    if path.suffix == ".parquet":
        return list(_open(path).schema_arrow.names)
    return read_header(path)[1]


def table_of(path: Path, names: Sequence[str]) -> TableSpec:
    """The table that a file holds, by its name, its folders' names, or its columns.

    Raises:
        FormatError: None of these identifies it.
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
        "neither the file's name nor its columns identify which table it holds",
        where=f"{path}, columns {first(names)}",
        allowed=", ".join(f"{spec.name}.csv, {spec.name}.parquet" for spec in TABLES),
        advice="name the file after its table",
    )


_OTHER_SEPARATOR = "write commas between the columns, and a point before decimals"


def check_columns(spec: TableSpec, names: Sequence[str], path: Path) -> None:
    """FormatError that lists the allowed columns if any are unknown, repeated or lacking."""
    known = set(spec.names)
    troubles = {
        "has unknown columns": [name for name in names if name not in known],
        "has repeated columns": sorted(name for name, times in Counter(names).items() if times > 1),
        "lacks columns": sorted(_required(spec) - set(names)),
    }
    for trouble, columns in troubles.items():
        if columns:
            raise FormatError(
                f"the file {trouble}: {first(columns)}",
                where=f"{path}, table {spec.name}",
                allowed=", ".join(spec.names),
                advice=_OTHER_SEPARATOR
                if len(names) == 1 and known & set(re.split(r"\W+", names[0]))
                else "rename, drop or add these columns; all but "
                f"{', '.join(sorted(_required(spec)))} may be absent",
            )


def read_csv(spec: TableSpec, path: Path, name: str = "") -> Iterator[Item]:
    """Reads one CSV file, called `name`; lines with another number of fields than the header are rejected."""
    _, names = read_header(path)
    csv_lines = CsvLines()

    def parse_row(number: int, line: str) -> list[str] | None:
        return csv_lines.fields(line, len(names)) if number > 1 and line.strip() else None

    def as_table(_: TableSpec, rows: Sequence[Sequence[str]]) -> pa.Table:
        return _texts(names, rows)

    yield from parse_lines(numbered_lines(path), parse_row, spec, name or _source(path), as_table)


def read_parquet(spec: TableSpec, path: Path, name: str = "") -> Iterator[Item]:
    """Reads one Parquet file, called `name`, one batch of a row group at a time."""
    next_row, source = 1, name or _source(path)
    try:
        file = _open(path, _texts_in(spec, path))
        for batch in file.iter_batches(CHUNK_ROWS):
            rows = without_views(pa.Table.from_batches([batch]))
            yield Chunk(spec.name, rows, source, next_row, None)
            next_row += batch.num_rows
        yield Lines(source, file.metadata.num_rows, 0, 0)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _source(path: Path) -> str:
    """The file's name with the partition folders above it, such as `date=2013-01-31/part-0.parquet`."""
    folders = [folder for folder in path.parts[:-1] if "=" in folder]
    return "/".join([*folders, path.name])


def _texts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        {
            name: pa.array([text.strip() or None for text in column], pa.string())
            for name, column in zip(names, columns, strict=True)
        }
    )


def _texts_in(spec: TableSpec, path: Path) -> list[str]:
    """The labels of a table that a file stores as text: they are read as dictionaries."""
    schema = _open(path).schema_arrow
    present = [name for name in label_names(spec) if name in schema.names]
    return [name for name in present if schema.field(name).type in (pa.string(), pa.large_string())]


def _open(path: Path, read_dictionary: list[str] | None = None) -> pq.ParquetFile:
    try:
        return open_parquet(path, read_dictionary)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> FormatError:
    return FormatError(
        f"the file cannot be read as Parquet: {error}", where=str(path), advice="write or fetch it again"
    )


def _required(spec: TableSpec) -> set[str]:
    return {column.name for column in spec.columns if not column.nullable}
