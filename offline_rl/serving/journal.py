"""Append-only CSV files of one log table, closed and compressed by the hour; a kill at any moment leaves whole rows.

    FOLDER/requests-20240501T120000-4711.csv         open, held by a lock; every write is a batch of whole lines
    FOLDER/requests-20240501T110000-4711.csv.gz      closed: compressed aside, then renamed

Where a process died, the next process that opens the folder cuts the torn last line off and closes the file. A write
that fails half-way (a full disk) is taken back. A file that is deleted while it is open is noticed at the next write,
and written again with all its rows; one that was moved away, or cut off, is left as it is, and another is begun.

The format is that of `schedtwin import native`; the last column must be one whose
cut-off value the import refuses, so that even a torn line, read before it is mended, is never a wrong row.
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
FOLDER_MODE, FILE_MODE = 0o750, 0o640
"""The log is private: to be read by owner and group only."""
_WRITING = ".writing"

Cell = str | float | int | bool | None | Sequence[str]


class Journal:
    """One table's files. Not thread-safe: one thread writes.

    Args:
        folder: Where the files go; made, and mended if a process died here.
        name: First part of the files' names: the table.
        columns: Header; rows come in this order.

    Attributes:
        num_rewritten: Files that were deleted while they were open, and written again.
        close_error: Why the last write could not close its file afterwards; its rows are on the disk all the same.

    Raises:
        OSError: The folder cannot be made or written.
    """

    def __init__(self, folder: Path, name: str, columns: Sequence[str]) -> None:
        self.folder, self.name, self.columns = folder, name, tuple(columns)
        self.num_rewritten = 0
        self.close_error: OSError | None = None
        self._descriptor: int | None = None
        self._path = folder
        self._size = 0
        self._opened_s = 0.0
        self._make_folder()
        self._mend()

    def write(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Appends rows and flushes them to the disk; all of them, or none if it raises.

        A file that is large or old enough is closed then; where that fails, `close_error` has it.

        Raises:
            OSError: The disk is full or cannot be written.
        """
        self.close_error = None
        descriptor = self._current()
        content = as_csv(rows)
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self._size)
            raise
        self._size += len(content)
        if self._size > CLOSE_AFTER_BYTES or time.monotonic() - self._opened_s > CLOSE_AFTER_S:
            try:
                self.close()
            except OSError as error:  # raised, it would mean that the rows are to be written again
                self.close_error = error

    def close(self) -> None:
        """Closes and compresses the open file; the next write begins another.

        Raises:
            OSError: It could not be compressed; it stays as it is and is compressed by the next process.
        """
        if self._descriptor is None:
            return
        if self._is_gone():
            self._current()
        descriptor, self._descriptor = self._descriptor, None
        try:
            compress(self._path)
        finally:
            os.close(descriptor)

    def _current(self) -> int:
        """The open file, in its place; a new one if it is gone, with all its rows if it was deleted."""
        if self._descriptor is None:
            return self._open()
        if not self._is_gone():
            return self._descriptor
        older, self._descriptor, rows = self._descriptor, None, b""
        if os.fstat(older).st_nlink == 0:
            rows = os.pread(older, self._size, 0).partition(b"\n")[2]
        state = older, self._path, self._size, self._opened_s
        try:
            descriptor = self._open()
            _write_all(descriptor, rows)
            os.fsync(descriptor)
        except OSError:
            self._take_back(state)
            raise
        self._size += len(rows)
        self.num_rewritten += bool(rows)
        os.close(older)
        return descriptor

    def _take_back(self, state: tuple[int, Path, int, float]) -> None:
        """Leaves a new file that could not be written, and keeps the older descriptor: its rows are nowhere else."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._path.unlink(missing_ok=True)
        self._descriptor, self._path, self._size, self._opened_s = state

    def _is_gone(self) -> bool:
        """Whether the open file was deleted or moved, or cut off: it may have lost its header."""
        return self._descriptor is not None and not (
            _is_at(self._descriptor, self._path) and os.fstat(self._descriptor).st_size >= self._size
        )

    def _make_folder(self) -> None:
        self.folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)

    def _open(self) -> int:
        """Begins a file, under its lock; another one where a process that mends the folder was quicker."""
        self._make_folder()
        begun = datetime.now(UTC)
        for attempt in range(1000):
            stem = f"{self.name}-{begun:%Y%m%dT%H%M%S}-{os.getpid()}" + (f"-{attempt}" if attempt else "")
            path = self.folder / f"{stem}.csv"
            if path.with_suffix(".csv.gz").exists():
                continue
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, FILE_MODE)
            except FileExistsError:
                continue
            try:
                if not _locked(descriptor, path):
                    os.close(descriptor)
                    continue
                header = as_csv([self.columns])
                _write_all(descriptor, header)
            except OSError:
                path.unlink(missing_ok=True)
                os.close(descriptor)
                raise
            self._descriptor, self._path, self._size = descriptor, path, len(header)
            self._opened_s = time.monotonic()
            return descriptor
        raise FileExistsError(f"{self.folder}: a thousand files of this second")

    def _mend(self) -> None:
        """Closes what dead processes left open, and removes what they had not finished compressing."""
        for path in sorted(self.folder.glob(f"{self.name}-*.csv")):
            try:
                descriptor = os.open(path, os.O_RDWR)
            except FileNotFoundError:  # another process mends here, and was quicker
                continue
            try:
                if _locked(descriptor, path):
                    os.ftruncate(descriptor, whole_lines(path))
                    compress(path)
            finally:
                os.close(descriptor)
        for remains in self.folder.glob(f".{self.name}-*.csv.gz{_WRITING}"):
            if not (self.folder / remains.name[1 : -len(f".gz{_WRITING}")]).exists():
                remains.unlink(missing_ok=True)


def _locked(descriptor: int, path: Path) -> bool:
    """Takes the lock of a file; False where another process has it, or had it and has removed the file meanwhile.
    OSError where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return _is_at(descriptor, path)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


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
        with (
            path.open("rb") as plain,
            open(aside, "wb", opener=_private) as file,
            gzip.GzipFile(filename="", mode="wb", compresslevel=5, fileobj=file) as packed,
        ):
            shutil.copyfileobj(plain, packed)
        with aside.open("rb") as packed:
            os.fsync(packed.fileno())
        aside.rename(goal)
    path.unlink()


def _has_rows(path: Path) -> bool:
    with path.open("rb") as file:
        file.readline()
        return bool(file.read(1))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


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
