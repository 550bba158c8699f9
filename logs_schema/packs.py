"""Packs: several files of an archive as row groups of one, and what the manifest keeps of them.

An archive of years has thousands of small files, each with a footer larger than its rows. `compacting` copies their
row groups, one after another and unchanged, into packs. The manifest keeps the name, the hash and the row groups of
every file that was packed. So readers find a day as before, hashes of content are those of the files as they were
written, and a pack can be taken apart again.

extra["packs"] = {PACK: {FILE: {"first_group": 0, "num_groups": 1, "num_bytes": 9000, "sha256": ...}}}
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.errors import ArchiveError
from logs_schema.layout import open_parquet, parquet_writer
from logs_schema.product import Manifest, read_manifest
from logs_schema.tables import SCHEMA_VERSION

PACKS = "packs"
PACKED_VERSION = 2
"""Schema version of an archive with packs, which older code refuses; one without keeps that of its tables."""


@dataclass(frozen=True)
class Piece:
    """Where the rows of a file of an archive are.

    Attributes:
        file: Of the archive: the file itself, or a pack.
        groups: Its row groups there; None: all.
        num_bytes: Size of the file as it was written; 0 where it is still there.
        sha256: Hash of the file as it was written.
    """

    file: str
    groups: range | None
    num_bytes: int
    sha256: str


def pieces_of(manifest: Manifest) -> dict[str, Piece]:
    """Name of each file as it was written -> where its rows are now."""
    packs: Mapping[str, Mapping[str, Any]] = manifest.extra.get(PACKS, {})
    pieces = {
        name: Piece(name, None, 0, sha256) for name, sha256 in manifest.files.items() if name not in packs
    }
    for pack, held in packs.items():
        for name, one in held.items():
            groups = range(one["first_group"], one["first_group"] + one["num_groups"])
            pieces[name] = Piece(pack, groups, one["num_bytes"], one["sha256"])
    return pieces


def as_written(manifest: Manifest) -> Manifest:
    """The manifest that the archive would have without packs."""
    if PACKS not in manifest.extra:
        return manifest
    extra = {name: value for name, value in manifest.extra.items() if name != PACKS}
    files = {name: piece.sha256 for name, piece in sorted(pieces_of(manifest).items())}
    plain = replace(manifest, files=files, extra=extra | {"schema_version": SCHEMA_VERSION})
    return replace(plain, content_hash=plain.hashed())


def content_hash_of(path: Path, kind: str | None = None) -> str:
    """Content hash of a product; of an archive the one without packs, so that compacting it leaves the hash as it is.

    Raises:
        ProductError: There is no product, its manifest is damaged, or it is of another kind.
    """
    return as_written(read_manifest(path, kind)).content_hash


def packed_extra(extra: Mapping[str, Any], packs: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a manifest with these packs, or without any."""
    plain = {name: value for name, value in extra.items() if name != PACKS}
    if not packs:
        return plain | {"schema_version": SCHEMA_VERSION}
    return plain | {"schema_version": PACKED_VERSION, PACKS: dict(packs)}


def copy_groups(sources: Sequence[tuple[Path, range]], target: Path) -> None:
    """Row groups of some Parquet files, one after another, as they are, in a new one; holds one at a time.

    Args:
        sources: Files and which row groups of them. All files have the same columns.
        target: The new file.

    Raises:
        ArchiveError: What was written does not read as what was copied.
    """
    with closing(parquet_writer(target, pq.read_schema(sources[0][0]))) as writer:
        for group in _groups_in(sources):
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
    copies = _groups_in([(target, range(open_parquet(target).num_row_groups))])
    for original, copy in zip(_groups_in(sources), copies, strict=True):
        if not original.equals(copy):
            raise ArchiveError(
                "rows changed when they were copied, so nothing was written",
                where=str(sources[0][0]),
                advice="report this: it is a fault of the program, not of the log",
            )


def _groups_in(sources: Sequence[tuple[Path, range]]) -> Iterator[pa.Table]:
    for file, groups in sources:
        labels = [field.name for field in pq.read_schema(file) if pa.types.is_dictionary(field.type)]
        with open_parquet(file, labels) as parquet:
            for number in groups:
                yield parquet.read_row_group(number)
