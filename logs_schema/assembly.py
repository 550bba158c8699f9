"""From the parts of a log to an archive: the same files, byte for byte, as if one process had read all of it in order.

duplicates     a task for each range of key hashes, over all parts
days           a task for each day of a table, merging what the parts hold of it
quarantine     what the parts refused, in their order, and then the duplicates, table by table and day by day
"""

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from logs_schema.columns import TableSpec
from logs_schema.errors import ArchiveError
from logs_schema.fragments import IN_ORDER, KEYS, QUARANTINED, DayRun, TableFragment, read_fragment, run_file
from logs_schema.keys import PASS_ROWS, KeyLedger
from logs_schema.layout import QUARANTINE, date_of, open_parquet, partition
from logs_schema.mapping import TaskMap
from logs_schema.quarantine import BadRecord, QuarantineWriter
from logs_schema.runs import windows_of
from logs_schema.table_builder import END_TOLD_ELSEWHERE, FIRST_GIVING_WAY, OLDER_ROW, SEQUENCE, TableBuilder
from logs_schema.tables import TABLES

WORK = ".spill"


@dataclass(frozen=True)
class _TablePart:
    """What one part of the log holds of a table: its folder, and by how much its rows are renumbered."""

    folder: Path
    held: TableFragment
    offset: int


@dataclass(frozen=True)
class _Hashes:
    """A task: rows whose key an earlier row has, of one range of key hashes."""

    table: str
    keys: tuple[tuple[Path, int], ...]
    part: int
    num_parts: int
    file: Path


@dataclass(frozen=True)
class _DayOfTable:
    """A task: one day of a table."""

    table: str
    day: int
    runs: tuple[tuple[Path, DayRun, int], ...]
    duplicates: Path
    root: Path
    bad: Path


@dataclass(frozen=True)
class _Filed:
    num_rows: int
    num_superseded: int


