"""Requests that run, for a ledger, as flat arrays that a decision goes through at once."""

import numpy as np


class RunningSlots:
    """Running requests as flat arrays: node row, expected end, cores; free slots have no cores."""

    def __init__(self) -> None:
        self._row = np.zeros(64, int)
        self._amounts = np.zeros((2, 64))
        self._unused = list(range(64))

    def take(self, row: int, expected_end_s: float, cores: float) -> int:
        """A slot for a request that runs on a node until about then."""
        if not self._unused:
            size = len(self._row)
            self._row = np.concatenate([self._row, np.zeros(size, int)])
            self._amounts = np.concatenate([self._amounts, np.zeros((2, size))], axis=1)
            self._unused = list(range(size, 2 * size))
        slot = self._unused.pop()
        self._row[slot] = row
        self._amounts[:, slot] = expected_end_s, cores
        return slot

    def free(self, slot: int) -> None:
        """It has ended."""
        self._amounts[:, slot] = 0.0
        self._unused.append(slot)

    def core_seconds_left(self, clock_s: float, num_rows: int) -> np.ndarray:
        """[rows] what runs on every node leaves to do, by expectation."""
        end_s, cores = self._amounts
        left = np.maximum(end_s - clock_s, 0.0) * cores
        return np.bincount(self._row, weights=left, minlength=num_rows)
