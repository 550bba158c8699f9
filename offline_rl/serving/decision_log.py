"""The decision log: every decision as a row of the table `requests`, propensity included, written in the background.

    LOG/requests/requests-*.csv, .csv.gz       `schedtwin import native LOG/requests --out ARCHIVE` reads them
    LOG/decisions/decisions-*.csv, .csv.gz     how each decision came about, and what the policy would have done

A request has one row when it is decided (`unknown`, or `waiting` where outcomes are reported), one when it starts and
one when it ends; a later row has more columns, and replaces the earlier one in the archive.

A decision never waits for the log. Rows go through a bounded queue; the thread writes every `FLUSH_S` seconds and
flushes to the disk. So kill -9 loses at most the rows of the last `FLUSH_S` seconds (and of one write in progress).
While the disk cannot be written, up to `MAX_PENDING` rows wait; beyond that the newest are lost, and counted. A folder
that is deleted is made again, with the rows of the open files.
"""

import queue
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from offline_rl.serving.journal import Cell, Journal
from offline_rl.serving.metrics import Metrics

TABLES = ("requests", "decisions")
FLUSH_S = 0.2
"""Seconds between two writes: what kill -9 may lose."""
MAX_PENDING = 100_000
"""Rows that wait while the disk cannot be written."""
RETRY_S = 1.0
"""Seconds between two tries after a failure."""

REQUEST_COLUMNS = (
    "request_id", "arrival", "site", "scenario", "service", "agent", "queue", "cpu_cores", "memory_gib", "gpus",
    "num_nodes", "requested_run_s", "input_mib", "output_mib", "deadline_s", "candidates", "decided", "offered_node",
    "propensity", "accepted", "session", "start", "finish", "ran_node", "status",
)  # fmt: skip
"""Columns of `requests` that the server fills; `status` is last, because a part of a status is none."""
DECISION_COLUMNS = (
    "request_id", "decided", "offered_node", "arm", "reason", "policy_node", "fallback_node", "propensity",
    "num_candidates", "num_unknown_labels", "num_out_of_range", "took_s", "bundle",
)  # fmt: skip


class DecisionLog:
    """Writes rows in the background.

    Args:
        folder: LOG; None keeps no log.
        metrics: Where lost rows and failed writes are counted.
        max_pending: Rows that may wait.
    """

    def __init__(self, folder: Path | None, metrics: Metrics, max_pending: int = MAX_PENDING) -> None:
        self.folder, self.metrics, self.max_pending = folder, metrics, max_pending
        self._queue: queue.SimpleQueue[tuple[int, Sequence[Cell]]] = queue.SimpleQueue()
        self._journals: list[Journal | None] = [None, None]
        self._waiting: list[list[Sequence[Cell]]] = [[], []]
        self._stop = threading.Event()
        self._failing = ""
        self._thread = threading.Thread(target=self._run, name="decision-log", daemon=True)
        if folder is not None:
            self._thread.start()

    def request(self, row: Sequence[Cell]) -> None:
        """Takes a row of `REQUEST_COLUMNS`; never waits."""
        self._take(0, row)

    def decision(self, row: Sequence[Cell]) -> None:
        """Takes a row of `DECISION_COLUMNS`; never waits."""
        self._take(1, row)

    def close(self, timeout_s: float = 10.0) -> None:
        """Writes what waits and compresses the files; gives up after `timeout_s` and counts what is lost."""
        if self.folder is None or self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(timeout_s)
        num_left = self._queue.qsize() + sum(map(len, self._waiting))
        if num_left:
            self.metrics.log_rows_lost.inc(num_left)
            self._print(f"{num_left} rows of the decision log are lost")

    def _take(self, table: int, row: Sequence[Cell]) -> None:
        if self.folder is None:
            return
        if self._queue.qsize() + sum(map(len, self._waiting)) >= self.max_pending:
            self.metrics.log_rows_lost.inc()
        else:
            self._queue.put((table, row))

    def _run(self) -> None:
        while not self._stop.wait(RETRY_S if self._failing else FLUSH_S):
            self._write()
        self._write()
        for journal in filter(None, self._journals):
            try:
                journal.close()
            except OSError as error:
                self._note_unclosed(error)

    def _write(self) -> None:
        for _ in range(self._queue.qsize()):
            table, row = self._queue.get()
            self._waiting[table].append(row)
        for table, rows in enumerate(self._waiting):
            if rows:
                self._write_table(table, rows)
        self.metrics.log_rows_pending.set(sum(map(len, self._waiting)))

    def _write_table(self, table: int, rows: list[Sequence[Cell]]) -> None:
        assert self.folder is not None
        name, columns = TABLES[table], (REQUEST_COLUMNS, DECISION_COLUMNS)[table]
        try:
            journal = self._journals[table]
            if journal is None:
                journal = self._journals[table] = Journal(self.folder / name, name, columns)
            num_rewritten = journal.num_rewritten
            journal.write(rows)
        except OSError as error:
            self._note(error)
            return
        self.metrics.log_rows_written.inc(len(rows))
        rows.clear()
        if journal.close_error is not None:
            self._note_unclosed(journal.close_error)
        if journal.num_rewritten > num_rewritten:
            self.metrics.log_files_rewritten.inc()
            self._print(
                f"a file of the decision log was deleted and has been written again: {journal.folder}"
            )
        if self._failing:
            self._failing = ""
            self.metrics.log_writable.set(1)
            self._print("the decision log can be written again")

    def _note(self, error: OSError) -> None:
        self.metrics.log_errors.inc()
        self.metrics.log_writable.set(0)
        if str(error) != self._failing:
            self._failing = str(error)
            self._print(f"the decision log cannot be written, decisions go on: {error}")

    def _note_unclosed(self, error: OSError) -> None:
        self.metrics.log_errors.inc()
        self._print(
            f"a file of the decision log could not be closed and compressed, and stays as it is: {error}"
        )

    def _print(self, sentence: str) -> None:
        print(f"schedtwin serve: {sentence}", file=sys.stderr, flush=True)
