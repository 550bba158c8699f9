"""Nodes that sleep when idle, for a ledger kept by events; the NumPy copy of `twin.placement.wakes`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class KnownWakes:
    """Of every node of training: after how long idle it sleeps, and how long it takes to wake; 0: it never sleeps."""

    after_s: tuple[float, ...]
    wake_s: tuple[float, ...]

    def are_sound(self, num_nodes: int) -> bool:
        """Whether there are numbers of every node, finite and at least 0."""
        return all(
            len(each) == num_nodes and all(0.0 <= one < math.inf for one in each)
            for each in (self.after_s, self.wake_s)
        )


class LedgerWakes:
    """When the nodes of a ledger are awake. One that nothing is known to have ended on is taken to be.

    Args:
        known: Of training.
        places: [rows] their places among the nodes of training; -1 of others, which never sleep.
    """

    def __init__(self, known: KnownWakes, places: Sequence[int]) -> None:
        at = np.array(places, int)
        self._after_s = np.array([*known.after_s, 0.0])[at]
        self._wake_s = np.array([*known.wake_s, 0.0])[at]
        self.ended_s = np.full(len(at), -np.inf)

    def ended(self, row: int, at_s: float) -> None:
        """A request has left a node."""
        self.ended_s[row] = max(self.ended_s[row], at_s)

    def left_s(
        self, clock_s: float, running: np.ndarray, waiting: np.ndarray, oldest_s: np.ndarray
    ) -> np.ndarray:
        """[rows] how long nodes take until they are awake.

        Args:
            clock_s: Now.
            running, waiting: [rows] numbers of requests.
            oldest_s: [rows] when the longest waiting one came.
        """
        is_asleep = (clock_s - self.ended_s >= self._after_s) & np.isfinite(self.ended_s)
        asked_s = np.where(waiting > 0.0, oldest_s, clock_s)
        waking_s = np.maximum(self._wake_s - (clock_s - asked_s), 0.0)
        left_s = np.where(waiting > 0.0, waking_s, np.where(is_asleep, self._wake_s, 0.0))
        return np.where(running > 0.0, 0.0, left_s)
