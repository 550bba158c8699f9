"""Signals that raise an exception wherever a program is, and again where a library swallows it, as some do in
callbacks, while they are imported or compile."""

import signal
import sys
from collections.abc import Callable

AGAIN_S = 1.0
"""Time after which what was raised, and swallowed, is raised again."""


def raising(kind: type[BaseException]) -> Callable[..., None]:
    """A handler, of SIGALRM too, that raises `kind` every `AGAIN_S` until it is handled: the program cleans up then."""

    def handle(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
        if not _is_handled(kind, sys.exc_info()[1]):
            raise kind

    return handle


def _is_handled(kind: type[BaseException], error: BaseException | None) -> bool:
    """Whether an exception that is being handled is of a kind, or came while handling one."""
    while error is not None and not isinstance(error, kind):
        error = error.__context__
    return error is not None
