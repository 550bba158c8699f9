"""Signals that end commands: SIGTERM ends jobs as Ctrl-C does, and controllers after the step that is under way."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from evaluation.commands.statuses import INTERRUPTED, TERMINATED
from evaluation.jobs.interrupting import raising


class Terminated(KeyboardInterrupt):
    """SIGTERM has come; raised in the main thread wherever it is, as Ctrl-C raises KeyboardInterrupt."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises `Terminated`, so that what is being written aside is removed and worker processes are ended.

    It is raised again where a library swallows it, as some do while they are imported or compile. The handlers before
    are restored in the end. Outside of the main thread, where Python handles no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    both = signal.SIGTERM, signal.SIGALRM
    usual = {one: signal.signal(one, raising(Terminated)) or signal.SIG_DFL for one in both}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for one, handler in usual.items():
            signal.signal(one, handler)


def leave_threads(status: int) -> None:
    """Ends the process at once where a signal has ended the command, or threads go on, such as a training beside a
    certificate.

    The interpreter would wait for none of them, and abort the process (SIGABRT) where one comes back from compiled code
    meanwhile; but it would wait, for minutes, until what a compiler has begun in threads of its own is done. What
    commands write aside has been removed before.
    """
    if status in (INTERRUPTED, TERMINATED) or threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()  # frees the semaphores of worker processes: Python warns of those that are left
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
