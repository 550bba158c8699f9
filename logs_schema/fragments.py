"""A part of a raw log on its way into an archive: read and checked alone, its good rows sorted into days.

Parts are read by independent tasks. Whatever depends on the parts before (sequence numbers, which
row of a key came first, what came out of order) is kept so that it can be settled when all parts are read.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from logs_schema.accounting import LineTally
from logs_schema.columns import TableSpec
from logs_schema.formats.reading import Chunk, Item, Reject
from logs_schema.ordering import compact_labels, days_of, times_us
from logs_schema.quarantine import BadRecord, QuarantineWriter
from logs_schema.runs import BATCH_ROWS, RunFile
from logs_schema.table_builder import TableBuilder
from logs_schema.tables import TABLES

KIND = "fragment"
FACTS, QUARANTINED = "fragment.json", "quarantine.parquet"
KEYS, IN_ORDER = "keys", "in-order"


@dataclass(frozen=True)
class DayRun:
    """Rows of one day of a table in one part of a log, sorted by time.

    Attributes:
        day: Days since 1970; 0 in a table without days.
        file: Below the fragment's folder.
        first_times: First time of every batch of the file.
    """

    day: int
    file: str
    first_times: tuple[int, ...]


@dataclass(frozen=True)
class TableFragment:
    """What one part of a log holds of a table.

    Attributes:
        num_numbered: Rows that have a sequence number, good and bad ones.
        num_rejects: Lines that were no rows.
        num_out_of_order: Good rows after a row of a later instant of the same part.
        latest_us: The latest instant of a good row.
        origins: (first sequence number, source, row there), ascending.
        runs: The good rows.
    """

    num_numbered: int
    num_rejects: int
    num_out_of_order: int
    latest_us: int
    origins: tuple[tuple[int, str, int], ...]
    runs: tuple[DayRun, ...]


class _FragmentTable(TableBuilder):
    """A table's rows of one part; instants in order are kept, to be compared with the parts before."""

    def _count_out_of_order(self, instants_us: np.ndarray) -> None:
        latest_us = np.maximum.accumulate(np.append(self._latest_us, instants_us))[:-1]
        with open(self._runs.folder / IN_ORDER, "ab") as stream:
            stream.write(instants_us[instants_us >= latest_us].astype(np.int64).tobytes())
        super()._count_out_of_order(instants_us)

    def sorted_into_days(self, num_rejects: int) -> TableFragment:
        """Writes the good rows day by day; returns what was written."""
        return TableFragment(
            num_numbered=self.num_numbered,
            num_rejects=num_rejects,
            num_out_of_order=self.num_out_of_order,
            latest_us=int(self._latest_us),
            origins=tuple(self._origins),
            runs=tuple(run for window in self._runs.windows() for run in self._day_runs(window)),
        )

    def _day_runs(self, window: pa.Table) -> Iterable[DayRun]:
        times = times_us(self.spec, window)
        order = np.argsort(times, kind="stable")
        window, times = window.take(pa.array(order)), times[order]
        days = days_of(times)
        for day in np.unique(days).tolist():
            here = slice(*np.searchsorted(days, (day, day + 1)).tolist())
            rows = window.slice(here.start, here.stop - here.start).unify_dictionaries().combine_chunks()
            file = self._runs.folder / f"day-{day}-{times[here.start]}.arrows"
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
                for first in range(0, rows.num_rows, BATCH_ROWS):
                    writer.write_table(compact_labels(rows.slice(first, BATCH_ROWS)))
            yield DayRun(day, f"{self.spec.name}/{file.name}", tuple(times[here][::BATCH_ROWS].tolist()))


def write_fragment(folder: Path, items: Iterable[Item]) -> None:
    """Reads one part of a log into an empty folder."""
    tally, parts, num_rejects = LineTally(), dict[str, _FragmentTable](), dict[str, int]()
    quarantine = QuarantineWriter(folder / QUARANTINED)

    def part(table: str) -> _FragmentTable:
        if table not in parts:
            spec = next(spec for spec in TABLES if spec.name == table)
            parts[table] = _FragmentTable(spec, folder / table, quarantine)
        return parts[table]

    for item in items:
        tally.add(item)
        if isinstance(item, Chunk):
            numbers = item.first_row
            if not isinstance(numbers, np.ndarray):
                numbers = np.arange(numbers, numbers + item.rows.num_rows)
            part(item.table).write(item.rows, item.source, numbers, item.raw)
        elif isinstance(item, Reject):
            part(item.table)
            num_rejects[item.table] = num_rejects.get(item.table, 0) + 1
            quarantine.add([BadRecord(item.table, item.rule, item.source, item.row, item.raw)])
    quarantine.close()
    tables = {name: asdict(one.sorted_into_days(num_rejects.get(name, 0))) for name, one in parts.items()}
    (folder / FACTS).write_text(json.dumps({"tally": asdict(tally), "tables": tables}))


def read_fragment(folder: Path) -> tuple[LineTally, dict[str, TableFragment]]:
    """What `write_fragment` recorded of a part: its lines, and what it holds of every table."""
    kept: dict[str, Any] = json.loads((folder / FACTS).read_text())
    tables = {}
    for name, entry in kept["tables"].items():
        runs = tuple(DayRun(run["day"], run["file"], tuple(run["first_times"])) for run in entry["runs"])
        origins = tuple((begun, source, row) for begun, source, row in entry["origins"])
        tables[name] = TableFragment(**entry | {"runs": runs, "origins": origins})
    return LineTally(**kept["tally"]), tables


def run_file(folder: Path, run: DayRun, spec: TableSpec) -> RunFile:
    """A run as it is read back."""
    return RunFile(folder / run.file, spec, list(run.first_times), keeps=True)
