"""One thread that runs the policy, so that a decision that takes too long never keeps an answer waiting.

A decision usually takes a fraction of a millisecond. So the first caller waits for it without doing anything else
(`SIT_S`): two threads that both compute would hand the interpreter's lock to and fro, and a hand-over costs more than
the decision. Only what takes longer is waited for beside other work.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MAX_PENDING = 256
"""Questions that may wait for the policy."""
SIT_S = 0.004
"""How long the event loop sits and waits for a decision."""
RETRY_S, MOST_RETRY_S = 60.0, 3600.0
"""A job that runs longer is taken to hang: its thread is left behind, and another one takes the next job. Where that
hangs as well, it is left after twice the time, and so on up to the most."""
LINGER_S = 1.0
"""How long a thread that is to end waits for a job of whoever took it for the one in use a moment ago."""


class _Job:
    """A question on its way: `done` is locked until there is a result or an error."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work, self.done = work, threading.Lock()
        self.done.acquire()
        self.result: Any = None
        self.error: Exception | None = None
        self.future: asyncio.Future | None = None
        self.dropped = False


class _Thread:
    """A daemon thread, its jobs, and since when it has been at one."""

    def __init__(self, on_done: Callable[["_Thread"], None]) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.busy_since_s: float | None = None
        self._on_done = on_done
        threading.Thread(target=self._run, name="policy", daemon=True).start()

    def _run(self) -> None:
        patience_s = None
        while True:
            try:
                job = self.jobs.get(timeout=patience_s)
            except queue.Empty:
                return
            if job is None:
                patience_s = LINGER_S
                continue
            if job.dropped:
                continue
            self.busy_since_s = time.monotonic()
            try:
                job.result = job.work()
            except Exception as error:  # whatever it is, it is raised in the caller
                job.error = error
            self.busy_since_s = None
            self._on_done(self)
            job.done.release()
            if job.future is not None:
                with suppress(RuntimeError):  # its loop is closed: no caller waits any more
                    job.future.get_loop().call_soon_threadsafe(_wake, job.future)


class Worker:
    """A daemon thread that runs jobs one after the other.

    A job that was given up before its turn is skipped. A job that never returns keeps its thread, which is left behind
    after a while (`RETRY_S`); the process ends all the same.

    Args:
        on_hang: Called where a thread is left behind, with the seconds that its job has run.
    """

    def __init__(self, on_hang: Callable[[float], None] = lambda ran_s: None) -> None:
        self._on_hang, self.retry_s = on_hang, RETRY_S
        self._thread = _Thread(self._done)

    def stalled(self, patience_s: float) -> bool:
        """Whether the job in hand has taken longer than this, or too many wait; not where it is taken to hang, for then
        another thread is ready."""
        begun_s = self._thread.busy_since_s
        ran_s = 0.0 if begun_s is None else time.monotonic() - begun_s
        if ran_s > max(self.retry_s, patience_s):
            self.stop()
            self._thread, self.retry_s = _Thread(self._done), min(2.0 * self.retry_s, MOST_RETRY_S)
            self._on_hang(ran_s)
            return False
        return ran_s > patience_s or self._thread.jobs.qsize() >= MAX_PENDING

    def _done(self, thread: _Thread) -> None:
        if thread is self._thread:
            self.retry_s = RETRY_S

    async def run(self, work: Callable[[], Any], timeout_s: float) -> Any:
        """The result of `work`, which runs in the thread.

        Raises:
            TimeoutError: There is none in time.
            Exception: Whatever `work` raises.
        """
        begun_s = time.monotonic()
        thread, job = self._thread, _Job(work)
        sits = thread.busy_since_s is None and thread.jobs.empty()
        thread.jobs.put(job)
        if not job.done.acquire(timeout=max(0.0, min(SIT_S, timeout_s)) if sits else 0.0):
            await self._wait(job, begun_s + timeout_s)
        if job.error is not None:
            raise job.error
        return job.result

    def stop(self) -> None:
        """Lets the thread end after the jobs in its queue."""
        self._thread.jobs.put(None)

    async def _wait(self, job: _Job, until_s: float) -> None:
        """Returns when a job is done, or raises TimeoutError; other work goes on meanwhile."""
        job.future = asyncio.get_running_loop().create_future()
        if job.done.acquire(blocking=False):  # it was done before the thread could see the future
            return
        try:
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                await job.future
        finally:
            job.dropped = True


def _wake(future: asyncio.Future) -> None:
    if not future.done():
        future.set_result(None)
