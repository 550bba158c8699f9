"""Start-ups that are due in the ledger: the runner's own copy of `twin.placement.cold_starts`, where formulas are
explained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHARPNESS = 4.0
MOST_MEMORIES = 100.0


@dataclass(frozen=True)
class KnownColdStarts:
    """Start-up times by the training days; see `twin.placement.cold_starts.ColdStarts`."""

    memory_s: float
    startup_s: tuple[float, ...]


class LedgerColdStarts:
    """When services last ran on the nodes of a ledger, and what of their start-up is due.

    Args:
        known: By the training days.
        ratio: [services, rows] how long services run on nodes, over what is expected of them anywhere.
    """

    def __init__(self, known: KnownColdStarts, ratio: np.ndarray) -> None:
        self._known, self._ratio = known, ratio
        self.last_end_s = np.full(ratio.shape, -np.inf)

    def share(self, service: int, expected_s: float, clock_s: float) -> np.ndarray:
        """[rows] the start-up of a request that is due on every node, over its run there without."""
        if expected_s <= 0.0:
            return np.zeros(self._ratio.shape[1])
        power = (
            np.clip((clock_s - self.last_end_s[service]) / self._known.memory_s, 0.0, MOST_MEMORIES)
            ** SHARPNESS
        )
        due_s = self._known.startup_s[service] * power / (1.0 + power)
        return np.asarray(due_s / (self._ratio[service] * expected_s))

    def placed(self, service: int, row: int, arrival_s: float, expected_s: float) -> None:
        """A node has taken a request of so long an expected run."""
        end_s = arrival_s + self._ratio[service, row] * expected_s
        self.last_end_s[service, row] = max(self.last_end_s[service, row], end_s)

    def remember(self, other: LedgerColdStarts, mine: list[int], theirs: list[int]) -> None:
        """Takes over what ran on some rows of another ledger."""
        self.last_end_s[:, mine] = np.maximum(self.last_end_s[:, mine], other.last_end_s[:, theirs])
