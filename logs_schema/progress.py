"""Progress of long work: the callback that lower floors report to, and one that does nothing.

Work is divided into stages, which may nest. A stage is called with how much is done by now, so it can be handed on as a
plain function: `train(..., progress=stage)`. `evaluation.jobs.progress` displays it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO


class Stage(Protocol):
    """Called with the amount done by now (not since the last call), and with the total once it is known."""

    def __call__(self, done: float, total: float | None = None, text: str = "") -> None:
        """Show that `done` of `total` units are done; `text` describes the current one."""


class Progress(Protocol):
    """Where long work shows how far it is."""

    def stage(
        self, name: str, *, total: float | None = None, unit: str = ""
    ) -> AbstractContextManager[Stage]:
        """A stage of the work, shown while the block runs; `total` may be unknown."""

    def note(self, text: str) -> None:
        """A line worth reading that stays."""


def unseen(done: float, total: float | None = None, text: str = "") -> None:
    """A stage that shows nothing."""


class SilentProgress:
    """Shows no stages; notes go to `stream`, if there is one."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream

    @contextmanager
    def stage(self, name: str, *, total: float | None = None, unit: str = "") -> Iterator[Stage]:
        """Show nothing."""
        yield unseen

    def note(self, text: str) -> None:
        """Write the note, if there is a stream."""
        if self.stream is not None:
            print(text, file=self.stream, flush=True)
