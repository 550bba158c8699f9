"""Work beside the main thread: programs are compiled and run outside of Python's lock, so two parts use two cores."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from logs_schema.progress import Progress, SilentProgress, Stage

Value = TypeVar("Value")


class Background(Generic[Value]):
    """A function that runs in a thread of its own, which does not keep the process alive.

    Args:
        make: What to run.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._made: list[Value] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)
        self._thread.start()

    def result(self) -> Value:
        """What the function returned, once it is done; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._make())
        except BaseException as error:
            self._error = error


class NotesAlone:
    """Progress of work beside the main thread: its notes are shown, its stages are not."""

    def __init__(self, progress: Progress) -> None:
        self._shown, self._silent = progress, SilentProgress()

    @contextmanager
    def stage(self, name: str, *, total: float | None = None, unit: str = "") -> Iterator[Stage]:
        """Shows nothing."""
        with self._silent.stage(name, total=total, unit=unit) as show:
            yield show

    def note(self, text: str) -> None:
        """Shows the note."""
        self._shown.note(text)
