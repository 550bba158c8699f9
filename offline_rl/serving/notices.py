"""Lines of the server on standard error: one line of a kind, not one for every caller that does the same."""

import logging
import sys
import time
from collections.abc import Callable

AGAIN_S = 60.0
"""Seconds until a kind of line may stand there again."""
MAX_KINDS = 100
"""Kinds of lines that are remembered; beyond that all are forgotten, and may be written again."""


class Notices:
    """Writes lines, each kind at most once in `AGAIN_S`, and how many were left out since.

    Args:
        clock: Seconds, rising.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._written: dict[str, tuple[float, int]] = {}

    def due(self, kind: str) -> int | None:
        """How many lines of a kind were left out since the last one; None while it may not be written again."""
        now_s = self._clock()
        written_s, num_left_out = self._written.get(kind, (-AGAIN_S, 0))
        if now_s - written_s < AGAIN_S:
            self._written[kind] = written_s, num_left_out + 1
            return None
        if len(self._written) >= MAX_KINDS:
            self._written.clear()
        self._written[kind] = now_s, 0
        return num_left_out

    def write(self, kind: str, sentence: str) -> None:
        """Writes a sentence unless its kind was written a moment ago."""
        num_left_out = self.due(kind)
        if num_left_out is not None:
            more = f" ({num_left_out} times more since the last such line)" if num_left_out else ""
            print(f"schedtwin serve: {sentence}{more}", file=sys.stderr, flush=True)


class SparseFilter(logging.Filter):
    """Lets a logger's records through as seldom as `Notices` its lines; a kind is where a record was made."""

    def __init__(self) -> None:
        super().__init__()
        self._notices = Notices()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record may pass."""
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        return self._notices.due(f"{record.pathname}:{record.lineno}:{error}") is not None
