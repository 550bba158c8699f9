"""Pieces of a log: all of it where that is little, else stretches spread evenly over its days.

What a fit takes grows with what it looks at, so it looks at no more than some number of requests, however many there
are. Of more, stretches of consecutive requests are taken, as many from every row group as its share of the rows; of
more than `MAX_GROUPS` row groups evenly many are looked into, of fewer where their stretches would be short. The
stretches of one row group after the other begin at multiples of the golden section, so that all times of day are looked
at; of a few large days several are taken from a row group. Nothing is drawn: the same archive gives the same pieces.

With every piece come the earlier requests that were still in flight at its first arrival. They are looked for up to
`LOOKBACK_DAYS` back, in those row groups alone whose latest finish is not too early.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive
from logs_schema.implied_times import with_implied_times
from logs_schema.row_groups import RowGroup

MAX_GROUPS, MIN_GROUPS, LEAST_STRETCH = 64, 16, 1_024
"""Row groups looked into at most; down to so few where stretches would be shorter than that."""
LOOKBACK_DAYS = 60
GOLDEN = 0.6180339887498949
TABLE = "requests"
SECOND = dt.timedelta(seconds=1)
Kept = dict[tuple[str, int], pa.Table]
"""By file and number of their row group: the rows of it that last."""


def pieces(
    archive: Archive,
    days: Sequence[dt.date],
    *,
    most: int | None,
    columns: Sequence[str],
    each: int | None = None,
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Requests of some days, one piece of them in memory at a time.

    Args:
        archive: The log archive.
        days: Days with requests, ascending.
        most: Requests looked at, about at most; all of them, in one piece, if None.
        columns: Of the table `requests`; `arrival` and `finish` among them.
        each: Requests of a stretch, about; None: one stretch of every row group, however long.

    Returns:
        Rows sorted by arrival, with the times that their run times imply, and a mask [rows] of those of the piece; the
        others were in flight when it began.
    """
    total = archive.num_rows_on(TABLE, days)
    if most is None or total <= most:
        rows = archive.read(TABLE, days=days, columns=columns)
        begins = dt.datetime.combine(min(days), dt.time(), dt.UTC)
        yield _with_earlier(in_flight(_earlier(archive, min(days)), begins, columns), rows)
        return
    groups = archive.row_groups(TABLE, days=days)
    chosen = _evenly(len(groups), min(MAX_GROUPS, max(MIN_GROUPS, most // LEAST_STRETCH)))
    share, number = min(1.0, most / sum(groups[index].num_rows for index in chosen)), 0
    others = [one for one in _earlier(archive, max(days), min(days)) if one.day not in days]
    kept: Kept = {}
    for index in chosen:
        rows, day = groups[index].read(columns), groups[index].day or min(days)
        near = [one for one in groups[:index] if one.day is None or (day - one.day).days <= LOOKBACK_DAYS]
        before = [one for one in others if one.day and 0 < (day - one.day).days <= LOOKBACK_DAYS] + near
        num_parts = 1 if each is None else max(1, round(share * rows.num_rows / each))
        edges = np.linspace(0, rows.num_rows, num_parts + 1).astype(int).tolist()
        for begin, end in pairwise(edges):
            length = max(1, int(share * (end - begin)))
            first = begin + int(number * GOLDEN % 1.0 * (end - begin - length + 1))
            # A slice would keep the whole row group
            piece = rows.take(pa.array(range(first, first + length)))
            ahead, begins = rows.slice(0, first), piece["arrival"][0].as_py()
            held = in_flight(before, begins, columns, kept)
            yield _with_earlier([*held, ahead.filter(_lasts(ahead, begins))], piece)
            number += 1


def in_flight(
    groups: Sequence[RowGroup],
    begins: dt.datetime,
    columns: Sequence[str],
    kept: Kept | None = None,
) -> list[pa.Table]:
    """Of the requests of some row groups those known to end at a moment or later.

    Args:
        groups: Of the table `requests`.
        begins: The moment.
        columns: What is wanted of them, `finish` among it.
        kept: What earlier calls found, for moments that were not later: so each row group is read once, however long
            some requests last.
    """
    found = []
    for one in groups:
        if one.latest.get("finish", begins - SECOND) >= begins:
            name = one.file, one.number
            rows = kept[name] if kept and name in kept else one.read(columns)
            lasting = rows.filter(_lasts(rows, begins))
            if kept is not None:
                kept[name] = lasting if lasting.num_rows else rows.schema.empty_table()
            found.append(lasting)
    return found


def _earlier(archive: Archive, day: dt.date, since: dt.date | None = None) -> list[RowGroup]:
    """Row groups of up to `LOOKBACK_DAYS` before a day, or before every day from `since` on."""
    first = (since or day) - dt.timedelta(days=LOOKBACK_DAYS)
    return archive.row_groups(TABLE, days=[one for one in archive.days(TABLE) if first <= one < day])


def _evenly(count: int, most: int) -> list[int]:
    """Indices of at most so many of some things, evenly among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def _lasts(earlier: pa.Table, begins: dt.datetime) -> pa.ChunkedArray:
    moment = pa.scalar(begins, pa.timestamp("us", tz="UTC"))
    return pc.fill_null(pc.greater_equal(earlier["finish"], moment), False)


def _with_earlier(earlier: Sequence[pa.Table], rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
    held = [part for part in earlier if part.num_rows]  # an empty part may hold on to what it was cut from
    tables = [part.unify_dictionaries() for part in (*held, rows)]
    table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    return with_implied_times(table), np.arange(table.num_rows) >= table.num_rows - rows.num_rows
