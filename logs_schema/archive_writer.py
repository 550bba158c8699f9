"""Writing an archive: rows in any order and of any quality go in, a whole archive or none comes out.

Memory stays bounded: rows are checked chunk by chunk, spilled as sorted runs, and merged day by day at the
end (`logs_schema.runs`). The archive is built aside and renamed into place (`logs_schema.product`).
"""

import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from logs_schema import product
from logs_schema.archive import Archive, archive_errors
from logs_schema.assembly import refuse_loss
from logs_schema.columns import TableSpec
from logs_schema.errors import ArchiveChangedError, ArchiveError
from logs_schema.layout import KIND, QUARANTINE, date_of, partition
from logs_schema.options import checked_path
from logs_schema.packs import copy_groups, packed_extra
from logs_schema.quarantine import BadRecord, QuarantineWriter
from logs_schema.table_builder import TableBuilder
from logs_schema.tables import TABLES

_SPILL = ".spill"


class ArchiveWriter:
    """A context manager that writes an archive, or adds days to one.

    Args:
        out: Folder of the archive.
        source: Name to content hash of each input.
        facts: What is known about the log besides its rows, as JSON values.
        replace: Whether an archive already at `out` may be replaced.
        append: Whether rows are added to the archive at `out`, if there is one. Days without new rows keep
            their files (by hard link); a day with new rows is merged. A row whose key the archive already has
            is quarantined as a duplicate; but it replaces a request that was unfinished (running or waiting),
            and in tables without days it replaces the old row: what gives way is counted as superseded.
        is_known_bad: Whether a bad row is in the quarantine already, so that it is not put there again.

    Raises:
        ArchiveError: `out` is taken, or holds no archive that can be added to.
    """

    def __init__(
        self,
        out: Path | str,
        *,
        source: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
        replace: bool = False,
        append: bool = False,
        is_known_bad: Callable[[BadRecord], bool] | None = None,
    ) -> None:
        self.out = checked_path("out", out, "ArchiveWriter")
        self._old = Archive(self.out) if append and self.out.exists() and any(self.out.iterdir()) else None
        self._replace = replace or self._old is not None
        self._source = (self._old.made_from if self._old else {}) | dict(source or {})
        self._facts = (self._old.facts if self._old else {}) | dict(facts or {})
        self._is_known_bad = is_known_bad
        self._extra: dict[str, Any] = {}
        self._builders: dict[str, TableBuilder] = {}
        self._num_rejects: Counter[str] = Counter()
        self._stack = ExitStack()

    def __enter__(self) -> "ArchiveWriter":
        writing = product.writing(
            self.out, KIND, made_from=self._source, extra=self._extra, replace=self._replace
        )
        with archive_errors():
            self._root = self._stack.enter_context(writing)
        num_parts = len(self._old.quarantine_names()) if self._old else 0
        part = self._root / QUARANTINE / f"part-{num_parts}.parquet"
        self._quarantine = QuarantineWriter(part, self._is_known_bad)
        self._stack.callback(self._quarantine.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            return self._stack.__exit__(kind, error, traceback)
        with ExitStack() as until_in_place, archive_errors(), self._stack:
            self._finish()
            if self._old:
                until_in_place.enter_context(undisturbed(self._old))
        return None

    def write(
        self,
        table_name: str,
        chunk: pa.Table,
        *,
        source: str,
        first_row: int | np.ndarray = 1,
        raw: Sequence[str] | None = None,
    ) -> None:
        """Takes candidate rows; good ones will be filed, bad ones go to the quarantine.

        Args:
            table_name: The table the rows are for.
            chunk: Candidate rows; nullable columns may be absent, loose types are cast.
            source: Name of the file they come from.
            first_row: Row or line number of the first of them in that file, where the others follow it; an
                array of the numbers of all of them where they do not.
            raw: The rows as they stood in the file, one text each; JSON of the row if None.

        Raises:
            ArchiveError: No such table.
            SchemaError: The columns themselves are wrong.
        """
        if not isinstance(first_row, np.ndarray):
            first_row = np.arange(first_row, first_row + chunk.num_rows)
        self._builder(table_name).write(chunk, source, first_row, raw)

    def reject(self, table_name: str, rule: str, source: str, row: int, raw: str) -> None:
        """Quarantines something that could not even be parsed as a row of a table."""
        self._builder(table_name)
        self._num_rejects[table_name] += 1
        self._quarantine.add([BadRecord(table_name, rule, source, row, raw)])

    def num_out_of_order(self, table_name: str) -> int:
        """Good rows of a table that were written after a row of a later instant."""
        builder = self._builders.get(table_name)
        return builder.num_out_of_order if builder else 0

    def note(self, **facts: Any) -> None:
        """Adds what became known about the log while its rows were read."""
        self._facts |= facts

    def _builder(self, table_name: str) -> TableBuilder:
        if table_name not in self._builders:
            spec = next((spec for spec in TABLES if spec.name == table_name), None)
            if spec is None:
                allowed = ", ".join(spec.name for spec in TABLES)
                raise ArchiveError(f"there is no table {table_name!r}", where=str(self.out), allowed=allowed)
            spill = self._root / _SPILL / table_name
            self._builders[table_name] = TableBuilder(spec, spill, self._quarantine)
        return self._builders[table_name]

    def _finish(self) -> None:
        rows: dict[str, dict[date | None, int]] = {}
        for spec in TABLES:
            kept = self._keep_old(self._old, spec) if self._old else {}
            builder = self._builders.get(spec.name)
            filed = builder.finish(self._root) if builder else {}
            if builder:
                self._refuse_loss(builder, sum(filed.values()))
            rows[spec.name] = kept | filed
        self._quarantine.close()
        shutil.rmtree(self._root / _SPILL, ignore_errors=True)
        facts = {
            "tables": {name: entry for name in rows if (entry := self._entry(name, rows[name]))},
            "facts": self._facts,
        }
        packs = self._old.packs if self._old else {}
        self._extra |= packed_extra(
            facts, {pack: packs[pack] for pack in packs if (self._root / pack).exists()}
        )

    def _refuse_loss(self, builder: TableBuilder, num_filed: int) -> None:
        """Every row taken was filed, quarantined or superseded, or nothing is written."""
        name = builder.spec.name
        num_taken = builder.num_taken + self._num_rejects[name]
        num_bad = sum(count for (table, _), count in self._quarantine.counts.items() if table == name)
        num_bad += self._quarantine.num_known[name]
        refuse_loss(name, num_taken, num_filed, num_bad, builder.num_superseded)

    def _entry(self, name: str, rows: Mapping[date | None, int]) -> dict[str, Any]:
        """The manifest's entry of a table; empty if there is nothing to record."""
        quarantined = self._old.quarantined(name) if self._old else {}
        for (table, rule), count in self._quarantine.counts.items():
            if table == name:
                quarantined[rule] = quarantined.get(rule, 0) + count
        superseded = self._old.superseded(name) if self._old else {}
        builder = self._builders.get(name)
        if builder and builder.num_superseded:
            rule = builder.superseding_rule
            superseded[rule] = superseded.get(rule, 0) + builder.num_superseded
        if not rows and not quarantined:
            return {}
        days = {day.isoformat(): rows[day] for day in sorted(filter(None, rows))}
        entry = {"rows": sum(rows.values()), "days": days, "quarantined": dict(sorted(quarantined.items()))}
        return entry | ({"superseded": superseded} if superseded else {})

    def _keep_old(self, old: Archive, spec: TableSpec) -> dict[date | None, int]:
        """Carries an older archive's rows over: by link where nothing changes, else through the builder."""
        for name in old.quarantine_names():
            keep(old, name, self._root, in_packs=True)
        builder = self._builders.get(spec.name)
        touched = {date_of(day) for day in builder.days} if builder else set()
        days = old.days(spec.name)
        opened = {old.pieces[partition(spec.name, day)].file for day in days if day in touched}
        kept: dict[date | None, int] = {}
        for day in days if spec.time else [None]:
            num_rows = old.num_rows(spec.name, day)
            merge = day in touched if spec.time else bool(builder and builder.days)
            if builder and merge:
                for batch in old.scan(spec.name, days=[day] if day else None):
                    builder.add_existing(pa.Table.from_batches([batch]))
            elif num_rows:
                kept[day] = num_rows
                name = partition(spec.name, day)
                keep(old, name, self._root, in_packs=old.pieces[name].file not in opened)
                if builder and builder.days and spec.time not in spec.key:
                    for batch in old.scan(spec.name, days=[day] if day else None, columns=spec.key):
                        builder.note_existing(pa.Table.from_batches([batch]))
        return kept


@contextmanager
def undisturbed(old: Archive) -> Iterator[None]:
    """Nobody else replaces an archive until the block ends.

    Raises:
        ArchiveChangedError: Another process has replaced it already.
    """
    with (old.folder.path / product.MANIFEST).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if product.read_manifest(old.path, KIND).content_hash != old.manifest.content_hash:
            raise ArchiveChangedError(
                "the archive was changed by another process while rows were added to it",
                where=str(old.path),
                advice="add the rows again",
            )
        yield


def keep(old: Archive, name: str, root: Path, *, in_packs: bool) -> None:
    """Carries a file of an archive over to another, below `root`: by link, or out of its pack unless it stays there."""
    piece = old.pieces[name]
    with old.reading(name):
        if in_packs or piece.groups is None:
            link(old.folder.path / piece.file, root / piece.file)
        else:
            copy_groups([old.source(name)], root / name)


def link(file: Path, copy: Path) -> None:
    """A hard link, or a copy where the file system has none; nothing if `copy` is already there."""
    if copy.exists():
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, copy)
    except OSError:
        shutil.copyfile(file, copy)
