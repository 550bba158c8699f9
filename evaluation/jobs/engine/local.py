"""Tasks in processes of this machine.

Processes are spawned (no fork: JAX has threads). No more tasks are submitted than there are processes, so a task's
deadline begins with its start. When a process dies, the tasks that were running are run again one at a time, so that
the next death is attributed to a single task. Processes that are to end get SIGTERM first, which interrupts a task as
Ctrl-C does: what it writes aside is removed.
"""

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from types import TracebackType

from evaluation.jobs.engine.errors import MAX_LOSSES, late, lost
from evaluation.jobs.interrupting import raising
from logs_schema.atomic_folders import abandon
from logs_schema.mapping import Item, Result
from logs_schema.progress import Progress

GRACE_S = 5.0
"""Seconds that a task has to end after SIGTERM."""
LONGEST_WAIT_S = 3600.0
"""Of one call of the operating system, which takes no wait without an end."""
_TERMINATED = 143
_at_work: list[object] = []
"""In a worker: the item of the task that is running."""


class LocalTasks:
    """A `TaskMap` over processes; one worker is this process itself, unless tasks run apart.

    Args:
        workers: Number of processes.
        deadline_s: Most seconds that a task may take; not enforced in this process itself.
        progress: Progress display.
        apart: Whether one worker is a process too, so that a task can die, or be ended for its deadline, alone.
    """

    def __init__(self, workers: int, deadline_s: float, progress: Progress, *, apart: bool = False) -> None:
        self.workers, self.deadline_s, self.progress, self.apart = workers, deadline_s, progress, apart
        self._pool: ProcessPoolExecutor | None = None
        self._num_processes = 0

    def __enter__(self) -> "LocalTasks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(kills=kind is not None)

    def __call__(
        self, task: Callable[[Item], Result], items: Sequence[Item], name: str = ""
    ) -> Iterator[Result]:
        """The results in the order of the items."""
        with self.progress.stage(name, total=len(items), unit="tasks") as stage:
            if self.workers == 1 and not self.apart:
                results = []
                for item in items:
                    results.append(task(item))
                    stage(len(results))
                return iter(results)
            return iter(self._run(task, items, name, stage))

    def _run(
        self, task: Callable[[Item], Result], items: Sequence[Item], name: str, stage: Callable[[float], None]
    ) -> list[Result]:
        self._widen(min(self.workers, len(items)))
        results: dict[int, Result] = {}
        waiting, losses = deque(range(len(items))), Counter[int]()
        running: dict[Future[Result], tuple[int, float]] = {}
        while waiting or running:
            try:
                while waiting and len(running) < self._most_beside(waiting[0], running.values(), losses):
                    future = self._submit(task, items[waiting[0]])
                    running[future] = waiting.popleft(), time.monotonic() + self.deadline_s
                first_s = min(until_s for _, until_s in running.values())
                left_s = max(0.0, first_s - time.monotonic())
                done, _ = wait(running, min(left_s, LONGEST_WAIT_S), FIRST_COMPLETED)
                if not done and left_s <= LONGEST_WAIT_S:
                    index = min(running.values(), key=lambda one: one[1])[0]
                    self._end(kills=True)
                    raise late(name, items[index], self.deadline_s)
                for future in done:
                    results[running[future][0]] = future.result()
                    del running[future]
                stage(len(results))
            except BrokenProcessPool:
                died = sorted(index for future, (index, _) in running.items() if not _has_result(future))
                results |= {running[future][0]: future.result() for future in running if _has_result(future)}
                losses.update(died)
                self._end(kills=True)
                running.clear()
                if max(losses.values(), default=0) >= MAX_LOSSES:
                    raise lost(name, [items[index] for index in died]) from None
                waiting.extendleft(reversed(died))
        return [results[index] for index in range(len(items))]

    def _submit(self, task: Callable[[Item], Result], item: Item) -> Future[Result]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._num_processes, get_context("spawn"), _meet_sigterm)
            # All processes start with the first task: the pool's thread must not meet one that starts (a
            # dictionary that grows) while it ends a broken pool.
            self._pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
        return self._pool.submit(_run_task, task, item)

    def _most_beside(
        self, index: int, running: Iterable[tuple[int, float]], losses: Mapping[int, int]
    ) -> int:
        """How many tasks may run with that of the index: a task whose worker died runs alone."""
        return 1 if any(losses[one] for one in (index, *(other for other, _ in running))) else self.workers

    def _widen(self, num_processes: int) -> None:
        """Ends the pool where it has fewer processes than are needed now; the next task starts another."""
        if num_processes > self._num_processes:
            self._end(kills=False)
            self._num_processes = num_processes

    def _end(self, *, kills: bool) -> None:
        if self._pool is None:
            return
        processes = list((self._pool._processes or {}).values()) if kills else []
        for process in processes:
            process.terminate()
        self._pool.shutdown(wait=not kills, cancel_futures=True)
        until_s = time.monotonic() + GRACE_S
        for process in processes:
            process.join(max(0.0, until_s - time.monotonic()))
        for process in processes:
            process.kill()
        self._pool.shutdown()
        self._pool = None


class _Terminated(KeyboardInterrupt):
    """SIGTERM has come to a worker with a task."""


def _meet_sigterm() -> None:
    """In a worker, once: SIGTERM ends the process, after it has interrupted the task that may be running. So does the
    end of the process that it works for, however that died: its queue would be waited at for ever."""
    interrupt = raising(_Terminated)

    def end(*_: object) -> None:
        if not _at_work:
            os._exit(_TERMINATED)
        interrupt()

    for one in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(one, end)
    if (parent := parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """Ends this process as SIGTERM does once another one has ended, also where its main thread is in compiled code."""
    connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    abandon()
    os._exit(_TERMINATED)


def _run_task(task: Callable[[Item], Result], item: Item) -> Result:
    _at_work.append(item)
    try:
        return task(item)
    except _Terminated:
        abandon()
        os._exit(_TERMINATED)
    finally:
        _at_work.clear()


def _has_result(future: Future[Result]) -> bool:
    return future.done() and future.exception() is None
