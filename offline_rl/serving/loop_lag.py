"""How far the event loop is behind: the time that a new event has to wait."""

import asyncio

BEAT_S = 0.02
"""Seconds between two looks at the clock."""
LAST_WEIGHT = 0.2
"""Weight of the last look: one long pause is no overload, a row of them is."""


class LoopLag:
    """Looks at the clock at regular intervals; the lag is how much later than planned it does so.

    Attributes:
        lag_s: The lag, smoothed, in seconds; 0 before `start`.
    """

    def __init__(self) -> None:
        self.lag_s = 0.0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins, on the running event loop."""
        loop = asyncio.get_running_loop()

        def beat(due_s: float) -> None:
            self.look(loop.time() - due_s)
            due_s = loop.time() + BEAT_S
            self._next = loop.call_at(due_s, beat, due_s)

        beat(loop.time())

    def look(self, late_s: float) -> None:
        """Weighs in one look at the clock that came this many seconds later than planned."""
        self.lag_s += LAST_WEIGHT * (max(0.0, late_s) - self.lag_s)

    def stop(self) -> None:
        """Ends."""
        if self._next is not None:
            self._next.cancel()