def assemble(
    root: Path, folders: Sequence[Path], run_tasks: TaskMap
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """Files the rows of all parts.

    Args:
        root: Empty folder of the archive.
        folders: Of the parts (`fragments.write_fragment`), in the order in which they stand in the log.
        run_tasks: Where tasks run.

    Returns:
        The manifest's entry of every table, and how many rows of each were out of order.

    Raises:
        ArchiveError: The sum of filed, quarantined and superseded rows is not that of the rows taken.
    """
    work = root / WORK
    work.mkdir()
    held = [read_fragment(folder)[1] for folder in folders]
    quarantine = QuarantineWriter(root / QUARANTINE / "part-0.parquet")
    for folder in folders:
        quarantine.add(_bad_records(folder / QUARANTINED))
    entries, out_of_order = {}, {}
    for spec in TABLES:
        parts = _parts(folders, held, spec)
        if not parts:
            continue
        filed = _file_table(root, work, spec, parts, quarantine, run_tasks)
        entries[spec.name] = _entry(spec, parts, filed, quarantine.counts)
        out_of_order[spec.name] = _num_out_of_order(spec, parts)
    quarantine.close()
    shutil.rmtree(work)
    return {name: entry for name, entry in entries.items() if entry}, out_of_order


def _parts(
    folders: Sequence[Path], held: Sequence[dict[str, TableFragment]], spec: TableSpec
) -> list[_TablePart]:
    some = [
        (folder, tables[spec.name])
        for folder, tables in zip(folders, held, strict=True)
        if spec.name in tables
    ]
    offsets = accumulate((one.num_numbered for _, one in some), initial=0)
    return [_TablePart(folder, one, offset) for (folder, one), offset in zip(some, offsets, strict=False)]


def _file_table(
    root: Path,
    work: Path,
    spec: TableSpec,
    parts: Sequence[_TablePart],
    quarantine: QuarantineWriter,
    run_tasks: TaskMap,
) -> dict[int, _Filed]:
    """Day (since 1970) -> what was filed of it; duplicates go to the quarantine."""
    keys = tuple((part.folder / spec.name / KEYS, part.offset) for part in parts)
    num_ranges = max(1, -(-_num_keys(keys) // PASS_ROWS))
    ranges = [
        _Hashes(spec.name, keys, n, num_ranges, work / f"{spec.name}-{n}.npy") for n in range(num_ranges)
    ]
    found = [np.load(file) for file in run_tasks(find_duplicates, ranges, f"{spec.name}: duplicates")]
    duplicates = work / f"{spec.name}.npy"
    np.save(duplicates, np.sort(np.concatenate(found)))
    days = sorted({run.day for part in parts for run in part.held.runs})
    items = [
        _DayOfTable(
            spec.name,
            day,
            tuple(
                (part.folder, run, part.offset) for part in parts for run in part.held.runs if run.day == day
            ),
            duplicates,
            root,
            work / f"{spec.name}-day-{day}.parquet",
        )
        for day in days
    ]
    filed = dict(zip(days, run_tasks(file_day, items, f"{spec.name}: days"), strict=True))
    for item in items:
        quarantine.add(_bad_records(item.bad))
    return filed


def find_duplicates(item: _Hashes) -> Path:
    """A task: writes the sequence numbers of rows whose key an earlier row has; returns the file."""
    found = _KeysOfParts(item.keys).later_of_equals(item.part, item.num_parts)
    beside = item.file.with_suffix(f".{uuid.uuid4().hex}.npy")
    np.save(beside, found)
    return beside.replace(item.file)


def file_day(item: _DayOfTable) -> _Filed:
    """A task: merges what the parts hold of one day of a table into the archive's file."""
    spec = next(spec for spec in TABLES if spec.name == item.table)
    own = item.root / WORK / f"{item.table}-{item.day}-{uuid.uuid4().hex}"
    quarantine = QuarantineWriter(own / "bad.parquet")
    builder = TableBuilder(spec, own / "spill", quarantine)
    for folder, offset in dict((folder, offset) for folder, _, offset in item.runs).items():
        origins = read_fragment(folder)[1][item.table].origins
        builder.note_origins([(begun + offset, source, row) for begun, source, row in origins])
    runs = [run_file(folder, run, spec) for folder, run, _ in item.runs]
    for run, (_, _, offset) in zip(runs, item.runs, strict=True):
        run.renumbered = partial(_renumbered, offset=offset)
    duplicates = np.load(item.duplicates, mmap_mode="r")
    filed = builder.file(windows_of(runs), duplicates, own)
    quarantine.close()
    if quarantine.file.exists():
        quarantine.file.replace(item.bad)
    day = date_of(item.day) if spec.time else None
    if day in filed:
        goal = item.root / partition(item.table, day)
        goal.parent.mkdir(parents=True, exist_ok=True)
        os.replace(own / partition(item.table, day), goal)
    shutil.rmtree(own)
    return _Filed(sum(filed.values()), builder.num_superseded)


class _KeysOfParts(KeyLedger):
    """The keys of all parts, renumbered."""

    def __init__(self, keys: Sequence[tuple[Path, int]]) -> None:
        self.keys, self.num_rows = keys, _num_keys(keys)

    def _pieces(self) -> Iterator[np.ndarray]:
        for file, offset in self.keys:
            if file.exists():
                for entries in self._entries_of(file):
                    entries["sequence"] = _moved(entries["sequence"], offset)
                    yield entries


def _num_keys(keys: Sequence[tuple[Path, int]]) -> int:
    return sum(file.stat().st_size // KeyLedger.ENTRY_BYTES for file, _ in keys if file.exists())


def _renumbered(rows: pa.Table, offset: int) -> pa.Table:
    sequence = pa.array(_moved(rows[SEQUENCE].to_numpy(), offset))
    return rows.set_column(rows.column_names.index(SEQUENCE), SEQUENCE, sequence)


def _moved(sequence: np.ndarray, offset: int) -> np.ndarray:
    """Numbers of rows after `offset` others; rows that give way are numbered downwards."""
    return np.where(sequence >= FIRST_GIVING_WAY, sequence - offset, sequence + offset)


def _num_out_of_order(spec: TableSpec, parts: Sequence[_TablePart]) -> int:
    """Those of every part alone, and its rows in order that lie before the latest of the parts before."""
    latest_us, total = np.iinfo(np.int64).min, 0
    for part in parts:
        file = part.folder / spec.name / IN_ORDER
        total += part.held.num_out_of_order
        if file.exists() and file.stat().st_size:
            total += int(np.searchsorted(np.memmap(file, np.int64, "r"), latest_us))
        latest_us = max(latest_us, part.held.latest_us)
    return total


def _entry(
    spec: TableSpec, parts: Sequence[_TablePart], filed: dict[int, _Filed], counts: Counter[tuple[str, str]]
) -> dict[str, Any]:
    """The manifest's entry of a table."""
    quarantined = {rule: count for (table, rule), count in sorted(counts.items()) if table == spec.name}
    num_taken = sum(part.held.num_numbered + part.held.num_rejects for part in parts)
    num_filed = sum(one.num_rows for one in filed.values())
    num_superseded = sum(one.num_superseded for one in filed.values())
    refuse_loss(spec.name, num_taken, num_filed, sum(quarantined.values()), num_superseded)
    if not any(one.num_rows for one in filed.values()) and not quarantined:
        return {}
    days = {
        date_of(day).isoformat(): one.num_rows for day, one in filed.items() if spec.time and one.num_rows
    }
    entry: dict[str, Any] = {"rows": num_filed, "days": days, "quarantined": quarantined}
    rule = END_TOLD_ELSEWHERE if spec.time else OLDER_ROW
    return entry | ({"superseded": {rule: num_superseded}} if num_superseded else {})


def refuse_loss(table: str, num_taken: int, num_filed: int, num_bad: int, num_superseded: int) -> None:
    """ArchiveError unless every row taken was filed, quarantined or superseded."""
    if num_taken != num_filed + num_bad + num_superseded:
        raise ArchiveError(
            f"of {num_taken:,} rows of table {table}, {num_filed:,} were filed, {num_bad:,} quarantined and "
            f"{num_superseded:,} superseded: the sum is not right, so nothing was written",
            advice="report this: it is a fault of the program, not of the log",
        )


def _bad_records(file: Path) -> Iterator[BadRecord]:
    if file.exists():
        for batch in open_parquet(file).iter_batches():
            for row in batch.to_pylist():
                yield BadRecord(**row)
