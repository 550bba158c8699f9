"""Writing a folder aside and renaming it into place, so that a kill at any moment leaves all of it or none.

A writer works in `.NAME.TOKEN.writing` beside its goal and holds a lock on that folder. The kernel drops the
lock when the writer dies, however it dies, so the next process can distinguish remains from work in progress. An
older folder under the goal's name changes places with the new one in one step (`renameat2`). Where the system cannot
do that, it is set aside as `.NAME.TOKEN.replaced`, locked likewise, for the moment between two renames; if the writer
dies in that moment, the next reader or writer brings it back.

Who reads a folder may hold it (`ReadFolder`): replaced by another, it stays as it was, under a hidden name, until it is
let go.
"""

import ctypes
import fcntl
import os
import re
import secrets
import shutil
import weakref
from functools import cache
from pathlib import Path
from typing import Any

_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_HERE = -100  # AT_FDCWD
_begun: dict[Path, int | None] = {}
"""Folders that this process writes, with their locks; None from before one is made until it is locked."""
os.register_at_fork(after_in_child=_begun.clear)  # a forked child writes none of them


class ReadFolder:
    """A folder while it is read: what is in it stays, whatever takes its name meanwhile.

    Args:
        folder: An existing folder; where it cannot be held (no locks, no `/proc`), it is read by its name.

    Attributes:
        folder: Its name.
        path: Where it is read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder
        self._descriptor = _shared(folder)
        if self._descriptor is not None:
            through = Path(f"/proc/self/fd/{self._descriptor}")
            self.path = through if through.is_dir() else folder
            weakref.finalize(self, _let_go, self._descriptor, folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadFolder, (self.folder,)

    def is_current(self) -> bool:
        """Whether its name is still that of this folder."""
        return self._descriptor is None or _names(self.folder, self._descriptor)


def _shared(folder: Path) -> int | None:
    """A descriptor of a folder that cannot be removed; None where there is none."""
    while True:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except OSError:
            os.close(descriptor)
            return None
        if _names(folder, descriptor):
            return descriptor
        os.close(descriptor)  # another took its place between the two calls


def _names(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(folder), os.fstat(descriptor))
    except OSError:
        return False


def _let_go(descriptor: int, folder: Path) -> None:
    """Ends the reading of a folder; one that was replaced is removed by its last reader."""
    is_replaced = not _names(folder, descriptor)
    os.close(descriptor)
    if is_replaced and folder.exists():
        sweep(folder)


def remove_unread(folder: Path) -> None:
    """Remove a folder that nobody needs; one that is held is left to its last reader."""
    lock = try_lock(folder)
    if lock is not None:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def locked_folder(path: Path) -> tuple[Path, int]:
    """Make a temporary folder beside a goal and lock it.

    Args:
        path: the goal, absolute; its parents are made.

    Returns:
        The folder, and the open descriptor that holds its lock: `unlock` it when done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = path.parent / f".{path.name}.{secrets.token_hex(4)}.writing"
        # Before it is made: a signal may come in between, and then `abandon` has to know it
        _begun[folder] = None
        folder.mkdir()
        lock = try_lock(folder)
        if lock is not None and folder.exists():  # not removed between the two calls
            _begun[folder] = lock
            return folder, lock
        if lock is not None:
            os.close(lock)
        del _begun[folder]


def unlock(folder: Path, lock: int) -> None:
    """End the writing of a folder: what still has its temporary name is removed, unless another reads it.

    Args:
        folder: a folder from `locked_folder`.
        lock: its lock.
    """
    os.close(lock)
    remove_unread(folder)
    _begun.pop(folder, None)


def abandon() -> None:
    """Removes what this process is writing or removing, as its last act: where its writers are not ended before, or a
    signal has ended them between two calls, such as those that make a folder and lock it."""
    for folder, lock in list(_begun.items()):
        if lock is None or _names(folder, lock):
            shutil.rmtree(folder, ignore_errors=True)
        else:  # in place; its old name may be that of the product it replaced
            remove_unread(folder)


def try_lock(folder: Path) -> int | None:
    """Lock a folder against other processes, without waiting; the lock dies with its process.

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
    except BaseException:  # a signal
        os.close(descriptor)
        raise
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
    _begun[remains] = None
    try:
        folder.rename(remains)
    except FileNotFoundError:
        pass
    else:
        shutil.rmtree(remains, ignore_errors=True)
    finally:
        if lock is not None:
            os.close(lock)
    del _begun[remains]


def sync(folder: Path) -> None:
    """Flush a folder and everything in it to the disk."""
    for entry in (*folder.rglob("*"), folder):
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def into_place(temporary: Path, path: Path) -> None:
    """Rename a folder to its goal; an older folder there is removed, or has the temporary name then.

    Args:
        temporary: a folder from `locked_folder`, flushed to the disk.
        path: the goal, absolute.

    Raises:
        OSError: the renames failed; the older folder is back in its place.
    """
    if not path.exists() or not any(path.iterdir()):
        temporary.rename(path)  # over an empty folder, too
    elif not _exchanged(temporary, path):
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
        remove_unread(aside)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchanged(one: Path, two: Path) -> bool:
    """Gives each of two folders the other's name, at once; False where the system cannot."""
    rename = _renameat2()
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(two), _EXCHANGE) == 0


@cache
def _renameat2() -> Any:
    try:
        return ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return None
