"""What every node holds, counted for heuristics: cores and requests by node, looked up for a whole question at once.

Nodes that only questions know (*guests*) are counted as well, and forgotten when they hold nothing and are too many.
"""

import math
from collections.abc import Mapping

import numpy as np

from offline_rl.runner import Node
from offline_rl.serving.inventory import Remembered

MAX_GUESTS = 10_000
"""Guests that are remembered although they hold nothing."""
STRANGER = 0
"""Row of candidates that hold nothing and are not described."""
_CORES, _COMMITTED, _HELD = range(3)


class Tallies:
    """Counts by node. Not thread-safe."""

    def __init__(self) -> None:
        self._known: Mapping[str, Node] = {}
        self._row_of: dict[str, int] = {"": STRANGER}
        self._rows = np.array([[math.nan], [0.0], [0.0]])  # cores, cores committed, requests held
        self._free: list[int] = []
        self._sweep_at = MAX_GUESTS
        self._sets = Remembered()
        self._rows_of_set = Remembered()

    @property
    def num_names(self) -> int:
        """Names that have a row."""
        return len(self._row_of)

    @property
    def num_rows(self) -> int:
        """Rows there are, in use or not."""
        return self._rows.shape[1]

    def set_facts(self, facts: Mapping[str, Node]) -> None:
        """Takes the facts of all nodes that are no guests, in place of those before."""
        self._known = facts
        rows = [self._row(name) for name in facts]
        self._rows[_CORES] = math.nan
        self._rows[_CORES, rows] = [cores_of(node) for node in facts.values()]
        self._sweep_at = max(self._sweep_at, len(self._row_of) + MAX_GUESTS)

    def add(self, name: str, cpu_cores: float) -> None:
        """A node holds one request more."""
        row = self._row(name)  # may put other rows in place of these
        self._rows[1:, row] += cpu_cores, 1.0

    def remove(self, name: str, cpu_cores: float) -> None:
        """A node holds one request less."""
        row = self._row_of[name]
        self._rows[1:, row] -= cpu_cores, 1.0
        if self._rows[_HELD, row] == 0.0:
            self._rows[_COMMITTED, row] = 0.0  # what rounding left

    def of(self, names: tuple[str, ...]) -> np.ndarray:
        """[3, n] cores (NaN where they are unknown), cores committed and requests held, of some nodes."""
        rows = self._rows_of_set.get(names)
        if rows is None:
            rows = np.array([self._row_of.get(name, STRANGER) for name in names], int)
            self._rows_of_set.keep(names, rows, len(names))
        return self._rows[:, rows]

    def guests(self) -> list[str]:
        """Guests that hold something."""
        held = self._rows[_HELD]
        return [name for name, row in self._row_of.items() if name and name not in self._known and held[row]]

    def interned(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Of equal sets of names one is kept."""
        known = self._sets.get(names)
        return self._sets.keep(names, names, len(names)) if known is None else known

    def _row(self, name: str) -> int:
        """The row of a node, a new one if need be."""
        if name in self._row_of:
            return self._row_of[name]
        if len(self._row_of) >= self._sweep_at:
            self._sweep()
        if not self._free:
            number = self.num_rows
            self._rows = np.concatenate([self._rows, np.zeros((3, number))], axis=1)
            self._rows[_CORES, number:] = math.nan
            self._free = list(range(number, 2 * number))
        self._row_of[name] = self._free.pop()
        self._rows_of_set.clear()
        return self._row_of[name]

    def _sweep(self) -> None:
        """Forgets the guests that hold nothing."""
        for name, row in list(self._row_of.items()):
            if name and name not in self._known and not self._rows[_HELD, row]:
                self._free.append(self._row_of.pop(name))
        self._sweep_at = len(self._row_of) + MAX_GUESTS
        self._rows_of_set.clear()


def cores_of(node: Node) -> float:
    """Cores of a node; NaN where they are unknown."""
    return math.nan if node.cpu_cores is None else node.cpu_cores
