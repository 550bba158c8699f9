"""What the ledger learns of run times: the runner's own copy of `twin.placement.run_filter`, where formulas are
explained.

Runs that ended since the last decision count at the next one: first to their nodes' levels, then to their pairs'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S

CLIP = 2.0


@dataclass(frozen=True)
class KnownRunDynamics:
    """How run times move, by the training days; see `twin.placement.run_filter.RunDynamics`."""

    scatter: float
    offset: float
    node_variance: float
    node_memory_s: float
    drift_per_day: float
    aged_per_day: float

    def wandered(self, elapsed_s: float) -> float:
        """Variance by which a level has wandered in some time."""
        return self.drift_per_day**2 / DAY_S * elapsed_s

    def aged(self, age_s: float) -> float:
        """Variance by which a level has wandered from the training days to the first decision."""
        return self.aged_per_day**2 / DAY_S * age_s

    def cut(self, error: float, variance: float) -> float:
        """An innovation, cut to `CLIP` deviations, less what such ones are in the mean."""
        most = CLIP * (self.scatter + variance) ** 0.5
        return min(max(error, -most), most) - self.offset


class _Ended(NamedTuple):
    row: int
    service: int
    residual: float  # log(run / run time by the training days)
    pair_then: float  # the pair's level when the request was placed


class LedgerRunLevels:
    """Levels of the logarithms of run times over those of training.

    Args:
        dynamics: How they move.
        variance: [services, rows] of every pair's level, from training.
        trained_until_s: Seconds since 1970 of the end of training.
    """

    def __init__(self, dynamics: KnownRunDynamics, variance: np.ndarray, trained_until_s: float) -> None:
        self._dynamics, self._now_s = dynamics, trained_until_s
        self._begun, self._wandered = False, 0.0  # variance by which levels have wandered since training
        num_rows = variance.shape[1]
        self.pair, self.pair_variance = np.zeros(variance.shape), variance.copy()
        self.node = np.zeros((2, num_rows))  # what wanders slowly, what comes and goes
        self.node_variance = np.stack([np.zeros(num_rows), np.full(num_rows, dynamics.node_variance)])
        self._ended: list[_Ended] = []

    def of(self, service: int) -> np.ndarray:
        """[rows] what is added to the logarithm of a service's run time."""
        return np.asarray(self.pair[service] + self.node.sum(axis=0))

    def ended(self, row: int, service: int, residual: float, pair_then: float) -> None:
        """A run ended; it counts at the next decision."""
        self._ended.append(_Ended(row, service, residual, pair_then))

    def move_to(self, clock_s: float) -> None:
        """To the time of a decision."""
        elapsed_s = max(clock_s - self._now_s, 0.0)
        wandered = self._dynamics.wandered(elapsed_s) if self._begun else self._dynamics.aged(elapsed_s)
        self._begun, self._now_s = True, max(clock_s, self._now_s)
        self._wandered += wandered
        keep, steady = np.exp(-elapsed_s / self._dynamics.node_memory_s), self._dynamics.node_variance
        self.node[1] *= keep
        self.node_variance[0] += wandered
        self.node_variance[1] = steady + keep**2 * (self.node_variance[1] - steady)
        if self._ended:
            for row in {one.row for one in self._ended}:
                self._update_node(
                    row, [one.residual - one.pair_then for one in self._ended if one.row == row]
                )
            for one in self._ended:
                self._update_pair(one)
            self._ended.clear()

    def remember(self, other: LedgerRunLevels, mine: list[int], theirs: list[int]) -> None:
        """Takes over other levels of some rows as they are by now: runs that ended there count, and levels fade."""
        if self._begun or other._begun:
            now_s = max(self._now_s, other._now_s)
            for levels in (self, other):
                levels.move_to(now_s)
        for name in ("pair", "pair_variance", "node", "node_variance"):
            getattr(self, name)[:, mine] = getattr(other, name)[:, theirs]
        self._wandered = other._wandered

    def _update_node(self, row: int, residuals: list[float]) -> None:
        mean, variance = self.node[:, row].sum(), self.node_variance[:, row]
        innovations = [self._dynamics.cut(one - mean, variance.sum()) for one in residuals]
        gain = variance / (variance.sum() + self._dynamics.scatter / len(residuals))
        self.node[:, row] += gain * np.mean(innovations)
        self.node_variance[:, row] = (1.0 - gain) * variance

    def _update_pair(self, one: _Ended) -> None:
        at = one.service, one.row
        variance = self.pair_variance[at] + self._wandered
        mean, around = self.node[:, one.row].sum(), self.node_variance[:, one.row].sum() + variance
        gain = variance / (around + self._dynamics.scatter)
        self.pair[at] += gain * self._dynamics.cut(one.residual - self.pair[at] - mean, around)
        self.pair_variance[at] = (1.0 - gain) * variance - self._wandered
