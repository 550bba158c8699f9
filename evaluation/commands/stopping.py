"""Signals that end commands: SIGTERM ends jobs as Ctrl-C does, and controllers after the step that is under way."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """SIGTERM has come; raised in the main thread wherever it is, as Ctrl-C raises KeyboardInterrupt."""


def _terminate(*_: object) -> None:
    raise Terminated


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises `Terminated`, so that what is being written aside is removed and worker processes are ended.

    The handler before is restored in the end. Outside of the main thread, where Python handles no signals, nothing
    changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = signal.signal(signal.SIGTERM, _terminate) or signal.SIG_DFL
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def leave_threads(status: int) -> None:
    """Ends the process at once where threads go on, such as a training beside a certificate.

    The interpreter would wait for none of them, and abort the process (SIGABRT) where one comes back from compiled code
    meanwhile. What commands write aside has been removed before.
    """
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
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
