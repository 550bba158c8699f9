"""Start-ups that are due in the ledger: the runner's own copy of `twin.placement.cold_starts`, where formulas are
explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SHARPNESS = 4.0
MOST_MEMORIES = 100.0
LONG = 2.0
"""Memories after which a service that was not seen is known to be cold."""


@dataclass(frozen=True)
class KnownColdStarts:
    """Start-up times by the training days; see `twin.placement.cold_starts.ColdStarts`."""

    memory_s: float
    startup_s: tuple[float, ...]


class ServiceUse(NamedTuple):
    """A request that a node took: what was known of its service there, and since then."""

    was_known: bool  # what of a start-up was due
    before_s: float  # when the last run should have ended
    after_s: float


class LedgerColdStarts:
    """When services last ran on the nodes of a ledger, and what of their start-up is due.

    Of a service that was not seen on a node the ledger takes it that it ran there until the first decision; whether its
    next run starts cold is not known until it was idle for long.

    Args:
        known: By the training days.
        ratio: [services, rows] how long services run on nodes, over what is expected of them anywhere.
    """

    def __init__(self, known: KnownColdStarts, ratio: np.ndarray) -> None:
        self._known, self.ratio = known, ratio
        self.last_end_s, self._is_known = np.full(ratio.shape, -np.inf), np.zeros(ratio.shape, bool)
        self._begun_s: float | None = None

    def begin(self, clock_s: float) -> None:
        """The time of a decision; that of the first one counts."""
        if self._begun_s is None:
            self._begun_s = clock_s
            unseen = np.maximum(self.last_end_s, clock_s)
            np.copyto(self.last_end_s, unseen, where=~self._is_known)

    def due_s(self, service: int, clock_s: float) -> np.ndarray:
        """[rows] the start-up of a service that is due on every node."""
        idle = (clock_s - self.last_end_s[service]) / self._known.memory_s
        power = np.clip(idle, 0.0, MOST_MEMORIES) ** SHARPNESS
        return np.asarray(self._known.startup_s[service] * power / (1.0 + power))

    def share(self, service: int, expected_s: float, clock_s: float) -> np.ndarray:
        """[rows] the same over the run without; 0 where no run is expected."""
        if expected_s <= 0.0:
            return np.zeros(self.ratio.shape[1])
        return np.asarray(self.due_s(service, clock_s) / (self.ratio[service] * expected_s))

    def placed(self, service: int, row: int, arrival_s: float, expected_s: float) -> ServiceUse:
        """A node has taken a request of so long an expected run."""
        begun_s = arrival_s if self._begun_s is None else self._begun_s
        is_long = arrival_s - begun_s > LONG * self._known.memory_s
        was_known = bool(self._is_known[service, row]) or is_long or self._known.startup_s[service] <= 0.0
        before_s = float(self.last_end_s[service, row])
        after_s = max(before_s, arrival_s + self.ratio[service, row] * expected_s)
        self.last_end_s[service, row] = after_s
        self._is_known[service, row] |= self._begun_s is not None
        return ServiceUse(was_known, before_s, after_s)

    def refused(self, service: int, row: int, use: ServiceUse) -> None:
        """A node did not take a request after all, of which `placed` gave `use`."""
        if self.last_end_s[service, row] == use.after_s:
            self.last_end_s[service, row] = use.before_s

    def remember(self, other: LedgerColdStarts, mine: list[int], theirs: list[int]) -> None:
        """Takes over what ran on some rows of another ledger."""
        self.last_end_s[:, mine] = np.maximum(self.last_end_s[:, mine], other.last_end_s[:, theirs])
        self._is_known[:, mine] |= other._is_known[:, theirs]
        if self._begun_s is None:
            self._begun_s = other._begun_s  # nodes of this ledger alone are new, and have run nothing
