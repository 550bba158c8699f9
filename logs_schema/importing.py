"""From a raw log to an archive: one format reads, the archive's writer checks and files every row.

A format is a module of `logs_schema.formats` with

* `NAME`, `DESCRIPTION`, and `EXPECTED` (what its lines look like, for messages);
* `read(paths, given)`, an iterator of chunks, rejects and lines, and `facts(paths, given)`, facts beyond the rows;
* optionally `TAKES_CAPACITY`: whether the size of its pools may be given, because it is not (always) in the log;
* optionally `inventory_files(paths)`, which it reads beside the log;
* optionally `parts(paths, given)`: lists of files that can be read apart, in the order in which `read` reads them; or
  `pieces(paths)`: what `read` is given as `given.piece` to read one piece of the log after the other;
* optionally `data_files(paths)` and `looks_like(first_lines)`, by which a wrong file is known before reading.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from logs_schema.accounting import LineSum, LineTally
from logs_schema.archive import Archive
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.errors import ConfigError, FormatError, first
from logs_schema.formats.describing import ABSOLUTE_CLOCK
from logs_schema.formats.files import (
    equal_names_apart,
    find_files,
    head,
    left_in_folders,
    other_than_utf8,
    paths_below_shared,
)
from logs_schema.formats.finding import find_format, format_modules
from logs_schema.formats.reading import Chunk, Item, ReadingOptions, Reject
from logs_schema.hashing import file_hash
from logs_schema.importing_parts import import_parts
from logs_schema.mapping import TaskMap
from logs_schema.notices import notices_of
from logs_schema.options import checked_path
from logs_schema.tables import REQUESTS

OTHER_SYSTEMS = (
    "check that this is the right file; logs of any other system come in with requests_csv and a mapping, "
    "see logs_schema/README.md"
)


@dataclass(frozen=True)
class ImportReport:
    """What an import did.

    Attributes:
        archive: The archive's folder, or its address.
        format: Name of the format.
        rows: Rows filed, per table.
        quarantined: Rows put into quarantine, per table and rule.
        superseded: Rows that gave way to another row of their key, per table and rule.
        lines: What became of every line.
        seconds: Wall-clock duration.
        notices: Likely mistakes, as sentences.
    """

    archive: Path | str
    format: str
    rows: Mapping[str, int]
    quarantined: Mapping[str, Mapping[str, int]]
    superseded: Mapping[str, Mapping[str, int]]
    lines: LineSum
    seconds: float
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values; `tables.<name>` is as in the quality report."""
        tables = {
            name: {
                "rows": self.rows.get(name, 0),
                "quarantined": sum(self.quarantined.get(name, {}).values()),
                "superseded": sum(self.superseded.get(name, {}).values()),
            }
            for name in sorted({*self.rows, *self.quarantined})
        }
        plain = asdict(self) | {"archive": str(self.archive)}
        return plain | {"tables": tables}


def import_log(
    format: str,
    paths: Sequence[Path | str],
    out: Path | str,
    *,
    origin: datetime | None = None,
    capacity: Mapping[str, float] | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
    run_tasks: TaskMap | None = None,
    only_parts: bool = False,
    beside: Path | None = None,
) -> ImportReport:
    """Reads a log in one of the formats and writes it as an archive.

    Args:
        format: Name of the format, one of `format_names()`.
        paths: The log's files, or a folder that holds them.
        out: Folder of the archive to write.
        origin: Date of the log's time zero, for logs that hide it; UTC if it has no time zone.
        capacity: Cores of a pool by its name, for logs without the size of their machine.
        replace: Whether an archive already at `out` may be replaced.
        progress: Called with the number of rows read so far, after each chunk.
        run_tasks: Where a task for every part of the log and a task for every day run; what is read is kept until the
            archive is there. None: all is done here, one file after the other. The archive is the same.
        only_parts: Whether there are tasks only for a log of several parts.
        beside: As of `import_parts`.

    Raises:
        ConfigError: Paths are none.
        FormatError: No such format, a file is missing, or a file is not of this format.
        ArchiveError: `out` cannot be written.
    """
    begun = time.monotonic()
    module = find_format(format)
    files, out = _checked_files(module, paths), checked_path("out", out, "import_log")
    refuse_other_formats(module, files)
    if origin is not None and origin.tzinfo is None:
        origin = origin.replace(tzinfo=UTC)
    names = equal_names_apart(module.data_files(files)) if hasattr(module, "data_files") else {}
    options = ReadingOptions(origin, dict(capacity or {}), names)
    facts = _facts_of(module, files, options)
    source = hashes_by_name(source_files(module, files))
    parts = [] if run_tasks is None else _parts(module, files, options)
    if run_tasks is not None and (len(parts) > 1 or not only_parts):
        tally = import_parts(
            format,
            parts,
            out,
            source=source,
            facts=facts,
            replace=replace,
            run_tasks=run_tasks,
            beside=beside,
        )
    else:
        with ArchiveWriter(out, source=source, facts=facts, replace=replace) as writer:
            tally = _copied(module.read(files, options), writer, progress)
            tally.refuse_loss(first(files))
            writer.note(num_out_of_order=writer.num_out_of_order(REQUESTS.name))
    return _report(out, format, tally, time.monotonic() - begun)


