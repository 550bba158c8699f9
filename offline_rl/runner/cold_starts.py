"""Start-ups that are due in the ledger: the runner's own copy of `twin.placement.cold_starts`, where formulas are
explained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SHARPNESS = 4.0
ROOM_SHARPNESS = 8.0
MOST_MEMORIES = 100.0
ALWAYS_THERE = 0.5
"""Part of a start-up below which reports count a service as always on a node."""
LONG = 2.0
"""Memories, or rooms, after which a service that was not seen is known to be cold."""


@dataclass(frozen=True)
class KnownColdStarts:
    """Start-up times by the training days; see `twin.placement.cold_starts.ColdStarts`."""

    memory_s: float
    startup_s: tuple[float, ...]
    room: tuple[float, ...] | None = None  # of the nodes of training; None: the idle time counts
    slowness: tuple[float, ...] | None = None
    part: tuple[tuple[float, ...], ...] | None = None  # [services][nodes of training]

    def are_sound(self, num_services: int, num_nodes: int) -> bool:
        """Whether the numbers are possible ones, and of so many services and nodes."""
        of_nodes = [each for each in (self.room, self.slowness) if each is not None]
        return (
            0.0 < self.memory_s < math.inf
            and len(self.startup_s) == num_services
            and all(0.0 <= one < math.inf for one in self.startup_s)
            and len(of_nodes) in (0, 2)
            and all(
                len(each) == num_nodes and all(0.0 <= one < math.inf for one in each) for each in of_nodes
            )
            and (self.room is None or min(self.room) > 0.0)
            and (self.part is None or self._has_sound_parts(num_services, num_nodes))
        )

    def _has_sound_parts(self, num_services: int, num_nodes: int) -> bool:
        part = np.array(self.part, float)
        is_whole = self.room is not None and part.shape == (num_services, num_nodes)
        return is_whole and bool(np.all((part >= 0.0) & np.isfinite(part)))

    def of_rows(self, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
        """Room, slowness and parts of rows, by their places among the nodes of training; -1, of none of them: the
        median, and whole start-ups."""
        if self.room is None or self.slowness is None:
            return None
        known = np.array([self.room, self.slowness])
        found = np.append(known, np.median(known, axis=1, keepdims=True), axis=1)[:, list(rows)]
        if self.part is None:
            return found[0], found[1], None
        part = np.array(self.part)
        return found[0], found[1], np.append(part, np.ones((len(part), 1)), axis=1)[:, list(rows)]


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
        places: [rows] among the nodes of training, -1 of others.
    """

    def __init__(self, known: KnownColdStarts, ratio: np.ndarray, places: Sequence[int]) -> None:
        self._known, self.ratio, self._by_others = known, ratio, known.of_rows(places)
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
        startup_s = self._known.startup_s[service]
        if self._by_others is None:
            idle_s = clock_s - self.last_end_s[service]
            return _due_s(startup_s, idle_s / self._known.memory_s, SHARPNESS)
        room, slowness, part = self._by_others
        factor = slowness if part is None else slowness * part[service]
        return _due_s(startup_s * factor, self._others(service) / room, ROOM_SHARPNESS)

    def _others(self, service: int) -> np.ndarray:
        """[rows] how many services should have ended on every node after this one."""
        return np.sum(self.last_end_s > self.last_end_s[service], axis=0)

    def _is_long_unseen(self, service: int, row: int, clock_s: float) -> bool:
        """Whether a service that was not seen on a node is cold there by now for sure."""
        if self._by_others is not None:
            return bool(self._others(service)[row] > LONG * self._by_others[0][row])
        begun_s = clock_s if self._begun_s is None else self._begun_s
        return clock_s - begun_s > LONG * self._known.memory_s

    def share(self, service: int, expected_s: float, clock_s: float) -> np.ndarray:
        """[rows] the same over the run without; 0 where no run is expected."""
        if expected_s <= 0.0:
            return np.zeros(self.ratio.shape[1])
        return np.asarray(self.due_s(service, clock_s) / (self.ratio[service] * expected_s))

    def placed(self, service: int, row: int, arrival_s: float, expected_s: float) -> ServiceUse:
        """A node has taken a request of so long an expected run."""
        is_long = self._is_long_unseen(service, row, arrival_s)
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


def _due_s(startup_s: float | np.ndarray, passed: np.ndarray, sharpness: float) -> np.ndarray:
    """[rows] the part of a start-up that is due after so many memories, or rooms."""
    power = np.clip(passed, 0.0, MOST_MEMORIES) ** sharpness
    return np.asarray(startup_s * power / (1.0 + power))
