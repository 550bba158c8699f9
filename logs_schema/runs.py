"""An external merge sort by time: rows in any order go in, bounded windows of ascending time come out.

Rows are gathered into runs of about `run_bytes`, each sorted by time and written to a file of small batches
with the first time of every batch remembered. Coming back, one batch at a time is loaded from the run that
lags furthest, and all loaded rows earlier than everything not yet loaded form the next window. Memory is one
run going in; coming out, one batch per overlapping run plus one window, however the rows were ordered and
however many fall on a day. Only rows that share one instant are never separated.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from logs_schema.columns import TableSpec
from logs_schema.ordering import compact_labels, times_us

RUN_BYTES = 32 << 20
BATCH_ROWS = 8_192
WINDOW_ROWS = 131_072
_NEVER = np.iinfo(np.int64).max


class Runs:
    """Rows of one table, kept on disk as runs sorted by time.

    Args:
        folder: Existing folder for the run files.
        spec: The table's declaration.
        run_bytes: Size of a run in memory.
    """

    def __init__(self, folder: Path, spec: TableSpec, run_bytes: int = RUN_BYTES) -> None:
        self.folder, self.spec, self.run_bytes = folder, spec, run_bytes
        self.runs: list[RunFile] = []
        self._gathered: list[pa.Table] = []
        self._num_bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Takes rows with at least the table's deciding instant; columns may differ from call to call."""
        if rows.num_rows:
            self._gathered.append(rows)
            self._num_bytes += rows.nbytes
        if self._num_bytes >= self.run_bytes:
            self._spill()

    def windows(self, window_rows: int = WINDOW_ROWS) -> Iterator[pa.Table]:
        """All rows as tables of at least `window_rows` rows (but the last), disjoint, ascending in time."""
        self._spill()
        yield from windows_of(self.runs, window_rows)

    def _spill(self) -> None:
        if not self._gathered:
            return
        rows = pa.concat_tables(self._gathered, promote_options="permissive")
        self._gathered, self._num_bytes = [], 0
        rows = rows.unify_dictionaries().combine_chunks()
        times = times_us(self.spec, rows)
        if (np.diff(times) < 0).any():
            order = np.argsort(times, kind="stable")
            rows, times = rows.take(order), times[order]
        file = self.folder / f"run-{len(self.runs)}.arrows"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
            for first in range(0, rows.num_rows, BATCH_ROWS):
                writer.write_table(compact_labels(rows.slice(first, BATCH_ROWS)))
        self.runs.append(RunFile(file, self.spec, times[::BATCH_ROWS].tolist()))


def windows_of(runs: Sequence["RunFile"], window_rows: int = WINDOW_ROWS) -> Iterator[pa.Table]:
    """All rows of some runs as `Runs.windows` gives them."""
    runs = list(runs)
    while runs:
        lagging = min(runs, key=lambda run: run.frontier)
        if lagging.frontier != _NEVER:
            lagging.load()
        bound = min(run.frontier for run in runs)
        if bound == _NEVER or sum(run.num_before(bound) for run in runs) >= window_rows:
            pieces = [piece for run in runs for piece in run.before(bound)]
            if pieces:
                yield pa.concat_tables(pieces, promote_options="permissive")
            runs = [run for run in runs if not run.exhausted]


@dataclass
class RunFile:
    """One run file while it is read back, and removed, unless it `keeps`.

    `first_times` holds the first time of every batch; `renumbered` is done to every batch that is read.
    """

    file: Path
    spec: TableSpec
    first_times: list[int]
    num_loaded: int = 0
    loaded: list[tuple[np.ndarray, pa.Table]] = field(default_factory=list)
    reader: pa.RecordBatchReader | None = None
    keeps: bool = False
    renumbered: Callable[[pa.Table], pa.Table] = lambda rows: rows

    @property
    def frontier(self) -> int:
        """The earliest time not loaded yet."""
        return self.first_times[self.num_loaded] if self.num_loaded < len(self.first_times) else _NEVER

    @property
    def exhausted(self) -> bool:
        """Whether all its rows were taken."""
        return self.frontier == _NEVER and not self.loaded

    def load(self) -> None:
        """Loads the next batch."""
        if self.reader is None:
            self.reader = pa.ipc.open_stream(pa.OSFile(str(self.file)))
        rows = self.renumbered(pa.Table.from_batches([self.reader.read_next_batch()]))
        self.loaded.append((times_us(self.spec, rows), rows))
        self.num_loaded += 1
        if self.frontier == _NEVER:
            self.reader = None
            if not self.keeps:
                self.file.unlink()

    def num_before(self, bound: int) -> int:
        """Loaded rows before an instant."""
        return sum(int(np.searchsorted(times, bound)) for times, _ in self.loaded)

    def before(self, bound: int) -> list[pa.Table]:
        """Takes the loaded rows before an instant."""
        pieces, left = [], []
        for times, rows in self.loaded:
            cut = len(times) if bound == _NEVER else int(np.searchsorted(times, bound))
            if cut:
                pieces.append(rows.slice(0, cut))
            if cut < len(times):
                left.append((times[cut:], rows.slice(cut)))
        self.loaded = left
        return pieces
