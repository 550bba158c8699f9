"""Writing a folder aside and renaming it into place, so that a kill at any moment leaves all of it or none.

A writer works in `.NAME.TOKEN.writing` beside its goal and holds a lock on that folder. The kernel drops the
lock when the writer dies, however it dies, so the next process can distinguish remains from work in progress. An
older folder under the goal's name is set aside as `.NAME.TOKEN.replaced`, locked likewise, for the moment
between the two renames; if the writer dies in that moment, the next reader or writer brings it back.
"""

import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path


def locked_folder(path: Path) -> tuple[Path, int]:
    """Make a temporary folder beside a goal and lock it.

    Args:
        path: the goal, absolute; its parents are made.

    Returns:
        The folder, and the open descriptor that holds its lock: close it when done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = path.parent / f".{path.name}.{secrets.token_hex(4)}.writing"
        folder.mkdir()
        lock = try_lock(folder)
        if lock is not None and folder.exists():  # not removed between the two calls
            return folder, lock
        if lock is not None:
            os.close(lock)


def try_lock(folder: Path) -> int | None:
    """Lock a folder against other processes, without waiting; the lock dies with its process.

    Args:
        folder: an existing folder.

    Returns:
        The open descriptor that holds the lock, or None if another holds it or there is no such folder.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def sweep(path: Path) -> None:
    """Remove what dead writers of a goal left; bring back an older folder that one of them had set aside.

    Args:
        path: the goal, absolute.
    """
    if not path.parent.is_dir():
        return
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.(writing|replaced)")
    for remains in sorted(path.parent.iterdir()):
        if not pattern.fullmatch(remains.name) or (lock := try_lock(remains)) is None:
            continue
        try:
            if remains.name.endswith(".replaced") and not path.exists():
                remains.rename(path)
            else:
                shutil.rmtree(remains, ignore_errors=True)
        finally:
            os.close(lock)


def discard(folder: Path, goal: Path | None = None) -> None:
    """Remove a folder so that a kill at any moment leaves all of it, or remains that `sweep` removes.

    Args:
        folder: an existing folder, absolute, no link; nothing happens where it is gone.
        goal: the path in the same folder whose next writer removes the remains; `folder` by default.
    """
    remains = folder.parent / f".{(goal or folder).name}.{secrets.token_hex(4)}.writing"
    lock = try_lock(folder)
    try:
        folder.rename(remains)
    except FileNotFoundError:
        return
    else:
        shutil.rmtree(remains, ignore_errors=True)
    finally:
        if lock is not None:
            os.close(lock)


def sync(folder: Path) -> None:
    """Flush a folder and everything in it to the disk.

    Args:
        folder: an existing folder.
    """
    for entry in (*folder.rglob("*"), folder):
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def into_place(temporary: Path, path: Path) -> None:
    """Rename a folder to its goal, replacing an older folder there.

    Args:
        temporary: a folder from `locked_folder`, flushed to the disk.
        path: the goal, absolute.

    Raises:
        OSError: the renames failed; the older folder is back in its place.
    """
    if not path.exists() or not any(path.iterdir()):
        temporary.rename(path)  # over an empty folder, too
    else:
        aside = path.parent / temporary.name.replace(".writing", ".replaced")
        lock = try_lock(path)
        try:
            path.rename(aside)
            temporary.rename(path)
        except OSError:
            if aside.exists() and not path.exists():
                aside.rename(path)
            raise
        finally:
            if lock is not None:
                os.close(lock)
        shutil.rmtree(aside, ignore_errors=True)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
