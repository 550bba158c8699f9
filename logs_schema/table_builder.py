"""One table on its way into an archive: checked, spilled, freed of duplicates, sorted, and filed by day.

Each row carries a sequence number, by which the first of several rows with one key is known, and by which a
duplicate found at the very end is still known by its file and row.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logs_schema.casting import complete
from logs_schema.checks import DUPLICATE_KEY, Checked, check_rows
from logs_schema.columns import TableSpec, arrow_schema
from logs_schema.keys import KeyLedger, key_hashes
from logs_schema.layout import ROW_GROUP_ROWS, date_of, parquet_writer, partition
from logs_schema.ordering import compact_labels, days_of, sorted_rows, times_us
from logs_schema.quarantine import BadRecord, QuarantineWriter, rows_as_json
from logs_schema.runs import Runs
from logs_schema.tables import SCHEMA_VERSION, UNFINISHED

SEQUENCE = "__sequence"
FIRST_NEW = 1 << 40
FIRST_GIVING_WAY = 3 << 39
"""Sequence numbers from here on are of rows that give way; among themselves the latest has the lowest."""
_SUPERSEDED = 1 << 41
END_TOLD_ELSEWHERE, OLDER_ROW = "end_told_elsewhere", "older_row"
"""By which rule a row gives way to another of its key: in tables with days, and in tables without."""


class TableBuilder:
    """Gathers the rows of one table and files them at the end.

    Args:
        spec: The table's declaration.
        spill: Folder for what does not fit memory; made.
        quarantine: Where bad rows go.

    Attributes:
        days: The days (since 1970) that rows were written for; zero for a table without days.
        num_superseded: Rows that gave way to others of their key (see `finish`): neither filed nor quarantined.
        num_taken: Rows taken, those of an older archive among them.
        num_out_of_order: Good rows written after a row of a later instant.
    """

    def __init__(self, spec: TableSpec, spill: Path, quarantine: QuarantineWriter) -> None:
        spill.mkdir(parents=True)
        self.spec, self.quarantine = spec, quarantine
        self.days: set[int] = set()
        self.num_superseded = 0
        self.num_taken = 0
        self.num_out_of_order = 0
        self._latest_us = np.iinfo(np.int64).min
        self._runs = Runs(spill, spec)
        self._keys = KeyLedger(spill / "keys")
        self._origins: list[tuple[int, str, int]] = []
        self._next_new = FIRST_NEW
        self._next_old = 0 if spec.time else _SUPERSEDED

    @property
    def num_numbered(self) -> int:
        """Rows that have a sequence number, good and bad ones, but for those of an older archive."""
        return self._next_new - FIRST_NEW

    @property
    def superseding_rule(self) -> str:
        """The rule by which rows of this table give way."""
        return END_TOLD_ELSEWHERE if self.spec.time else OLDER_ROW

    def write(self, rows: pa.Table, source: str, numbers: np.ndarray, raw: Sequence[str] | None) -> None:
        """Checks candidate rows, numbered as in their file; good ones are spilled, bad ones quarantined."""
        self.num_taken += rows.num_rows
        from_row = f", from row {numbers[0]}" if len(numbers) else ""
        checked = check_rows(self.spec, rows, f"{source}, table {self.spec.name}{from_row}")
        self._quarantine_bad(rows if raw is None else raw, checked, source, numbers)
        for begin in np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1):
            self._note_origin(source, self._next_new + int(begin), int(numbers[begin]))
        sequence = np.arange(self._next_new, self._next_new + rows.num_rows)
        self._next_new += rows.num_rows
        good = checked.rows
        if len(checked.bad_rows):
            good, sequence = good.filter(pa.array(checked.good)), sequence[checked.good]
        open_ended = _open_ended(self.spec, good)
        sequence[open_ended] = _SUPERSEDED + FIRST_NEW - 1 - sequence[open_ended]  # the latest of them first
        instants_us = times_us(self.spec, good)
        self.days.update(np.unique(days_of(instants_us)).tolist())
        self._count_out_of_order(instants_us)
        self._spill(good, sequence)

    def add_existing(self, rows: pa.Table) -> None:
        """Takes rows of an older archive that are to be merged; they passed the checks then."""
        self.num_taken += rows.num_rows
        self._spill(rows, self._old_sequence(rows))

    def note_existing(self, rows: pa.Table) -> None:
        """Takes the key columns of an older archive's rows that stay where they are."""
        self._keys.add(key_hashes(self.spec, rows), self._old_sequence(rows))

    def note_origins(self, origins: Iterable[tuple[int, str, int]]) -> None:
        """Takes where rows that were numbered elsewhere come from: (first sequence number, source, row there)."""
        self._origins += origins

    def finish(self, root: Path) -> dict[date | None, int]:
        """Writes the table's files below `root`; returns the number of rows in each.

        Of rows with one key, the first written stays and the others are quarantined as `duplicate_key`. A row
        of an older archive counts as written first. But a row that lacks the end of its request gives way to a
        row that does, or to a later one that does not; and any old row of a table without days to the newer one.
        Rows that give way are counted, as `superseded`, and not kept.
        """
        pa.default_memory_pool().release_unused()
        return self.file(self._runs.windows(), self._keys.duplicates(), root)

    def file(self, windows: Iterable[pa.Table], duplicates: np.ndarray, root: Path) -> dict[date | None, int]:
        """Writes rows below `root` without some duplicates; returns the number of rows in each file.

        Args:
            windows: The rows with their sequence numbers, disjoint, ascending in time.
            duplicates: Sequence numbers, ascending, of the rows that are left out.
            root: The archive's folder.
        """
        filing = _Filing(self.spec, root)
        with filing:
            for window in windows:
                good = self._without_duplicates(window, duplicates) if len(duplicates) else window
                filing.add(sorted_rows(self.spec, good))
        return filing.num_rows

    def _spill(self, rows: pa.Table, sequence: np.ndarray) -> None:
        if not rows.num_rows:
            return
        self._keys.add(key_hashes(self.spec, rows), sequence)
        empty = [name for name in rows.column_names if rows[name].null_count == rows.num_rows]
        self._runs.add(rows.drop_columns(empty).append_column(SEQUENCE, pa.array(sequence)))

    def _count_out_of_order(self, instants_us: np.ndarray) -> None:
        latest_us = np.maximum.accumulate(np.append(self._latest_us, instants_us))
        self.num_out_of_order += int((instants_us < latest_us[:-1]).sum())
        self._latest_us = int(latest_us[-1])

    def _old_sequence(self, rows: pa.Table) -> np.ndarray:
        self._next_old += rows.num_rows
        sequence = np.arange(self._next_old - rows.num_rows, self._next_old)
        sequence[_open_ended(self.spec, rows)] += _SUPERSEDED
        return sequence

    def _note_origin(self, source: str, sequence: int, row: int) -> None:
        """Remembers that from `sequence` on, rows are those of `source` from `row` on."""
        if self._origins:
            begun, last_source, last_row = self._origins[-1]
            if last_source == source and row - last_row == sequence - begun:
                return
        self._origins.append((sequence, source, row))

    def _quarantine_bad(
        self, original: pa.Table | Sequence[str], checked: Checked, source: str, numbers: np.ndarray
    ) -> None:
        bad = checked.bad_rows
        if not len(bad):
            return
        is_table = isinstance(original, pa.Table)
        texts = rows_as_json(original, bad) if is_table else [original[row] for row in bad]
        self.quarantine.add(
            BadRecord(self.spec.name, str(checked.rule(row)), source, int(numbers[row]), text)
            for row, text in zip(bad, texts, strict=True)
        )

    def _without_duplicates(self, window: pa.Table, duplicates: np.ndarray) -> pa.Table:
        sequence = window[SEQUENCE].to_numpy()
        repeated = np.isin(sequence, duplicates)
        if not repeated.any():
            return window
        quarantined = np.flatnonzero(repeated & (sequence < FIRST_GIVING_WAY))
        quarantined = quarantined[
            np.lexsort((sequence[quarantined], times_us(self.spec, window)[quarantined]))
        ]
        self.num_superseded += int(repeated.sum()) - len(quarantined)
        texts = rows_as_json(window.drop_columns([SEQUENCE]), quarantined)
        self.quarantine.add(
            BadRecord(self.spec.name, DUPLICATE_KEY, *self._origin(int(sequence[row])), text)
            for row, text in zip(quarantined, texts, strict=True)
        )
        return window.filter(pa.array(~repeated))

    def _origin(self, sequence: int) -> tuple[str, int]:
        index = bisect_right(self._origins, sequence, key=lambda origin: origin[0]) - 1
        begun, source, first_row = self._origins[index]
        return source, first_row + sequence - begun