def _checked_files(module: ModuleType, paths: Sequence[Path | str]) -> list[Path]:
    """The named files and folders; ConfigError where they are no list, FormatError where it is empty."""
    if isinstance(paths, str | bytes) or not isinstance(paths, Sequence):
        raise ConfigError(
            f"paths is a {type(paths).__name__}",
            where="import_log",
            allowed="a list of paths",
            advice="a single file or folder is a list of one",
        )
    files = [checked_path("paths", path, "import_log") for path in paths]
    if not files:
        raise FormatError(
            "no file was named", allowed=module.EXPECTED, advice="name the log's file or folder"
        )
    return files


def _facts_of(module: ModuleType, files: Sequence[Path], options: ReadingOptions) -> dict[str, Any]:
    """What is known of a log beside its rows; FormatError where an option is given that it has no use for."""
    if options.capacity and not getattr(module, "TAKES_CAPACITY", False):
        refuse_capacity(module, files)
    facts: dict[str, Any] = module.facts(files, options)
    facts |= {"origin": options.origin.isoformat() if options.origin else None}
    if options.origin is not None and facts["clock"] == ABSOLUTE_CLOCK:
        refuse_origin(module, files)
    if left := left_in_folders(files, source_files(module, files)):
        facts.setdefault("not_read", first(left))
    if not_utf8 := list(_not_utf8(module, files)):
        facts |= {"not_utf8": not_utf8}
    return facts


def _copied(
    items: Iterable[Item], writer: ArchiveWriter, progress: Callable[[int], None] | None
) -> LineTally:
    """Files what a format reads; the count of its lines."""
    tally = LineTally()
    for item in items:
        tally.add(item)
        if isinstance(item, Chunk):
            writer.write(item.table, item.rows, source=item.source, first_row=item.first_row, raw=item.raw)
            if progress is not None:
                progress(tally.num_rows + tally.num_derived)
        elif isinstance(item, Reject):
            writer.reject(item.table, item.rule, item.source, item.row, item.raw)
    return tally


def _parts(
    module: ModuleType, files: Sequence[Path], given: ReadingOptions
) -> list[tuple[Sequence[Path], ReadingOptions]]:
    """What every task of an import reads."""
    if hasattr(module, "pieces"):
        return [(files, dataclasses.replace(given, piece=piece)) for piece in module.pieces(files)]
    return [(part, given) for part in (module.parts(files, given) if hasattr(module, "parts") else [files])]


def _not_utf8(module: ModuleType, files: Sequence[Path]) -> Iterator[str]:
    """Name of every text file of a log with bytes that are no UTF-8, and the first of them."""
    for path in module.data_files(files) if hasattr(module, "data_files") else []:
        if path.suffix != ".parquet" and (shown := other_than_utf8(path)):
            yield f"{path.name} ({repr(shown)[1:]})"


def refuse_other_formats(module: ModuleType, files: Sequence[Path]) -> None:
    """FormatError if a file's first lines are not of the format: shows them, and which format looks right."""
    if not hasattr(module, "looks_like"):
        return
    for path in module.data_files(files):
        lines = head(path)
        if module.looks_like(lines):
            continue
        number, line = next(
            ((number, line) for number, line in enumerate(lines, 1) if line.strip() and line[0] != ";"),
            (0, ""),
        )
        likely = [
            other.NAME
            for other in format_modules()
            if hasattr(other, "looks_like") and other.looks_like(lines)
        ]
        raise FormatError(
            f"this is no {module.NAME} log: {line[:100]!r}" if number else "the file holds no rows",
            where=f"{path}, line {number}" if number else str(path),
            allowed=module.EXPECTED,
            advice=f"it looks like {' or '.join(likely)}" if likely else OTHER_SYSTEMS,
        )


def refuse_origin(module: ModuleType, files: Sequence[Path]) -> None:
    """Raises FormatError: an origin was given for a log that has its dates."""
    raise FormatError(
        "an origin was given, and the log has its own dates",
        where=f"{first(files)}, read as {module.NAME}",
        allowed="an origin for logs whose instants count from a hidden one",
        advice="leave the origin out",
    )


def refuse_capacity(module: ModuleType, files: Sequence[Path]) -> None:
    """FormatError: a capacity was given for a log of a format without pools of unknown size."""
    takers = [other.NAME for other in format_modules() if getattr(other, "TAKES_CAPACITY", False)]
    raise FormatError(
        f"a capacity was given, and {module.NAME} logs have no pool whose size could be",
        where=first(files),
        allowed=f"capacities for {', '.join(takers)}",
        advice="leave the capacity out; native and wagap logs bring their own nodes",
    )


def source_files(module: ModuleType, files: Sequence[Path]) -> list[Path]:
    """The files that an archive is made from, for its manifest: the log, and the inventory beside it."""
    if hasattr(module, "data_files"):
        beside = module.inventory_files(files) if hasattr(module, "inventory_files") else []
        return [*module.data_files(files), *beside]
    return [path for path in find_files(files, ("",)) if path.is_file()]


def hashes_by_name(files: Sequence[Path]) -> dict[str, str]:
    """Content hash of each file by its path below the folder all share, so that equal names stay apart."""
    return {name: file_hash(path) for name, path in zip(paths_below_shared(files), files, strict=True)}


def _report(out: Path, format_name: str, tally: LineTally, seconds: float) -> ImportReport:
    archive = Archive(out)
    return ImportReport(
        archive=out,
        format=format_name,
        rows={name: archive.num_rows(name) for name in archive.tables},
        quarantined={name: counts for name in archive.tables if (counts := archive.quarantined(name))},
        superseded={name: counts for name in archive.tables if (counts := archive.superseded(name))},
        lines=tally.closed(archive),
        seconds=seconds,
        notices=tuple(notices_of(archive)),
    )
