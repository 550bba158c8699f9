"""Signals that end commands: SIGTERM ends jobs as Ctrl-C does, and controllers after the step that is under way."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from evaluation.commands.statuses import INTERRUPTED, TERMINATED
from evaluation.jobs.interrupting import raising
from logs_schema.atomic_folders import abandon

STUCK_S = 10.0
"""Time after which SIGTERM ends a process whose main thread has not come back from compiled code."""

_OVER = b"\0"
"""Ends the thread that watches; no signal has this number."""


_watching = threading.Event()
"""Set while a thread watches."""


def _unwatched() -> None:
    """A forked child shares the pipe: its signals are not its parent's."""
    if _watching.is_set():
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_unwatched)


class Terminated(KeyboardInterrupt):
    """SIGTERM has come; raised in the main thread wherever it is, as Ctrl-C raises KeyboardInterrupt."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises `Terminated`, so that what is being written aside is removed and worker processes are ended.

    It is raised again where a library swallows it, as some do while they are imported or compile. Python raises nothing
    within compiled code, which may take a minute: a process that is still in it after `STUCK_S` ends there, when what
    it writes aside is removed. The handlers before are restored in the end. Outside of the main thread, where Python
    handles no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    both, reached, handle = (signal.SIGTERM, signal.SIGALRM), threading.Event(), raising(Terminated)

    def meet(*_: object) -> None:
        reached.set()
        handle()

    usual = {one: signal.signal(one, meet) or signal.SIG_DFL for one in both}
    try:
        with _watched(meet, reached):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for one, handler in usual.items():
            signal.signal(one, handler)


@contextmanager
def _watched(handler: Callable[..., None], reached: threading.Event) -> Iterator[None]:
    """A thread that sees SIGTERM where the main thread does not, as long as `handler` is there to meet it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_end_where_stuck, args=(reading, handler, reached), daemon=True)
    watcher.start()
    _watching.set()
    try:
        yield
    finally:
        _watching.clear()
        signal.set_wakeup_fd(before)
        reached.set()
        os.set_blocking(writing, True)
        os.write(writing, _OVER)
        watcher.join()
        os.close(reading)
        os.close(writing)


def _end_where_stuck(reading: int, handler: Callable[..., None], reached: threading.Event) -> None:
    """Ends the process where a SIGTERM that `handler` is to meet does not reach it in time."""
    while (number := os.read(reading, 1)) != _OVER:
        is_ours = number[0] == signal.SIGTERM and signal.getsignal(signal.SIGTERM) is handler
        if is_ours and not reached.wait(STUCK_S):
            abandon()
            with suppress(OSError):
                os.write(2, b"interrupted; run again to resume\n")
            os._exit(TERMINATED)


def leave_threads(status: int) -> None:
    """Ends the process at once where a signal has ended the command, or threads go on, such as a training beside a
    certificate.

    The interpreter would wait for none of them, and abort the process (SIGABRT) where one comes back from compiled code
    meanwhile; but it would wait, for minutes, until what a compiler has begun in threads of its own is done. What
    commands write aside is removed as they end; what these threads write, and what a signal met in the making, here.
    """
    if status in (INTERRUPTED, TERMINATED) or threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()  # frees the semaphores of worker processes: Python warns of those that are left
        abandon()
        os._exit(status)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that is set once SIGTERM or SIGINT has come; the handlers before are restored in the end."""
    over = threading.Event()
    usual = {one: signal.signal(one, lambda *_: over.set()) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield over
    finally:
        for one, handler in usual.items():
            signal.signal(one, handler)
