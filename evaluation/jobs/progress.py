"""Progress displays (`logs_schema.progress`): a live display on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from logs_schema.progress import Progress, SilentProgress, Stage

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars

PACE_S = 5.0
"""Before so many seconds a pace says nothing about the time left."""


class LineProgress:
    """Plain lines for logs and pipes: one when a stage begins, some while it runs, one when it ends.

    During long work without updates the last line is repeated with the time passed.

    Args:
        stream: where the lines go.
        every_s: least seconds between two lines of a running stage.
        silent_s: most seconds without any line.
    """

    def __init__(self, stream: TextIO, every_s: float = 10.0, silent_s: float = 60.0) -> None:
        self.stream, self.every_s, self.silent_s, self.depth = stream, every_s, silent_s, 0
        self._last_s = time.monotonic()
        self._innermost: list[Callable[[], str]] = []

    @contextmanager
    def stage(self, name: str, *, total: float | None = None, unit: str = "") -> Iterator[Stage]:
        """Write lines about a stage."""
        indent = "  " * self.depth
        start_s = last_s = time.monotonic()
        seen: tuple[float, float | None, str] = 0.0, total, ""
        # units and instant of the first report: compilation precedes it
        base: tuple[float, float] | None = None

        def line() -> str:
            done, known, text = seen
            now_s, left = time.monotonic(), ""
            so_far = f"{amount(done, known, unit)}, " if done or known else ""
            if base is not None and known:
                left = time_left(done - base[0], known - base[0], now_s - base[1])
            return f"{indent}{name}: {so_far}{now_s - start_s:.0f} s{left}{text and f', {text}'}"

        def show(done: float, total: float | None = None, text: str = "") -> None:
            nonlocal base, last_s, seen
            base = base or ((done, time.monotonic()) if done else None)
            seen = done, seen[1] if total is None else total, text
            if (now_s := time.monotonic()) - last_s >= self.every_s:
                last_s = now_s
                self.note(line())

        self.note(f"{indent}{name} ...")
        self.depth += 1
        ended = "stopped"
        try:
            with self._breaking_silence(line):
                yield show
            ended = "done"
        finally:
            self.depth -= 1
            self.note(f"{indent}{name}: {ended} after {time.monotonic() - start_s:.1f} s")

    def note(self, text: str) -> None:
        """Write one line."""
        self._last_s = time.monotonic()
        print(text, file=self.stream, flush=True)

    @contextmanager
    def _breaking_silence(self, line: Callable[[], str]) -> Iterator[None]:
        """Writes the line of the innermost stage after `silent_s` without a line, as long as the outermost runs."""
        self._innermost.append(line)
        over = threading.Event()
        if len(self._innermost) == 1:
            threading.Thread(target=self._watch, args=(over,), daemon=True).start()
        try:
            yield
        finally:
            self._innermost.pop()
            over.set()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(max(self._last_s + self.silent_s - time.monotonic(), 0.01)):
            if time.monotonic() - self._last_s >= self.silent_s and self._innermost:
                self.note(self._innermost[-1]())


class BarProgress:
    """A live display with a bar for every running stage; a finished stage becomes one line.

    Args:
        bars: a running `rich.progress.Progress`.
    """

    def __init__(self, bars: "RichBars") -> None:
        self.bars, self.depth = bars, 0

    @contextmanager
    def stage(self, name: str, *, total: float | None = None, unit: str = "") -> Iterator[Stage]:
        """Show a bar."""
        label = "  " * self.depth + name
        task = self.bars.add_task(label, total=total, amount="")
        start_s = time.monotonic()
        known = total

        def show(done: float, total: float | None = None, text: str = "") -> None:
            nonlocal known
            known = known if total is None else total
            shown = f"{amount(done, known, unit)} {text}".rstrip()
            self.bars.update(task, completed=done, total=known, amount=shown)

        self.depth += 1
        ended = "stopped"
        try:
            yield show
            ended = "done"
        finally:
            self.depth -= 1
            self.bars.remove_task(task)
            self.note(f"{label}: {ended} after {time.monotonic() - start_s:.1f} s")

    def note(self, text: str) -> None:
        """Print one line above the bars."""
        self.bars.console.print(text, markup=False, highlight=False)


def time_left(done: float, total: float | None, passed_s: float) -> str:
    """What is left at the pace so far, such as `, about 90 s left`; empty at first, or with no total."""
    if not total or not 0 < done < total or passed_s < PACE_S:
        return ""
    left_s = passed_s * (total / done - 1.0)
    return f", about {left_s:.0f} s left" if left_s < 120 else f", about {left_s / 60:.0f} min left"


def amount(done: float, total: float | None, unit: str = "") -> str:
    """An amount of work as text, such as `34 % of 1,000 rows`, or `340 rows` while the total is unknown.

    Args:
        done: units done by now, >= 0.
        total: units in all; None or 0 if unknown.
        unit: what is counted.
    """
    if total:
        return f"{100 * done / total:.0f} % of {total:,.0f} {unit}".rstrip()
    return f"{done:,.0f} {unit}".rstrip()


@contextmanager
def shown_progress(shown: bool = True, stream: TextIO | None = None) -> Iterator[Progress]:
    """The display for a stream.

    Args:
        shown: False hides the stages and shows the notes only.
        stream: where to show it; standard error by default, so that standard output stays for results.

    Returns:
        A context whose value is bars on a terminal, lines elsewhere, or silence.
    """
    stream = sys.stderr if stream is None else stream
    if not shown:
        yield SilentProgress(stream)
    elif not stream.isatty():
        yield LineProgress(stream)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichBars

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"))
        with RichBars(*columns, TimeElapsedColumn(), console=Console(file=stream)) as bars:
            yield BarProgress(bars)
