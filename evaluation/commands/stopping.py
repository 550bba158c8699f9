"""Commands that run until they are stopped: SIGTERM and Ctrl-C end them after the step that is under way."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
