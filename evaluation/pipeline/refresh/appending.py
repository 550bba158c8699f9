"""Appends new decisions to an archive: a growing history, complete at any time.

The history is a product of its own beside the imported log, so the source of every row is known. A file whose content
was appended once is not read again. A file that has grown since (the server's open one) is read, and its rows about
requests with a known end in the history are skipped, as are samples that it has; a row with more information replaces
that of the history. A bad line is quarantined once: the same text in the same line of the same file is skipped, even if
the file was compressed since. A file is known by its path below the log, so files of one name in several folders are
several files. Where many rows have the ids of requests that arrived at other times, they are other requests, and the
log is refused.
"""

import datetime as dt
import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.comparison.training_days import days_of
from logs_schema import Archive, ArchiveWriter
from logs_schema.accounting import LineTally
from logs_schema.casting import cast_rows
from logs_schema.columns import INSTANT, TableSpec
from logs_schema.disk import link
from logs_schema.errors import ConfigError, counted, first
from logs_schema.formats import native
from logs_schema.formats.reading import Chunk, Item, Reject
from logs_schema.hashing import file_hash
from logs_schema.importing import hashes_by_name, refuse_other_formats
from logs_schema.keys import key_hashes
from logs_schema.log_days import log_days
from logs_schema.product import verify
from logs_schema.progress import Stage
from logs_schema.quarantine import BadRecord
from logs_schema.tables import REQUESTS, TABLES, UNFINISHED

KIND, ARCHIVE = "history", "archive"
APPENDED = "appended"
MOST_OTHER = 0.1
"""Share of the rows read that may have the id of a request that arrived at another time, as a requeued one does."""
DECISIONS = "decisions"
"""Folder of a server's log with details of decisions; it is no table of the archive."""


def log_files(log: Path) -> list[Path]:
    """The files of a decision log: one file, a folder of them, or the folder that `schedtwin serve --log` writes.

    Raises:
        FormatError: There is no CSV or Parquet file.
    """
    paths = [log]
    if (log / DECISIONS).is_dir():
        paths = [
            one for one in sorted(log.iterdir()) if one.name != DECISIONS and not one.name.startswith(".")
        ]
    found = native.data_files(paths)
    packed = {path for path in found if path.suffix == ".gz"}
    return [path for path in found if path.with_name(f"{path.name}.gz") not in packed]


def build_history(
    out: Path,
    base: Path,
    previous: Path | None,
    files: Sequence[Path],
    stage: Stage,
    log: Path,
    table: str = REQUESTS.name,
) -> dict[str, Any]:
    """Writes the history with the log's rows into the empty folder `out`.

    Args:
        out: Where to write; the archive goes into a folder inside.
        base: Archive of the imported log.
        previous: The previous history; None begins one from `base`.
        files: Files of the decision log, in this project's own format.
        stage: Progress, in rows read.
        log: The decision log; its files are named by their paths below it.
        table: That the problem learns from.

    Returns:
        Facts: the numbers of appended rows of the table, whether they add information to the history (`is_news`), and
        the days that the history covers.

    Raises:
        ConfigError: The imported log is another one than the history began with.
        ProductError: The previous history is damaged.
    """
    origin = Archive(base).content_hash
    if previous is not None and verify(previous, KIND).extra["base"] != origin:
        raise ConfigError(
            "the imported log is not the one that the history began with",
            where=str(previous),
            allowed="the [log] of the first refresh; what came later is in the history",
            advice="give another work folder, or remove the history and append all decision logs again",
        )
    source = base if previous is None else previous / ARCHIVE
    shutil.copytree(source, out / ARCHIVE, copy_function=link)
    return {"base": origin} | append(out / ARCHIVE, files, stage, log, table)


