"""One thread that asks the policy, so that a decision that takes too long never keeps an answer waiting."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
MAX_PENDING = 256
"""Questions that may wait for the policy."""


class Worker:
    """A daemon thread that runs jobs one after the other.

    A job whose future was cancelled (its deadline has passed) is skipped. A job that never returns keeps the thread;
    the process ends all the same.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[asyncio.Future, Callable] | None] = queue.SimpleQueue()
        self._busy_since_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
        self._thread.start()

    def stalled(self, patience_s: float) -> bool:
        """Whether the job in hand has taken longer than this, or too many wait."""
        begun_s = self._busy_since_s
        return self._jobs.qsize() >= MAX_PENDING or (
            begun_s is not None and time.monotonic() - begun_s > patience_s
        )

    def submit(self, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Queues a job; its result or exception arrives in the future, on the running event loop."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, job))
        return future

    def stop(self) -> None:
        """Lets the thread end after the jobs in its queue."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (asked := self._jobs.get()) is not None:
            future, job = asked
            if future.cancelled():
                continue
            self._busy_since_s = time.monotonic()
            try:
                result, error = job(), None
            except Exception as failure:  # whatever it is, it belongs to whoever asked
                result, error = None, failure
            self._busy_since_s = None
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return


def _settle(future: asyncio.Future, result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
