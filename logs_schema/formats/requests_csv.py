"""Jobs, tasks or pods of any system in CSV files, JSON, lines of text or Parquet, with a mapping (TOML) beside them: a
line, row or object a request.

    schedtwin import requests_csv jobs.csv mapping.toml nodes.csv --out archive

Readings of the format:

* The mapping (`logs_schema.formats.request_mapping`) names for every column of `requests` the log's column, its unit,
  and what its texts mean. Columns that it does not name are not read.
* JSON is an object a line, or one document with a list of them, as `kubectl get --output json` and `sacct --json`
  print: its objects are numbered as lines are. A document that breaks off is refused as a whole.
* Without a column for `request_id` the id is the file's name and the line, `jobs.csv:12`. Where several of the files
  have one name it is their path below the folder that all files share, `2024-03-01/jobs.csv:12`, as in the quarantine:
  such ids depend on which files are imported together.
* Machines come from a `nodes.csv` (or `nodes-*.csv`) of the `native` format beside the log, or from the capacity
  given: then the log is one pool, whatever started ran on it, and nodes that the mapping names are left out.
* Without a column for `site` requests are of the machines' site, where all listed ones are of one, else of `cluster`.
* Where the log has waits and run times in place of start and finish, these follow from them; so does the start from
  finish and run time, and the arrival from start and wait.
* An instant without a zone, in an hour that the clock of its time zone shows twice, is the first one, or the second
  where otherwise the request would start before it arrived, or finish before it started. One that the clock never
  shows, in an hour that it skips, costs its row.
* Empty fields and texts such as `None`, `Unknown` and `N/A` are null; a text that cannot be read costs its row.
* Numbers instead of dates count from 1970, or from the `origin` given.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from logs_schema.calendar import EPOCH
from logs_schema.errors import FormatError, first
from logs_schema.formats.describing import ABSOLUTE_CLOCK, RELATIVE_CLOCK, describe
from logs_schema.formats.files import find_files, names_apart
from logs_schema.formats.instant_units import LOOKS_LIKE_EPOCH_S, duration_notice, unit_notice
from logs_schema.formats.json_paths import found_at, list_on_the_way, text_of
from logs_schema.formats.mapping import SUFFIX, mapping_file
from logs_schema.formats.native import check_columns, column_names, read_csv
from logs_schema.formats.pieces import LogPiece, pieces_of
from logs_schema.formats.pool_size import ONLY_POOL, given_cores
from logs_schema.formats.reading import NOTHING_GIVEN, BadRow, Chunk, Item, ReadingOptions, Row, parse_lines
from logs_schema.formats.request_lines import field_reader, first_lines, is_json, json_fields, lines_of
from logs_schema.formats.request_mapping import MappedColumn, RequestMapping, read_request_mapping
from logs_schema.formats.request_rows import meant_by, request_row
from logs_schema.formats.request_values import AMOUNT_UNITS, InstantReading
from logs_schema.formats.swf import is_number, pool_chunk
from logs_schema.hashing import file_hash
from logs_schema.tables import NODES, REQUESTS

NAME = "requests_csv"
DESCRIPTION = "jobs, tasks or pods of any system: CSV, JSON, text (or .gz) or Parquet, with a mapping (TOML)"
EXPECTED = "CSV, JSON (.jsonl, .json) or Parquet (.parquet) with the columns that the mapping (.toml) names"
TAKES_CAPACITY = True
LOGS = (".csv", ".jsonl", ".json", ".ndjson", ".tsv", ".psv", ".log", ".parquet")
"""How the files of a log end that are read from a folder."""
INVENTORY = re.compile(r"nodes([-.].*)?\.csv(\.gz)?")
"""Names of files that list the machines: nodes.csv, nodes-2024.csv.gz."""
MOST_AGAIN = 0.1
"""Share of requests that may arrive again, as those do that Slurm requeues."""


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The log's files, without mapping and inventory."""
    files = find_files(paths, LOGS)
    return [path for path in files if path.suffix != SUFFIX and not INVENTORY.fullmatch(path.name)]


def inventory_files(paths: Sequence[Path]) -> list[Path]:
    """The mapping, and the machines where they are listed: the archive depends on both."""
    return [_mapping_file(paths), *_inventory(paths)]


