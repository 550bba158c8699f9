"""`schedtwin compact`: many small files of an archive become few, with the same rows in the same order.

Consecutive small days of a table are packed together (`logs_schema.packs`), parts of the quarantine likewise. The
newest days stay as they are, since rows are still added to them. The archive with packs is written aside and takes the
other's place at once; readers of the old one read it to the end. Packs that are finished are kept beside the archive
until then: a compaction that was killed goes on with the rest.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.archive import Archive, archive_errors
from logs_schema.archive_writer import keep, link, undisturbed
from logs_schema.errors import ArchiveChangedError, ConfigError
from logs_schema.hashing import json_hash
from logs_schema.layout import KIND, QUARANTINE, day_of, partition
from logs_schema.options import checked_progress
from logs_schema.packs import copy_groups, packed_extra
from logs_schema.product import remove_once_in_place, writing
from logs_schema.progress import Progress
from logs_schema.stores import address_of, working_copy

SMALL_BYTES, PACK_BYTES, NEWEST_DAYS = 16 << 20, 128 << 20, 7
ATTEMPTS = 10
"""Times that a compaction begins anew because rows were added meanwhile; packs that are finished are not made again."""


@dataclass(frozen=True)
class CompactConfig:
    """What is packed.

    Attributes:
        small_bytes: Files from this size on stay alone.
        pack_bytes: A pack is closed when it has reached this size.
        newest_days: The newest days of a table stay alone, as rows are still added to them.
    """

    small_bytes: int = SMALL_BYTES
    pack_bytes: int = PACK_BYTES
    newest_days: int = NEWEST_DAYS

    def __post_init__(self) -> None:
        if min(self.small_bytes, self.pack_bytes) < 1 or self.newest_days < 0:
            raise ConfigError(
                "sizes of compaction are impossible", where=str(self), allowed="sizes >= 1, days >= 0"
            )


@dataclass(frozen=True)
class Compaction:
    """How many Parquet files the archive had and has, and its content hash, which stays."""

    num_files_before: int
    num_files: int
    content_hash: str


def compact(
    path: Path | str, config: CompactConfig | None = None, progress: Progress | None = None
) -> Compaction:
    """Packs the small files of an archive; its rows, their order and its content hash stay.

    Args:
        path: The archive's folder, or its address in an object store.
        config: What is packed.
        progress: Where to show how far it is.

    Raises:
        ArchiveError: There is no archive, it cannot be read, or rows were added to it all the while.
    """
    config, progress = config or CompactConfig(), checked_progress(progress, "compact")
    address = address_of(path)
    if address is not None:
        Archive(address)  # refused here where there is none
        with working_copy(address, append=True) as folder:
            return compact(folder, config, progress)
    for attempt in range(ATTEMPTS):
        archive = Archive(Path(path).absolute())
        try:
            return _compacted(archive, config, progress)
        except ArchiveChangedError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _compacted(archive: Archive, config: CompactConfig, progress: Progress) -> Compaction:
    before = len(archive.manifest.files)
    goals = {_name(names): names for names in _plan(archive, config) if len(names) > 1}
    if {pack: list(held) for pack, held in archive.packs.items()} == goals:
        return Compaction(before, before, archive.content_hash)
    unfinished = archive.path.parent / f".unfinished-compact-{archive.path.name}"
    packs, made = dict[str, dict[str, Any]](), dict[str, Path]()
    with progress.stage("pack", total=len(goals), unit="packs") as stage:
        for number, (pack, names) in enumerate(goals.items()):
            packs[pack] = _entry(archive, names)
            is_there = archive.packs.get(pack) == packs[pack]
            made[pack] = archive.folder.path / pack if is_there else _made(archive, names, unfinished)
            stage(number + 1)
    packed = {name for names in goals.values() for name in names}
    manifest, extra = archive.manifest, packed_extra(archive.manifest.extra, packs)
    product = writing(
        archive.path,
        KIND,
        made_from=manifest.made_from,
        config=manifest.config,
        seed=manifest.seed,
        extra=extra,
        replace=True,
    )
    with ExitStack() as until_in_place, archive_errors(), product as root:
        for pack, file in made.items():
            link(file, root / pack)
        for name in archive.pieces.keys() - packed:
            keep(archive, name, root, in_packs=False)
        remove_once_in_place(root, unfinished)
        until_in_place.enter_context(undisturbed(archive))
    num_files = len(archive.pieces) - len(packed) + len(goals)
    return Compaction(before, num_files, archive.content_hash)


def _plan(archive: Archive, config: CompactConfig) -> list[list[str]]:
    """Names of the files that are to be together, in order."""
    found = []
    for table in archive.tables:
        days = archive.days(table)
        old = days[: max(len(days) - config.newest_days, 0)]
        found += _runs(archive, [partition(table, day) for day in old], config)
    return found + _runs(archive, archive.quarantine_names(), config)


def _runs(archive: Archive, names: Sequence[str], config: CompactConfig) -> list[list[str]]:
    """Consecutive small files of the same columns, closed when they are large enough together."""

    def columns(name: str) -> bytes | None:
        """None of a file that stays alone."""
        if _num_bytes(archive, name) >= config.small_bytes:
            return None
        with archive.reading(name):
            return bytes(pq.read_schema(archive.source(name)[0]).serialize())

    runs: list[list[str]] = []
    for kind, run in groupby(names, columns):
        size = config.pack_bytes
        for name in run if kind is not None else ():
            if size >= config.pack_bytes:
                runs.append([])
                size = 0
            runs[-1].append(name)
            size += _num_bytes(archive, name)
    return runs


def _num_bytes(archive: Archive, name: str) -> int:
    """Size of a file as it was written."""
    piece = archive.pieces[name]
    if piece.groups is not None:
        return piece.num_bytes
    with archive.reading(name):
        return (archive.folder.path / piece.file).stat().st_size


def _name(names: Sequence[str]) -> str:
    """Path of a pack, by the first and the last of its files."""
    first, last = Path(names[0]), Path(names[-1])
    if first.parts[0] == QUARANTINE:
        begin, end = (file.stem.removeprefix("part-") for file in (first, last))
        return f"{QUARANTINE}/pack-{begin}-{end}.parquet"
    return f"{first.parts[0]}/dates={day_of(first)}--{day_of(last)}/{first.name}"


def _entry(archive: Archive, names: Sequence[str]) -> dict[str, Any]:
    """What the manifest keeps of the files of a pack."""
    entry, first = dict[str, Any](), 0
    for name in names:
        with archive.reading(name):
            num_groups = len(archive.source(name)[1])
        entry[name] = {
            "first_group": first,
            "num_groups": num_groups,
            "num_bytes": _num_bytes(archive, name),
            "sha256": archive.pieces[name].sha256,
        }
        first += num_groups
    return entry


def _made(archive: Archive, names: Sequence[str], unfinished: Path) -> Path:
    """The file of a pack, named by what is in it; written unless an earlier compaction did."""
    file = unfinished / f"{json_hash([archive.pieces[name].sha256 for name in names])[:32]}.parquet"
    with archive.reading(names[0]):
        sources = [archive.source(name) for name in names]
        if not _is_whole(file, sum(len(groups) for _, groups in sources)):
            beside = file.with_suffix(f".{os.getpid()}")
            copy_groups(sources, beside)
            with beside.open("rb") as written:  # before it has its name, which outlives a loss of power
                os.fsync(written.fileno())
            beside.replace(file)
    return file


def _is_whole(file: Path, num_groups: int) -> bool:
    """Whether a pack is there with all its row groups; a file system that lost power may have kept less of it."""
    try:
        return bool(pq.read_metadata(file).num_row_groups == num_groups)
    except (pa.ArrowInvalid, OSError):
        return False
