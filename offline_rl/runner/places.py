"""Places of services on nodes, for a ledger kept by events: the NumPy copy of `places_left_s` of training."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np


class HeldRequest(Protocol):
    """What a ledger has in flight."""

    row: int
    service: int
    start_s: float | None
    run_s: float


class LedgerPlaces:
    """How long requests wait for a place of their service on the nodes of a ledger.

    Args:
        known: [services][nodes of training] how many run at once, 0 without a limit.
        places: [rows] their places among the nodes of training; -1 of others, which have no limits.
        ratio: [services, rows] how long services run there, over what is expected of them anywhere.
    """

    def __init__(self, known: Sequence[Sequence[int]], places: Sequence[int], ratio: np.ndarray) -> None:
        self._limits = np.array([(*row, 0) for row in known], int)[:, np.array(places, int)]
        self._ratio = ratio

    def left_s(self, service: int, clock_s: float, held: Iterable[HeldRequest]) -> np.ndarray:
        """[rows] how long a request of a service waits for a place, by expectation, where all `held` is in flight."""
        limits = self._limits[service]
        count, work_s = np.zeros((2, len(limits)))
        for one in held:
            if one.service != service or one.row < 0:
                continue
            elapsed_s = 0.0 if one.start_s is None else clock_s - one.start_s
            count[one.row] += 1.0
            work_s[one.row] += max(one.run_s * self._ratio[service, one.row] - elapsed_s, 0.0)
        return np.where((limits > 0) & (count >= limits), work_s / np.maximum(limits, 1), 0.0)
