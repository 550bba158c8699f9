"""The archive: a log's tables as Parquet, filed by day, opened lazily and read a day or a row group at a
time.

Opening reads the manifest alone. Reading a day opens only that day's file; scanning holds one row group at a
time. `logs_schema.archive_writer` writes archives, `logs_schema.layout` names the paths of their files.
"""

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema import product
from logs_schema.atomic_folders import ReadFolder
from logs_schema.columns import TableSpec, arrow_schema
from logs_schema.errors import ArchiveChangedError, ArchiveError, ProductError, first
from logs_schema.hashing import json_hash
from logs_schema.layout import (
    KIND,
    QUARANTINE,
    QUARANTINE_SCHEMA,
    completed,
    day_of,
    label_names,
    open_parquet,
    partition,
    there,
)
from logs_schema.options import checked_days
from logs_schema.packs import PACKED_VERSION, PACKS, Piece, as_written, pieces_of
from logs_schema.row_groups import RowGroup, row_groups
from logs_schema.stores import address_of, fetch, fetch_all, mirror_of
from logs_schema.tables import SCHEMA_VERSION, TABLES

OF_ARCHIVE = "days of an archive"
BATCH_ROWS = 65_536


class Archive:
    """An archive opened for reading.

    Args:
        path: The archive's folder, or its address in an object store (`logs_schema.stores`); then `path` is its mirror.

    Attributes:
        path: The archive's folder.
        folder: The same as it was when it was opened, whatever is added to the archive since.
        manifest: Its manifest.
        pieces: Name of each Parquet file as it was written -> where its rows are (`logs_schema.packs`).

    Raises:
        ArchiveError: There is no archive, its manifest is damaged, or a newer version wrote it.
    """

    def __init__(self, path: Path | str) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ArchiveError(
                f"an archive is not opened by a {type(path).__name__}",
                allowed="the path of its folder, or its address",
            )
        address = address_of(path)
        self.path = Path(path) if address is None else mirror_of(address)
        self.folder, self.manifest = _opened(self.path)
        _check_version(self.path, self.manifest.extra.get("schema_version"))
        self.pieces = pieces_of(self.manifest)
        self._as_written = as_written(self.manifest)
        self._tables: dict[str, dict[str, Any]] = self.manifest.extra["tables"]

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {self.num_rows(name):,} rows" for name in self.tables)
        return f"Archive({str(self.path)!r}, {rows or 'empty'})"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that have rows, or had rows in quarantine."""
        return tuple(self._tables)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the importer recorded about the log: limits, notes, clock."""
        return dict(self.manifest.extra["facts"])

    @property
    def made_from(self) -> dict[str, str]:
        """Name to content hash of each file the archive was made from."""
        return dict(self.manifest.made_from)

    @property
    def content_hash(self) -> str:
        """Hash over all files, as they were written, and facts; equal content, equal hash."""
        return self._as_written.content_hash

    def days(self, table: str) -> list[date]:
        """The days (UTC) that hold rows of a table, ascending; empty for a table without days."""
        return sorted(date.fromisoformat(text) for text in self._entry(table)["days"])

    def days_hash(self, table: str, days: Iterable[date]) -> str:
        """Hash over what a table holds on some days; an archive that grew by later days keeps it."""
        return json_hash({name: self._as_written.files.get(name) for name in self._names(table, days)})

    def num_rows(self, table: str, day: date | None = None) -> int:
        """Number of rows of a table, in all or on one day."""
        entry = self._entry(table)
        checked_days([] if day is None else [day], OF_ARCHIVE)
        return int(entry["rows"] if day is None else entry["days"].get(day.isoformat(), 0))

    def num_rows_on(self, table: str, days: Iterable[date]) -> int:
        """Number of rows of a table on some days together."""
        return sum(self.num_rows(table, day) for day in days)

    def quarantined(self, table: str) -> dict[str, int]:
        """Number of quarantined rows of a table by the rule they broke."""
        return dict(self._entry(table)["quarantined"])

    def superseded(self, table: str) -> dict[str, int]:
        """Number of rows of a table that gave way to other rows of their key, by rule; they are nowhere kept."""
        return dict(self._entry(table).get("superseded", {}))

    def read(
        self, table: str, *, days: Iterable[date] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Rows of a table, in memory, in the order of its declaration.

        Args:
            table: Name of the table.
            days: Which days to read (all if None); days without rows add none.
            columns: Which columns to read (all if None), in this order.

        Raises:
            ArchiveError: No such table or column, or a file is missing or damaged.
        """
        spec, names = _spec(table, self.path), self._columns(table, columns)
        pieces = []
        for name in self._names(table, days):
            with self.reading(name):
                parquet, groups = self._open(name, spec)
                rows = parquet.read_row_groups(groups, columns=there(parquet, names))
                pieces.append(completed(rows, spec, names))
        if not pieces:
            return arrow_schema(spec, SCHEMA_VERSION).empty_table().select(names)
        return pa.concat_tables(pieces).unify_dictionaries()

    def scan(
        self,
        table: str,
        *,
        days: Iterable[date] | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a table as batches, with one row group in memory at a time; labels differ in code by batch.

        Args:
            table: Name of the table.
            days: Which days to read (all if None); days without rows add none.
            columns: Which columns to read (all if None), in this order.
            batch_rows: Largest number of rows of a batch.

        Raises:
            ArchiveError: No such table or column, or a file is missing or damaged.
        """
        spec, names = _spec(table, self.path), self._columns(table, columns)
        for name in self._names(table, days):
            with self.reading(name):
                parquet, groups = self._open(name, spec)
                for group in groups:
                    present = there(parquet, names)
                    for batch in parquet.iter_batches(batch_rows, row_groups=[group], columns=present):
                        yield from completed(pa.Table.from_batches([batch]), spec, names).to_batches()

    def row_groups(self, table: str, *, days: Iterable[date] | None = None) -> list[RowGroup]:
        """The smallest parts of a table that can be read alone, in order, unread.

        Args:
            table: Name of the table.
            days: Of which days (all if None); days without rows add none.

        Raises:
            ArchiveError: No such table, or a file is missing or damaged.
        """
        spec, found = _spec(table, self.path), []
        by_day = bool(self._entry(table)["days"])
        for name in self._names(table, days):
            day, piece = day_of(name) if by_day else None, self.pieces[name]
            with self.reading(name):
                found += row_groups(self.folder, piece.file, piece.groups, day, spec)
        return found

    def on_days(self, days: Iterable[date]) -> "Archive":
        """The same archive as if it held rows of these days alone; quarantine, facts and hashes are those of the whole.

        Args:
            days: Days without rows add none; tables without days stay whole.
        """
        wanted, part = checked_days(days, OF_ARCHIVE), copy.copy(self)
        kept = {
            name: {text: rows for text, rows in entry["days"].items() if date.fromisoformat(text) in wanted}
            for name, entry in self._tables.items()
            if entry["days"]
        }
        part._tables = self._tables | {
            name: self._tables[name] | {"days": held, "rows": sum(held.values())}
            for name, held in kept.items()
        }
        return part

    def nodes(self) -> pa.Table:
        """The inventory: the whole table `nodes`."""
        return self.read("nodes")

    def quarantine(self) -> Iterator[pa.RecordBatch]:
        """The bad rows: table, rule, source file, row number in it, and the row as it was."""
        for name in self.quarantine_names():
            with self.reading(name):
                file, groups = self.source(name)
                batches = open_parquet(file).iter_batches(row_groups=list(groups))
                yield from (batch.cast(QUARANTINE_SCHEMA) for batch in batches)

    def quarantine_names(self) -> list[str]:
        """Names of the files of the quarantine as they were written, in order."""
        names = [name for name in self.pieces if name.startswith(f"{QUARANTINE}/part-")]
        return sorted(names, key=lambda name: (len(name), name))

    def verify(self) -> None:
        """Recomputes the hash of every file and compares the row counts.

        Raises:
            ArchiveError: A file is missing, altered or foreign, or its number of rows differs from the manifest's.
        """
        fetch_all(self.path)
        with archive_errors():
            product.verify(self.path if self.folder.is_current() else self.folder.path, KIND)
        for table in self.tables:
            days: list[date | None] = [*self.days(table)] or [None]
            for day in days:
                name = partition(table, day)
                if name in self.pieces or self.num_rows(table, day):
                    with self.reading(name):
                        self._open(name, _spec(table, self.path))

    @property
    def packs(self) -> dict[str, dict[str, Any]]:
        """Name of each pack -> what the manifest keeps of the files in it."""
        return dict(self.manifest.extra.get(PACKS, {}))

    def source(self, name: str) -> tuple[Path, range]:
        """Where a file that was written is read: a path, and its row groups there. To be called while `reading` it."""
        piece = self.pieces.get(name, Piece(name, None, 0, ""))
        file = self.folder.path / piece.file
        return file, piece.groups or range(open_parquet(file).num_row_groups)

    def _entry(self, table: str) -> dict[str, Any]:
        _spec(table, self.path)
        return self._tables.get(table, {"rows": 0, "days": {}, "quarantined": {}})

    def _columns(self, table: str, columns: Sequence[str] | None) -> list[str]:
        names = _spec(table, self.path).names
        unknown = [column for column in columns or () if column not in names]
        if unknown:
            raise ArchiveError(
                f"table {table} has no column {first(unknown)}",
                where=str(self.path),
                allowed=", ".join(names),
                advice="choose among its columns",
            )
        return list(names if columns is None else columns)

    def _names(self, table: str, days: Iterable[date] | None) -> list[str]:
        entry, wanted = self._entry(table), None if days is None else checked_days(days, OF_ARCHIVE)
        if not entry["rows"]:
            return []
        if not entry["days"]:
            return [partition(table, None)]
        return [partition(table, day) for day in self.days(table) if wanted is None or day in wanted]

    def _open(self, name: str, spec: TableSpec) -> tuple[pq.ParquetFile, range]:
        """A file of a table and the row groups there of what was written as `name`."""
        file, groups = self.source(name)
        parquet = open_parquet(file, label_names(spec))
        expected = self.num_rows(spec.name, day_of(name) if self._entry(spec.name)["days"] else None)
        num_rows = sum(parquet.metadata.row_group(group).num_rows for group in groups)
        if num_rows != expected:
            raise self._changed_or(
                _damaged(
                    self.path / name, f"the file holds {num_rows} rows where the manifest says {expected}"
                )
            )
        return parquet, groups

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Fetches a file of a mirror; ArchiveError with the cause if it cannot be read."""
        file = self.path / name
        try:
            fetch(self.path / self.pieces[name].file if name in self.pieces else file, self.path)
            yield
        except FileNotFoundError as error:
            raise self._changed_or(_damaged(file, "a file of the archive is missing")) from error
        except (pa.ArrowInvalid, OSError) as error:
            raise _damaged(file, f"a file of the archive cannot be read ({error})") from error

    def _changed_or(self, damaged: ArchiveError) -> ArchiveError:
        """The error to raise: the archive has changed since it was opened, or else `damaged`."""
        try:
            now = product.read_manifest(self.path, KIND).content_hash
        except ProductError:
            return damaged
        if now == self.manifest.content_hash:
            return damaged
        return ArchiveChangedError(
            "the archive was changed while it was read",
            where=damaged.where,
            allowed="the archive as it was when it was opened",
            advice="open it again",
        )


def _opened(path: Path) -> tuple[ReadFolder, product.Manifest]:
    """An archive's folder, held, and its manifest."""
    while True:
        folder = ReadFolder(path.absolute())
        with archive_errors():
            manifest = product.read_manifest(path, KIND)
        if folder.is_current():
            return folder, manifest


@contextmanager
def archive_errors() -> Iterator[None]:
    """Turns the troubles of a product into those of an archive, with the same words."""
    try:
        yield
    except ProductError as error:
        raise ArchiveError(
            error.what, where=error.where, allowed=error.allowed, advice=error.advice
        ) from error


def _spec(table: str, path: Path) -> TableSpec:
    for spec in TABLES:
        if spec.name == table:
            return spec
    names = ", ".join(spec.name for spec in TABLES)
    raise ArchiveError(
        f"there is no table {table!r}", where=str(path), allowed=names, advice="choose one of these"
    )


def _check_version(path: Path, version: Any) -> None:
    if not isinstance(version, int) or not 1 <= version <= PACKED_VERSION:
        raise ArchiveError(
            f"the archive has schema version {version}",
            where=str(path / product.MANIFEST),
            allowed=f"version {PACKED_VERSION} or older",
            advice="import the log again, or use the version of schedtwin that wrote the archive",
        )


def _damaged(file: Path, what: str) -> ArchiveError:
    return ArchiveError(
        what, where=str(file), allowed="files as they were written", advice="import the log again"
    )