def append(
    path: Path, files: Sequence[Path], stage: Stage, log: Path, table: str = REQUESTS.name
) -> dict[str, Any]:
    """Appends the new rows of the files to the archive at `path`; facts as in `build_history`."""
    archive = Archive(path)
    seen = set(archive.made_from.values())
    present = [_as_it_is_now(file) for file in files]
    unseen = [file for file in present if file_hash(file) not in seen]
    counts = {
        "files": len(present),
        "new_files": len(unseen),
        "rows_read": 0,
        "rows_known": 0,
        "rows_other": 0,
    }
    before, bad_before = archive.num_rows(table), _num_bad(archive, table)
    days_before = archive.days(table)
    held = archive.days_hash(table, days_before)
    if unseen:
        refuse_other_formats(native, unseen)
        known = _Known(archive, settled_among(archive, _request_ids(native.read(unseen))))
        source = {f"{APPENDED}:{name}@{hash_[:8]}": hash_ for name, hash_ in hashes_by_name(unseen).items()}
        names = _names_below(log, present)
        filed = _marks_of_bad(archive, {names[file] for file in unseen})
        with ArchiveWriter(
            path, source=source, append=True, is_known_bad=lambda bad: _mark(bad) in filed
        ) as writer:
            tally = LineTally()
            for item in _named(unseen, names):
                tally.add(item)
                _take(writer, item, known, counts, table)
                stage(counts["rows_read"])
            tally.refuse_loss(first(unseen))
            _refuse_other(counts, unseen)
        archive = Archive(path)
    days, since = archive.days(table), days_before[-1] if days_before else dt.date.max
    return counts | {
        "days_without": [str(day) for day in _days_without(archive, table) if day > since],
        "requests_added": archive.num_rows(table) - before,
        "rows_quarantined": _num_bad(archive, table) - bad_before,
        "requests": archive.num_rows(table),
        "table": table,
        "is_news": archive.days_hash(table, days) != held,
        "first_day": days[0].isoformat() if days else None,
        "last_day": days[-1].isoformat() if days else None,
    }


def _days_without(archive: Archive, table: str) -> tuple[dt.date, ...]:
    """Days within a history that have no rows."""
    return log_days(dict.fromkeys(days_of(archive, table), 1)).missing


def settled_among(archive: Archive, ids: pa.Array) -> pa.Table:
    """Those of `ids` whose end is known in an archive: `request_id` and `arrival`."""
    columns = ["request_id", "arrival", "status", "finish"]
    found = [pa.table({"request_id": pa.array([], pa.string()), "arrival": pa.array([], INSTANT)})]
    # every look-up arranges its ids anew: of a day of millions in a history of a thousand batches it did little else
    for rows in blocks(archive.scan(REQUESTS.name, columns=columns), len(ids)) if len(ids) else ():
        status = pc.cast(rows["status"], pa.string())
        silent = pc.and_(pc.equal(status, "unknown"), pc.is_null(rows["finish"]))
        open_ended = pc.or_(pc.is_in(status, value_set=pa.array(UNFINISHED)), silent)
        known = pc.and_(pc.is_in(rows["request_id"], value_set=ids), pc.invert(open_ended))
        found.append(pa.table({name: rows[name].filter(known) for name in columns[:2]}))
    return pa.concat_tables(found)


def blocks(batches: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.Table]:
    """Batches put together to so many rows at least, but for the last."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= least:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _refuse_other(counts: Mapping[str, int], files: Sequence[Path]) -> None:
    """ConfigError where many rows have the ids of other requests: left out as known, they would be lost."""
    if counts["rows_other"] > MOST_OTHER * counts["rows_read"]:
        raise ConfigError(
            f"{counts['rows_other']:,} of {counts['rows_read']:,} rows have the ids of requests in the history that "
            "arrived at other times",
            where=first(files),
            allowed="for every request an id of its own",
            advice="import the log with a column for request_id; where ids are made of files and lines, give the "
            "file a name of its own, or append to it",
        )


def _names_below(log: Path, files: Sequence[Path]) -> dict[Path, str]:
    """Path of each file below the log, as the quarantine names it; its name where the log is the file itself."""
    return {file: file.name if file == log else file.relative_to(log).as_posix() for file in files}


def _named(files: Sequence[Path], names: Mapping[Path, str]) -> Iterator[Item]:
    for part in native.parts(files):
        for item in native.read(part):
            yield item._replace(source=names[part[0]])


def _marks_of_bad(archive: Archive, sources: Collection[str]) -> set[bytes]:
    """Marks of the bad lines of some files that are in an archive's quarantine."""
    wanted, marks = {_unpacked(source) for source in sources}, set()
    for batch in archive.quarantine():
        is_wanted = [_unpacked(source) in wanted for source in batch["source"].to_pylist()]
        for row in batch.filter(pa.array(is_wanted, pa.bool_())).to_pylist():
            marks.add(_mark(BadRecord(**row)))
    return marks


def _mark(bad: BadRecord) -> bytes:
    """What a bad line is known by; a digest, since lines can be long."""
    parts = bad.table, bad.rule, _unpacked(bad.source), str(bad.row), bad.raw
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest()


def _unpacked(source: str) -> str:
    return source.removesuffix(".gz")