def pieces(paths: Sequence[Path]) -> list[LogPiece]:
    """What can be read apart: machines go with the first piece."""
    return pieces_of(data_files(paths), whole=bool(read_request_mapping(_mapping_file(paths)).each))


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads the machines, then the requests.

    Args:
        paths: The log's files, its mapping and perhaps `nodes.csv`, or a folder of them.
        given: Facts that are not in the log.

    Raises:
        FormatError: There is no mapping or no log, or a file lacks a column that the mapping names.
    """
    mapping = read_request_mapping(_mapping_file(paths))
    pools = given_cores(given, (ONLY_POOL,))
    inventory = _inventory(paths)
    if pools and inventory:
        raise FormatError(
            "a capacity was given, and machines are listed", where=first(inventory), allowed="one of them"
        )
    files = data_files(paths)
    piece = given.piece or LogPiece(0, len(files))
    sites: set[str] = set()
    for path in inventory:
        check_columns(NODES, column_names(path), path)
        for item in read_csv(NODES, path):
            if isinstance(item, Chunk):
                sites.update(filter(None, item.rows["site"].to_pylist()))
            if piece.is_first:
                yield item
    if "site" not in mapping.columns and len(sites) == 1:
        site = MappedColumn("site", (), constant=sites.pop())
        mapping = replace(mapping, columns={**mapping.columns, "site": site})
    if pools:
        mapping = mapping.without_nodes()
        if piece.is_first:
            yield pool_chunk(mapping.path.name, pools)
    instants = InstantReading(mapping.zone, mapping.time_format, (given.origin or EPOCH).timestamp())
    if not files:
        raise FormatError("there is no log beside the mapping", where=first(paths), allowed=EXPECTED)
    if piece.is_first and "request_id" not in mapping.columns:
        _refuse_copies(files, mapping)
    named = list(zip(files, names_apart(files), strict=True))
    for path, name in named[piece.first : piece.last]:
        yield from _read_file(path, name, piece, mapping, instants, ONLY_POOL if pools else None)


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """Whether instants are dates, and how those without a zone were read."""
    mapping = read_request_mapping(_mapping_file(paths))
    files, limits, notes = data_files(paths), {}, []
    if given.capacity:
        if len(mapping.without_nodes().columns) < len(mapping.columns):
            notes = ["The log is one pool of the capacity given: the nodes that it names are left out."]
        limits = {"decisions": "one pool: there was nothing to choose", "tiers": "one pool"}
    elif not _inventory(paths):
        limits = {"node_capacities": "no nodes.csv beside the log, and no capacity was given"}
    if mapping.says_waits:
        limits["true_waits"] = "waits are not logged: the mapping says when requests began"
    return describe(
        NAME,
        clock=RELATIVE_CLOCK if _counts_from_hidden_zero(files, mapping) else ABSOLUTE_CLOCK,
        limits=limits,
        notes=(
            f"Columns were read by the mapping {mapping.path.name}.",
            f"Instants that name no zone are of {mapping.time_zone}; days are days in UTC.",
            *notes,
        ),
        notices=[notice for each in _NOTICES for notice in each(files[0], mapping)] if files else [],
        **({"not_found": absent} if files and (absent := _absent_paths(files[0], mapping)) else {}),
    )


def _mapping_file(paths: Sequence[Path]) -> Path:
    return mapping_file(
        paths,
        "log",
        "evaluation/examples/requests holds mappings for Slurm, Kubernetes, PBS, HTCondor and others; "
        "logs_schema/formats/request_mapping.py has all keys",
    )


def _inventory(paths: Sequence[Path]) -> list[Path]:
    found = find_files(paths, (*LOGS, SUFFIX))
    return [path for path in found if INVENTORY.fullmatch(path.name)]


def _refuse_copies(files: Sequence[Path], mapping: RequestMapping) -> None:
    """FormatError where two files hold the same lines: requests that are named by them would count twice."""
    by_content: dict[str, Path] = {}
    times = Counter(path.stat().st_size for path in files)
    for path in files:
        # A header alone is an hour without jobs
        if times[path.stat().st_size] == 1 or len(first_lines(path, mapping)) < 2:
            continue
        if (other := by_content.setdefault(file_hash(path), path)) is not path:
            raise FormatError(
                f"{path.name} holds the same lines as {other.name}",
                where=f"{path}, {other}",
                allowed="every line once: without request_id requests are named by file and line",
                advice="move the copy away, or map a column to request_id",
            )


def _read_file(
    path: Path,
    name: str,
    piece: LogPiece,
    mapping: RequestMapping,
    instants: InstantReading,
    pool: str | None,
) -> Iterator[Item]:
    as_fields, num_skipped = field_reader(path, mapping)

    def parse_row(line_number: int, line: str) -> Row | None:
        if line_number <= num_skipped or not line.strip():
            return None
        return request_row(mapping, as_fields(line), instants, f"{name}:{line_number}", pool)

    lines = lines_of(path, mapping, piece.span)
    yield from parse_lines(lines, parse_row, REQUESTS, name, num_before=piece.num_before)


def _unit_notices(path: Path, mapping: RequestMapping) -> Iterator[str]:
    """For each column of instants or durations: that its first text is likely not what the mapping says."""
    as_fields, num_skipped = field_reader(path, mapping)
    lines = first_lines(path, mapping)[num_skipped:]
    for one in mapping.columns.values():
        if not (one.is_instant or one.column_unit == "s") or len(one.sources) != 1 or one.scale != 1.0:
            continue
        where = f"{one.column}, from {one.sources[0]} of {path.name}"
        for line in lines:
            try:
                text = _first_text(as_fields(line), one.sources[0], mapping)
            except BadRow:
                continue
            if text and not mapping.is_nothing(text) and (meant := meant_by(one, text)):
                notice = (
                    _value_notice(meant, where, one.unit or "s", mapping)
                    if one.is_instant
                    else duration_notice(meant, where, AMOUNT_UNITS["s"].get(one.unit or "s", 0.0))
                )
                if notice:
                    yield notice
                break


def _event_notices(path: Path, mapping: RequestMapping) -> Iterator[str]:
    """That the first lines tell of requests several times, each time with another arrival, as a log of events does."""
    as_fields, num_skipped = field_reader(path, mapping)
    instants, arrivals = InstantReading(mapping.zone, mapping.time_format), defaultdict(set)
    for number, line in enumerate(first_lines(path, mapping)[num_skipped:]):
        try:
            row = request_row(mapping, as_fields(line), instants, str(number), None)
        except BadRow:
            continue
        if row["request_id"]:
            arrivals[row["request_id"]].add(row["arrival"])
    num_again = sum(len(found) > 1 for found in arrivals.values())
    if num_again > MOST_AGAIN * len(arrivals):
        yield (
            f"{path.name}: of the first {len(arrivals):,} requests {num_again:,} have several lines with different "
            "arrivals, and one line of each is kept: a log of events has to be joined first, to a line a request with "
            "its arrival, start and finish (evaluation/examples/requests/google.toml has the SQL); where request_id is "
            "no identity, mend the mapping"
        )


def _meaning_notices(path: Path, mapping: RequestMapping) -> Iterator[str]:
    """That a pattern or the meanings of a status are of none of the first texts: these stay, or all mean one thing."""
    as_fields, num_skipped = field_reader(path, mapping)
    lines = first_lines(path, mapping)[num_skipped:]
    for one in mapping.columns.values():
        is_status = one.column == "status" and one.values and one.other is not None
        if len(one.sources) != 1 or one.is_amount or not (is_status or (one.pattern and one.other is None)):
            continue
        texts: set[str] = set()
        for line in lines:
            with suppress(BadRow):
                texts.add(_first_text(as_fields(line), one.sources[0], mapping))
        texts = {text for text in texts if text and not mapping.is_nothing(text)}
        where, shown = f"{one.column}, from {one.sources[0]} of {path.name}", first(sorted(texts))
        if one.pattern and texts and not any(one.matcher.fullmatch(text) for text in texts):
            yield f"{where}: the pattern matches none of the first texts as a whole, and they stay as they are: {shown}"
        elif is_status and texts and not any(meant_by(one, text) != one.other for text in texts):
            yield f"{where}: all of the first texts mean {one.other!r}, for values has none of them: {shown}"


_NOTICES = (_unit_notices, _event_notices, _meaning_notices)


def _absent_paths(path: Path, mapping: RequestMapping) -> list[str]:
    """Paths at which none of the first lines of JSON has anything: spelt wrongly, or of something rare."""
    if not is_json(path):
        return []
    lines = []
    for line in first_lines(path, mapping):
        try:
            lines.append(json_fields(line))
        except BadRow:
            continue
    sources = mapping.sources if lines else []
    absent = [source for source in sources if not any(_first_text(line, source, mapping) for line in lines)]
    lists = (
        (source, next(filter(None, (list_on_the_way(line, source) for line in lines)), ""))
        for source in absent
    )
    return [f"{source} ({inside} is a list)" if inside else source for source, inside in lists]


def _first_text(fields: Mapping[str, Any], source: str, mapping: RequestMapping) -> str:
    """The text in a column, of a list the first that says something; empty for none."""
    found = found_at(fields, source)
    parts = [text_of(part) for part in (found if isinstance(found, list) else [found])]
    return next((part for part in parts if not mapping.is_nothing(part)), "")


def _value_notice(text: str, where: str, unit: str, mapping: RequestMapping) -> str:
    """That a text is likely written otherwise than the mapping says, in words; empty where it is not."""
    if not mapping.time_format and (notice := unit_notice(text, unit, where, "unit")):
        return notice
    try:
        InstantReading(mapping.zone, mapping.time_format).read(text, "arrival", unit)
    except BadRow as bad:
        if bad.rule.startswith("not_an_instant"):
            way = f"time_format = {mapping.time_format!r}" if mapping.time_format else "ISO 8601 or a number"
            return (
                f"{where}: {text[:40]!r} is not written as {way}: "
                "name the form of instants as time_format (of strptime) in the mapping, or a pattern"
            )
    return ""


def _counts_from_hidden_zero(files: Sequence[Path], mapping: RequestMapping) -> bool:
    """Whether the first arrival (else start, else finish) that can be read is a number too small for one since 1970."""
    arrival = next(
        mapping.columns[name] for name in ("arrival", "start", "finish") if name in mapping.columns
    )
    if mapping.time_format or not files or not arrival.sources:
        return False
    as_fields, num_skipped = field_reader(files[0], mapping)
    for number, line in lines_of(files[0], mapping):  # nothing may be known of the first thousands
        if number <= num_skipped:
            continue
        try:
            text = _first_text(as_fields(line), arrival.sources[0], mapping)
            text = "" if mapping.is_nothing(text) else meant_by(arrival, text)
            if text:
                seconds = (
                    InstantReading(mapping.zone)
                    .read(text, "arrival", arrival.unit or "s", arrival.scale)
                    .first_s
                )
                return is_number(text) and seconds < LOOKS_LIKE_EPOCH_S
        except BadRow:
            continue
    return False
