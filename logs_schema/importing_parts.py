"""An import as tasks: one reads one part of a log, one files one day; the archive is the same, byte for byte.

What is read already is kept beside the archive until it is there, so that an import that was killed goes on with the
parts that are missing.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logs_schema.accounting import LineTally
from logs_schema.archive import archive_errors
from logs_schema.assembly import assemble
from logs_schema.errors import FormatError, ProductError, first
from logs_schema.formats.finding import find_format
from logs_schema.formats.reading import ReadingOptions
from logs_schema.fragments import KIND as FRAGMENT
from logs_schema.fragments import read_fragment, write_fragment
from logs_schema.hashing import json_hash
from logs_schema.layout import KIND
from logs_schema.mapping import TaskMap
from logs_schema.product import remove_once_in_place, verify, writing
from logs_schema.tables import REQUESTS, SCHEMA_VERSION

IMPORT_CODE = 13
"""Raised when a log's lines are read otherwise than before."""


@dataclass(frozen=True)
class _LogPart:
    """A task: some files of a log, in the order in which they stand in it."""

    format: str
    files: tuple[Path, ...]
    given: ReadingOptions
    folder: Path


def import_parts(
    format: str,
    parts: Sequence[tuple[Sequence[Path], ReadingOptions]],
    out: Path,
    *,
    source: Mapping[str, str],
    facts: Mapping[str, Any],
    replace: bool,
    run_tasks: TaskMap,
    beside: Path | None = None,
) -> LineTally:
    """Writes a log as the archive `out`, part by part.

    Args:
        format: Name of the format.
        parts: Files that can be read apart from the others, in the order in which they stand in the log, and facts that
            are not in the log.
        out: Folder of the archive.
        source: Name -> content hash of each input.
        facts: What is known of the log besides its rows.
        replace: Whether an archive already at `out` may be replaced.
        run_tasks: Where tasks run; they must see the files and `out` under the same paths.
        beside: Folder that a product is written into of which the archive is a part: what is read is kept beside it,
            until it is in place. None: beside the archive.

    Returns:
        What became of the lines.

    Raises:
        FormatError: A file is not of this format.
        ArchiveError: `out` cannot be written.
    """
    out, extra = out.absolute(), dict[str, Any]()
    whole = {"format": format, "source": dict(source), "facts": dict(facts), "num_parts": len(parts)}
    wanted = json_hash(whole | {"code": IMPORT_CODE})
    whole_product = out if beside is None else beside.absolute()
    unfinished = whole_product.parent / f".unfinished-import-{wanted[:16]}"
    items = [
        _LogPart(format, tuple(file.absolute() for file in part), given, unfinished / f"part-{number}")
        for number, (part, given) in enumerate(parts)
    ]
    with archive_errors(), writing(out, KIND, made_from=source, extra=extra, replace=replace) as root:
        try:
            folders = list(run_tasks(read_part, items, "parts of the log"))
            tally = LineTally()
            for folder in folders:
                tally.include(read_fragment(folder)[0])
            tally.refuse_loss(str(first(items[0].files)))
        except FormatError:  # of the log itself: no import of the same files will go on from here
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        tables, out_of_order = assemble(root, folders, run_tasks)
        recorded = dict(facts) | {"num_out_of_order": out_of_order.get(REQUESTS.name, 0)}
        extra |= {"schema_version": SCHEMA_VERSION, "tables": tables, "facts": recorded}
    remove_once_in_place(whole_product, unfinished)
    return tally


def read_part(item: _LogPart) -> Path:
    """A task: reads one part of a log into its folder, unless that is there already; returns the folder."""
    try:
        verify(item.folder, FRAGMENT)
    except ProductError:  # not there yet, or damaged
        with writing(item.folder, FRAGMENT, replace=True) as folder:
            write_fragment(folder, find_format(item.format).read(list(item.files), item.given))
    return item.folder
