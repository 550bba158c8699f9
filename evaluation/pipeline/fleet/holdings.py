"""What lies in a cluster's work folder: products, remains, units of unfinished steps, and what is none of these.

Links are never followed, neither out of the folder nor inside of it.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from evaluation.jobs.unfinished import UNFINISHED
from evaluation.pipeline.fleet.exports import EXPORTS
from evaluation.pipeline.fleet.outcomes import FOLDER as FLEET
from evaluation.pipeline.refresh.appending import KIND as HISTORY
from evaluation.pipeline.refresh.job import FOLDER as REFRESH
from logs_schema.product import MANIFEST, Manifest, is_signature, read_manifest

ARCHIVES = ("archive", "job-archive", HISTORY)
"""Kinds that are never removed."""
REMAINS = re.compile(r"\.(.+)\.[0-9a-f]{8}\.(writing|replaced)")
UNITS = re.compile(rf"\.{UNFINISHED}-.+-[0-9a-f]{{16}}")


class What(Enum):
    """What a thing in a work folder is."""

    PRODUCT = "product"
    REMAINS = "remains of a writer"
    UNITS = "units of an unfinished step"
    OTHER = "no product"


@dataclass(frozen=True)
class Holding:
    """One thing in a work folder.

    Attributes:
        path: Where it is, absolute.
        what: What it is.
        manifest: Of a product; else None.
        remark: Why something is no product; empty otherwise.
    """

    path: Path
    what: What
    manifest: Manifest | None = None
    remark: str = ""

    @property
    def name(self) -> str:
        """Its file name."""
        return self.path.name


def holdings_in(work: Path) -> list[Holding]:
    """Everything in a work folder and in its folders of products.

    Args:
        work: Work folder, absolute; it may itself be reached by a link.

    Raises:
        ProductError: A manifest is damaged: what a product was made from cannot be followed.
    """
    found: list[Holding] = []
    for folder in (work, work / REFRESH, *sorted(_folders_of(work / EXPORTS))):
        if folder == work or _is_folder(folder):
            found += [_holding(path) for path in sorted(folder.iterdir()) if not _is_own(path, work)]
    exports = work / EXPORTS
    if _is_folder(exports):
        found += [_holding(path) for path in sorted(exports.iterdir()) if REMAINS.fullmatch(path.name)]
    return found


def _is_own(path: Path, work: Path) -> bool:
    """Whether a path is one of the folders that hold products, or that of the fleet's records."""
    return path.parent == work and path.name in (REFRESH, EXPORTS, FLEET) and _is_folder(path)


def _folders_of(folder: Path) -> Iterator[Path]:
    if _is_folder(folder):
        yield from (path for path in folder.iterdir() if _is_folder(path) and not path.name.startswith("."))


def _holding(path: Path) -> Holding:
    if not _is_folder(path):
        return Holding(path, What.OTHER, remark="a link, not followed" if path.is_symlink() else "a file")
    if REMAINS.fullmatch(path.name):
        return Holding(path, What.REMAINS)
    if UNITS.fullmatch(path.name):
        return Holding(path, What.UNITS)
    if not (path / MANIFEST).is_file() or (path / MANIFEST).is_symlink():
        return Holding(path, What.OTHER, remark=f"a folder without {MANIFEST}")
    manifest = read_manifest(path)
    strange = (
        name for name in names_in(path) if name not in manifest.files and not is_signature(name, manifest)
    )
    if foreign := next(strange, None):
        return Holding(path, What.OTHER, remark=f"it holds {foreign}, which its manifest does not name")
    return Holding(path, What.PRODUCT, manifest)


def names_in(folder: Path) -> Iterator[str]:
    """Relative paths of everything in a folder that is no folder, links among them, but its manifest."""
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(here) / name).is_symlink()]
        for name in (*files, *links):
            relative = (Path(here) / name).relative_to(folder).as_posix()
            if relative != MANIFEST:
                yield relative


def holds_archive(folder: Path) -> bool:
    """Whether a folder is an archive, or holds one at any depth."""
    manifests = (Path(here) / MANIFEST for here, _, files in os.walk(folder) if MANIFEST in files)
    return any(read_manifest(file.parent).kind in ARCHIVES for file in manifests)


def inodes_in(folder: Path) -> Iterator[tuple[int, os.stat_result]]:
    """(inode, status) of every plain file in a folder."""
    for here, _, files in os.walk(folder):
        for name in files:
            status = (Path(here) / name).lstat()
            if stat.S_ISREG(status.st_mode):
                yield status.st_ino, status


def newest_s(folder: Path) -> float:
    """When something in a folder was last changed, in seconds since 1970."""
    times = [status.st_mtime for _, status in inodes_in(folder)]
    return max([folder.lstat().st_mtime, *times])


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