def _open_ended(spec: TableSpec, rows: pa.Table) -> np.ndarray:
    """[rows] bool: the row lacks how its request ended, so a later row about it replaces it."""
    if not spec.time or "status" not in rows.column_names:
        return np.zeros(rows.num_rows, bool)
    status = rows["status"].cast(pa.string())
    silent = pc.equal(status, "unknown")
    if "finish" in rows.column_names:
        silent = pc.and_(silent, pc.is_null(rows["finish"]))
    return pc.or_(pc.is_in(status, value_set=pa.array(UNFINISHED)), silent).to_numpy(zero_copy_only=False)


class _Filing:
    """Writes rows in ascending order of time to one Parquet file a day, in full row groups."""

    def __init__(self, spec: TableSpec, root: Path) -> None:
        self.spec, self.root = spec, root
        self.num_rows: dict[date | None, int] = {}
        self._schema = arrow_schema(spec, SCHEMA_VERSION)
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._day: int | None = None

    def __enter__(self) -> "_Filing":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._close_day()
        elif self._writer is not None:
            self._writer.close()

    def add(self, rows: pa.Table) -> None:
        days = days_of(times_us(self.spec, rows))
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), rows.num_rows]
        for first, last in pairwise(cuts):
            if last > first:
                self._add_to_day(int(days[first]), rows.slice(first, last - first))

    def _add_to_day(self, day: int, rows: pa.Table) -> None:
        if day != self._day:
            self._close_day()
            self._day = day
        key = date_of(day) if self.spec.time else None
        self.num_rows[key] = self.num_rows.get(key, 0) + rows.num_rows
        if self._writer is None:
            self._writer = parquet_writer(self.root / partition(self.spec.name, key), self._schema)
        self._pending.append(rows)
        self._write_groups(ROW_GROUP_ROWS)

    def _close_day(self) -> None:
        if self._writer is not None:
            self._write_groups(1)
            self._writer.close()
            self._writer = None

    def _write_groups(self, min_rows: int) -> None:
        num_pending = sum(rows.num_rows for rows in self._pending)
        if num_pending < min_rows or self._writer is None:
            return
        rows = pa.concat_tables(self._pending, promote_options="permissive")
        while rows.num_rows >= min_rows:
            group = compact_labels(complete(self.spec, rows.slice(0, ROW_GROUP_ROWS)))
            self._writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
            rows = rows.slice(ROW_GROUP_ROWS)
        self._pending = [rows] if rows.num_rows else []
