"""Append-only CSV files of one log table, closed and compressed by the hour; a kill at any moment leaves whole rows.

    FOLDER/requests-20240501T120000-4711.csv         open, held by a lock; every write is a batch of whole lines
    FOLDER/requests-20240501T110000-4711.csv.gz      closed: compressed aside, then renamed

Where a process died, whoever opens the folder next cuts the torn last line off and closes the file. A write that fails
half-way (a full disk) is taken back. The format is that of `schedtwin import native`; the last column must be one whose
cut-off value the import refuses, so that even a torn line, read before anybody mended it, is never a wrong row.
"""

import csv
import fcntl
import gzip
import io
import os
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

CLOSE_AFTER_S = 3600.0
CLOSE_AFTER_BYTES = 64 * 2**20
_WRITING = ".writing"

Cell = str | float | int | bool | None | Sequence[str]


class Journal:
    """One table's files. Not thread-safe: one thread writes.

    Args:
        folder: Where the files go; made, and mended if a process died here.
        name: First part of the files' names: the table.
        columns: Header; rows come in this order.

    Raises:
        OSError: The folder cannot be made or written.
    """

    def __init__(self, folder: Path, name: str, columns: Sequence[str]) -> None:
        self.folder, self.name, self.columns = folder, name, tuple(columns)
        self._descriptor: int | None = None
        self._path = folder
        self._size = 0
        self._opened_s = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self._mend()

    def write(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Appends rows and flushes them to the disk; all of them, or none if it raises.

        Raises:
            OSError: The disk is full or cannot be written.
        """
        descriptor = self._open() if self._descriptor is None else self._descriptor
        content = as_csv(rows)
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self._size)
            raise
        self._size += len(content)
        if self._size > CLOSE_AFTER_BYTES or time.monotonic() - self._opened_s > CLOSE_AFTER_S:
            self.close()

    def close(self) -> None:
        """Closes and compresses the open file; the next write begins another.

        Raises:
            OSError: It could not be compressed; it stays as it is and is compressed by whoever comes next.
        """
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            compress(self._path)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        begun = datetime.now(UTC)
        for attempt in range(1000):
            stem = f"{self.name}-{begun:%Y%m%dT%H%M%S}-{os.getpid()}" + (f"-{attempt}" if attempt else "")
            path = self.folder / f"{stem}.csv"
            if not path.with_suffix(".csv.gz").exists() and not path.exists():
                break
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            header = as_csv([self.columns])
            _write_all(descriptor, header)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self._descriptor, self._path, self._size = descriptor, path, len(header)
        self._opened_s = time.monotonic()
        return descriptor

    def _mend(self) -> None:
        """Closes what dead processes left open, and removes what they had not finished compressing."""
        for path in sorted(self.folder.glob(f"{self.name}-*.csv")):
            descriptor = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # somebody is writing it
                os.close(descriptor)
                continue
            try:
                os.ftruncate(descriptor, whole_lines(path))
                compress(path)
            finally:
                os.close(descriptor)
        for remains in self.folder.glob(f".{self.name}-*.csv.gz{_WRITING}"):
            if not (self.folder / remains.name[1 : -len(f".gz{_WRITING}")]).exists():
                remains.unlink(missing_ok=True)


def as_csv(rows: Sequence[Sequence[Cell]]) -> bytes:
    """Rows as CSV lines: null is empty, booleans are true and false, lists are `a|b`."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_field(cell) for cell in row] for row in rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def whole_lines(path: Path) -> int:
    """Number of bytes of a file up to and with its last line break."""
    size, step = path.stat().st_size, 2**16
    with path.open("rb") as file:
        end = size
        while end > 0:
            begin = max(0, end - step)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return 0


def compress(path: Path) -> None:
    """Replaces a CSV file by its compressed form, or by nothing if it has no rows; a kill leaves one of the two."""
    goal = path.with_suffix(".csv.gz")
    if not goal.exists() and _has_rows(path):
        aside = path.parent / f".{goal.name}{_WRITING}"
        with path.open("rb") as plain, gzip.open(aside, "wb", compresslevel=5) as packed:
            shutil.copyfileobj(plain, packed)
        with aside.open("rb") as packed:
            os.fsync(packed.fileno())
        aside.rename(goal)
    path.unlink()


def _has_rows(path: Path) -> bool:
    with path.open("rb") as file:
        file.readline()
        return bool(file.read(1))


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _field(cell: Cell) -> str | float | int:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str | float | int):
        return cell
    return "|".join(cell)
