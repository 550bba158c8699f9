"""The archive: a log's tables as Parquet, filed by day, opened lazily and read a day or a row group at a
time.

Opening reads the manifest alone. Reading a day opens only that day's file; scanning holds one row group at a
time. `logs_schema.archive_writer` writes archives, `logs_schema.layout` names the paths of their files.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema import product
from logs_schema.columns import TableSpec, arrow_schema
from logs_schema.errors import ArchiveError, ProductError, first
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
from logs_schema.row_groups import RowGroup, row_groups
from logs_schema.stores import address_of, fetch, fetch_all, mirror_of
from logs_schema.tables import SCHEMA_VERSION, TABLES

BATCH_ROWS = 65_536


class Archive:
    """An archive opened for reading.

    Args:
        path: The archive's folder, or its address in an object store (`logs_schema.stores`); then `path` is its mirror.

    Raises:
        ArchiveError: There is no archive, its manifest is damaged, or a newer version wrote it.
    """

    def __init__(self, path: Path | str) -> None:
        address = address_of(path)
        self.path = Path(path) if address is None else mirror_of(address)
        with archive_errors():
            self._manifest = product.read_manifest(self.path, KIND)
        _check_version(self.path, self._manifest.extra.get("schema_version"))
        self._tables: dict[str, dict[str, Any]] = self._manifest.extra["tables"]

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
        return dict(self._manifest.extra["facts"])

    @property
    def made_from(self) -> dict[str, str]:
        """Name to content hash of each file the archive was made from."""
        return dict(self._manifest.made_from)

    @property
    def content_hash(self) -> str:
        """Hash over all files and facts; equal content, equal hash."""
        return self._manifest.content_hash

    def days(self, table: str) -> list[date]:
        """The days (UTC) that hold rows of a table, ascending; empty for a table without days."""
        return sorted(date.fromisoformat(text) for text in self._entry(table)["days"])

    def days_hash(self, table: str, days: Iterable[date]) -> str:
        """Hash over what a table holds on some days; an archive that grew by later days keeps it."""
        files = sorted(file.relative_to(self.path).as_posix() for file in self._files(table, days))
        return json_hash({name: self._manifest.files.get(name) for name in files})

    def num_rows(self, table: str, day: date | None = None) -> int:
        """Number of rows of a table, in all or on one day."""
        entry = self._entry(table)
        return int(entry["rows"] if day is None else entry["days"].get(day.isoformat(), 0))

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
        for file in self._files(table, days):
            with self._reading(file):
                parquet = self._open(file, spec)
                pieces.append(completed(parquet.read(columns=there(parquet, names)), spec, names))
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
        for file in self._files(table, days):
            with self._reading(file):
                parquet = self._open(file, spec)
                for group in range(parquet.num_row_groups):
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
        for file in self._files(table, days):
            day = day_of(file) if by_day else None
            with self._reading(file):
                found += row_groups(file, day, spec)
        return found

    def nodes(self) -> pa.Table:
        """The inventory: the whole table `nodes`."""
        return self.read("nodes")

    def quarantine(self) -> Iterator[pa.RecordBatch]:
        """The bad rows: table, rule, source file, row number in it, and the row as it was."""
        names = [name for name in self._manifest.files if name.startswith(f"{QUARANTINE}/part-")]
        for file in (self.path / name for name in sorted(names, key=lambda name: (len(name), name))):
            with self._reading(file):
                yield from (batch.cast(QUARANTINE_SCHEMA) for batch in open_parquet(file).iter_batches())

    def verify(self) -> None:
        """Recomputes the hash of every file and compares the row counts.

        Raises:
            ArchiveError: A file is missing, altered or foreign, or its number of rows differs from the manifest's.
        """
        fetch_all(self.path)
        with archive_errors():
            product.verify(self.path, KIND)
        for table in self.tables:
            days: list[date | None] = [*self.days(table)] or [None]
            for day in days:
                file = self.path / partition(table, day)
                expected = self.num_rows(table, day)
                found = open_parquet(file).metadata.num_rows if file.exists() else 0
                if found != expected:
                    raise _damaged(file, f"the file holds {found} rows where the manifest says {expected}")

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

    def _files(self, table: str, days: Iterable[date] | None) -> list[Path]:
        entry, wanted = self._entry(table), None if days is None else set(days)
        if not entry["rows"]:
            return []
        if not entry["days"]:
            return [self.path / partition(table, None)]
        return [
            self.path / partition(table, day) for day in self.days(table) if wanted is None or day in wanted
        ]

    def _open(self, file: Path, spec: TableSpec) -> pq.ParquetFile:
        parquet = open_parquet(file, label_names(spec))
        day = day_of(file) if self._entry(spec.name)["days"] else None
        if parquet.metadata.num_rows != self.num_rows(spec.name, day):
            raise self._changed_or(
                _damaged(
                    file,
                    f"the file holds {parquet.metadata.num_rows} rows where the manifest says "
                    f"{self.num_rows(spec.name, day)}",
                )
            )
        return parquet

    @contextmanager
    def _reading(self, file: Path) -> Iterator[None]:
        """Fetches a file of a mirror; ArchiveError with the cause if it cannot be read."""
        try:
            fetch(file, self.path)
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
        if now == self.content_hash:
            return damaged
        return ArchiveError(
            "the archive was changed while it was read",
            where=damaged.where,
            allowed="the archive as it was when it was opened",
            advice="open it again",
        )


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
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise ArchiveError(
            f"the archive has schema version {version}",
            where=str(path / product.MANIFEST),
            allowed=f"version {SCHEMA_VERSION} or older",
            advice="import the log again, or use the version of schedtwin that wrote the archive",
        )


def _damaged(file: Path, what: str) -> ArchiveError:
    return ArchiveError(
        what, where=str(file), allowed="files as they were written", advice="import the log again"
    )