class _Known:
    """Which rows say what a history has already: of settled requests, or samples of the same instant and thing."""

    def __init__(self, archive: Archive, settled: pa.Table) -> None:
        self.archive, self.settled = archive, settled
        self._keys: dict[str, np.ndarray] = {}

    def among(self, spec: TableSpec, rows: pa.Table) -> np.ndarray:
        """[rows] bool; nothing is known of tables without days, where the newest row of a key is kept."""
        if spec is REQUESTS:
            ids = pc.cast(rows["request_id"], pa.string())
            return pc.is_in(ids, value_set=self.settled["request_id"]).to_numpy()
        known = np.zeros(rows.num_rows, bool)
        if spec.time and self.archive.num_rows(spec.name):
            keys = cast_rows(spec, rows).rows.select(spec.key)
            whole = np.logical_and.reduce([keys[name].is_valid().to_numpy() for name in spec.key])
            known[whole] = np.isin(key_hashes(spec, keys.filter(pa.array(whole))), self._keys_of(spec))
        return known

    def num_other(self, known: pa.Table) -> int:
        """How many of these rows of settled requests arrived at another time."""
        required = [column.name for column in REQUESTS.columns if not column.nullable]
        rows = cast_rows(REQUESTS, known.select(required)).rows
        place = pc.index_in(rows["request_id"], value_set=self.settled["request_id"])
        return int(pc.sum(pc.not_equal(rows["arrival"], self.settled["arrival"].take(place))).as_py() or 0)

    def _keys_of(self, spec: TableSpec) -> np.ndarray:
        if spec.name not in self._keys:
            batches = self.archive.scan(spec.name, columns=spec.key)
            hashes = [key_hashes(spec, pa.Table.from_batches([batch])) for batch in batches]
            self._keys[spec.name] = np.concatenate(hashes)
        return self._keys[spec.name]


def _take(writer: ArchiveWriter, item: Item, known: _Known, counts: dict[str, int], table: str) -> None:
    if isinstance(item, Reject):
        writer.reject(item.table, item.rule, item.source, item.row, item.raw)
    if not isinstance(item, Chunk):
        return
    rows, numbers, raw = item.rows, item.first_row, item.raw
    keep = ~known.among(next(spec for spec in TABLES if spec.name == item.table), rows)
    if item.table == table:
        counts["rows_read"] += rows.num_rows
        counts["rows_known"] += int((~keep).sum())
    if item.table == REQUESTS.name and not keep.all():
        counts["rows_other"] += known.num_other(rows.filter(pa.array(~keep)))
    if not keep.all():
        if isinstance(numbers, int):
            numbers = np.arange(numbers, numbers + rows.num_rows)
        numbers = numbers[keep]
        raw = None if raw is None else [text for text, kept in zip(raw, keep, strict=True) if kept]
        rows = rows.filter(pa.array(keep))
    writer.write(item.table, rows, source=item.source, first_row=numbers, raw=raw)


def _request_ids(items: Iterator[Item]) -> pa.Array:
    ids = [
        pc.cast(item.rows["request_id"], pa.string()).combine_chunks()
        for item in items
        if isinstance(item, Chunk) and item.table == REQUESTS.name
    ]
    return pc.unique(pa.chunked_array(ids, pa.string()))


def _num_bad(archive: Archive, table: str) -> int:
    return sum(archive.quarantined(table).values())


def _as_it_is_now(file: Path) -> Path:
    """The file, or its compressed form if the server has compressed it since it was listed."""
    packed = file.with_name(f"{file.name}.gz")
    return packed if not file.exists() and packed.exists() else file


def in_words(facts: Mapping[str, Any]) -> str:
    """The numbers of appended rows, as a sentence."""
    rows = facts.get("table", REQUESTS.name)
    known = "of requests whose end was known" if rows == REQUESTS.name else "known already"
    without = facts.get("days_without")
    lost = f"; it has none of {first(without)}: where a log was lost, that is no quiet day" if without else ""
    if other := facts.get("rows_other"):
        known += f", {other:,} of them with another arrival"
    return (
        f"{facts['requests_added']:,} {rows} added from {counted(facts['new_files'], 'new file')} "
        f"({facts['rows_read']:,} rows read, {facts['rows_known']:,} {known}, "
        f"{facts['rows_quarantined']:,} quarantined); "
        f"the history now holds {facts['requests']:,} {rows}, {facts['first_day']} to {facts['last_day']}{lost}"
    )
