"""Files on a disk: written whole or not at all, and linked where that saves room; errors of full disks name the folder
and the room that is needed, wherever a product is written."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logs_schema.errors import ProductError

FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than is allowed here",
}
"""Error number of the operating system -> what it means, in words."""
_CUT_SHORT = re.compile(r"\d+ requested and \d+ written")
"""What NumPy says, without an error number, of a file that it could not write to its end."""
_BEING_WRITTEN = re.compile(r"^\.(.+)\.[0-9a-f]{8}\.writing$")
"""Name of a folder in which a product is made (`logs_schema.atomic_folders`)."""


def write_aside(path: Path, text: str) -> None:
    """Writes a file aside, flushes it and renames it into place, so that readers find the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.aside")
    try:
        with open(beside, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def room_for(goal: Path, folder: Path) -> Iterator[None]:
    """Raises an error with the room that is needed where there is too little.

    Args:
        goal: What is being made, a folder or a file.
        folder: Where it is being written.

    Raises:
        ProductError: The disk is full, the quota is used up, or a file may not be as large as it has to be.
    """
    try:
        yield
    except OSError as error:
        number = errno.ENOSPC if _CUT_SHORT.fullmatch(str(error)) else error.errno
        if number not in FULL:
            raise
        written, free = size_of(folder), shutil.disk_usage(folder.parent).free
        needed = max(written, size_of(goal))
        # Not in another's making
        place = next(parent for parent in goal.parents if not parent.name.endswith(".writing"))
        parts = (_BEING_WRITTEN.sub(r"\1", part) for part in goal.relative_to(place).parts)
        raise ProductError(
            f"{FULL[number]}: {'/'.join(parts)} could not be written",
            where=f"{place}: {in_mib(written)} of it were written, {in_mib(free)} are free{_beside(free)}",
            allowed=f"room for more than {in_mib(needed)}, beside what is there already",
            advice="make room or choose a folder on another disk, and run again; what was written of it is removed",
        ) from error


def _beside(free: int) -> str:
    """Words for the folder of temporary files, which may be what is full, where less is free in it."""
    try:
        folder = tempfile.gettempdir()
        left = shutil.disk_usage(folder).free
    except OSError:  # nothing can be written to any
        return ""
    return f"; {in_mib(left)} for temporary files, in {folder} (TMPDIR names another)" if left < free else ""


def size_of(folder: Path) -> int:
    """Bytes in the files of a folder, or in a file; 0 where there is none."""
    return sum(file.stat().st_size for file in (folder, *folder.rglob("*")) if file.is_file())


def in_mib(num_bytes: int) -> str:
    """A size in words, such as "1,234.5 MiB"."""
    return f"{num_bytes / 2**20:,.1f} MiB"


def link(source: str, goal: str) -> None:
    """A hard link (files of products never change), or a copy where the file system has none."""
    try:
        os.link(source, goal)
    except OSError:
        shutil.copy2(source, goal)
