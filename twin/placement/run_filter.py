"""A filter of run times: how much longer runs take now than by the tables of the log, with known uncertainty.

    log(run / table) = level of the node now + level of the service on the node + scatter

A node's level has two parts: one that wanders slowly (machines age, software changes) and one that comes and goes, an
Ornstein-Uhlenbeck process (periods in which a node is slow). A pair's level wanders slowly. Scatter, the variance and
the memory of what comes and goes, and how fast levels wander are estimated from the log: of several settings the one is
taken that predicted the log's own runs best, from what had ended before; what does not predict better than no
memory at all, beyond chance, is not followed. An innovation counts up to `CLIP` deviations, less what such cut
innovations are in the mean where nothing has changed, so that heavy tails neither throw a level off nor bend it.

Variances of the parts are kept apart (a diagonal Kalman filter; R. Kalman, A new approach to linear filtering and
prediction problems, 1960; cut innovations: C. Masreliez and R. Martin, 1977). The gain is thus small where a run is
uninformative, and large after a long time without a run. Runs that end between two decisions count at the second.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from twin.records import at_rows

SLOW, FAST = 0, 1
"""Parts of a node's level, along axis 0 of `NodeLevel`."""
CLIP = 2.0
"""Deviations up to which an innovation counts."""
DRIFT_PER_DAY = 0.02
"""Least deviation by which the logarithm of a run time is taken to wander within a day: too little to cost anything
where nothing moves, enough to have followed by the evening what has moved in a month."""
AGED_PER_DAY = 0.05
"""Deviation by which it may have wandered in a day between the log and the first run seen after it: .13 in a week,
.27 in a month. It goes as runs end, so it costs little where nothing has moved."""
LEAST_SCATTER = 1e-4
MAX_RUNS = 40_000
"""Runs of a log that settings are chosen by: the last ones."""
MEMORIES_S = (120.0, 600.0, 3_000.0, 15_000.0)
SHARES = (0.02, 0.1, 0.3, 0.6)
"""Of the variance of residuals, that may come and go with a node."""
FASTER = (1.0, 4.0)
"""Factors of `DRIFT_PER_DAY` that are tried."""
NUM_BLOCKS, BEYOND_CHANCE = 16, 2.0
"""Stretches of a log over which a setting's advantage is averaged, and standard errors that it must exceed."""


@dataclass(frozen=True)
class RunDynamics:
    """How run times move, by a log; logarithms of seconds.

    Attributes:
        scatter: Variance of one run around its level.
        offset: Mean of cut innovations where nothing has changed.
        node_variance: Variance of what comes and goes with a node; 0: nothing does.
        node_memory_s: Time in which that fades to 1/e.
        drift_per_day: Deviation by which levels wander in a day.
        aged_per_day: The same from the end of the log to the first run that is seen after it.
    """

    scatter: float = 1.0
    offset: float = 0.0
    node_variance: float = 0.0
    node_memory_s: float = 600.0
    drift_per_day: float = 0.0
    aged_per_day: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether anything is followed."""
        return self.drift_per_day > 0.0 or self.node_variance > 0.0

    @property
    def moved(self) -> bool:
        """Whether the log itself shows that run times move, beyond the slow drift that is followed in any case."""
        return self.drift_per_day > DRIFT_PER_DAY or self.node_variance > 0.0


class NodeLevel(NamedTuple):
    """Levels of nodes; leaves [2 (SLOW, FAST), nodes, *streams], NumPy or JAX."""

    mean: Any
    variance: Any


def fresh_level(dynamics: RunDynamics, shape: tuple[int, ...], age_s: Any = 0.0, np: Any = np) -> NodeLevel:
    """Levels [2, *shape] without a run for `age_s` (scalar or [1, *streams])."""
    slow = np.zeros(shape, np.float32) + aged(dynamics, age_s)
    fast = np.full(shape, dynamics.node_variance, np.float32)
    return NodeLevel(np.zeros((2, *shape), np.float32), np.stack([slow, fast]))


def wandered(dynamics: RunDynamics, elapsed_s: Any) -> Any:
    """Variance by which a level has wandered in some time."""
    return dynamics.drift_per_day**2 / DAY_S * elapsed_s


def aged(dynamics: RunDynamics, age_s: Any) -> Any:
    """Variance by which a level has wandered in the time from the log to the first run after it."""
    return dynamics.aged_per_day**2 / DAY_S * age_s


def later(dynamics: RunDynamics, level: NodeLevel, elapsed_s: Any, np: Any = np) -> NodeLevel:
    """The levels after `elapsed_s` (scalar or [1, *streams]) without a run."""
    keep = np.exp(-elapsed_s / dynamics.node_memory_s)
    of_fast = dynamics.node_variance + keep**2 * (level.variance[FAST] - dynamics.node_variance)
    of_slow = level.variance[SLOW] + wandered(dynamics, elapsed_s)
    return NodeLevel(np.stack([level.mean[SLOW], keep * level.mean[FAST]]), np.stack([of_slow, of_fast]))


def cut(dynamics: RunDynamics, residual: Any, mean: Any, variance: Any, np: Any = np) -> Any:
    """The innovation of a residual over a level of known mean and variance, cut to `CLIP` deviations."""
    most = CLIP * np.sqrt(dynamics.scatter + variance)
    return np.clip(residual - mean, -most, most) - dynamics.offset


def updated_levels(
    dynamics: RunDynamics, level: NodeLevel, innovations: Any, count: Any, np: Any = np
) -> NodeLevel:
    """The levels after `count` runs on each node whose cut innovations add up to `innovations`, [nodes, *streams]."""
    each = np.maximum(count, 1.0)
    whole = level.variance[SLOW] + level.variance[FAST] + dynamics.scatter / each
    gain = level.variance * np.where(count > 0.0, 1.0 / whole, 0.0)[None]
    return NodeLevel(level.mean + gain * (innovations / each)[None], level.variance * (1.0 - gain))


class LoggedRuns(NamedTuple):
    """Runs of a log in order of arrival, on one clock in seconds; NaN residuals where a run is not known."""

    arrival_s: np.ndarray
    finish_s: np.ndarray
    node: np.ndarray
    residual: np.ndarray  # log(run / run time by the tables)


def runs_of(
    arrival_s: np.ndarray,
    finish_s: np.ndarray,
    run_s: np.ndarray,
    expected_s: np.ndarray,
    service: np.ndarray,
    node: np.ndarray,
    ratio: np.ndarray,
) -> LoggedRuns:
    """Runs of a log against the ratios [services, nodes] of its tables; leaves [rows].

    `node` is -1, and `run_s` not finite, where the log does not have them.
    """
    known = (node >= 0) & np.isfinite(run_s) & (np.nan_to_num(run_s) > 0.0) & (expected_s > 0.0)
    residual = np.full(len(node), np.nan)
    residual[known] = np.log(run_s[known] / expected_s[known] / ratio[service[known], node[known]])
    return LoggedRuns(arrival_s, finish_s, node, residual)


def levels_along(
    dynamics: RunDynamics, runs: LoggedRuns, num_nodes: int, at_s: np.ndarray, age_s: float = 0.0
) -> NodeLevel:
    """The levels at some instants, by what had ended before.

    Args:
        dynamics: How run times move.
        runs: Of the log.
        num_nodes: Nodes.
        at_s: [W] instants, ascending.
        age_s: From the end of training to the first run.

    Returns:
        Leaves [2, nodes, W].
    """
    if not dynamics.moves:
        nothing = np.zeros((2, num_nodes, len(at_s)), np.float32)
        return NodeLevel(nothing, nothing)
    observed = _observed(runs, np.union1d(runs.arrival_s, at_s))
    levels = _NodeLevels(dynamics, num_nodes, float(runs.arrival_s[0]) if len(runs.arrival_s) else 0.0, age_s)
    found, following = [], next(observed, None)
    for instant_s in at_s.tolist():
        while following is not None and following[0] <= instant_s:
            levels.ended(*following)
            following = next(observed, None)
        found.append(levels.at(instant_s))
    return NodeLevel(*(np.stack(leaf, axis=-1).astype(np.float32) for leaf in zip(*found, strict=True)))


def _observed(runs: LoggedRuns, decision_s: np.ndarray) -> Iterator[tuple[float, int, float]]:
    """The instants of decisions [D] (ascending) at which runs are first seen to have ended, in their order, with the
    runs' nodes and residuals."""
    known = np.flatnonzero(np.isfinite(runs.residual) & (runs.node >= 0))
    place = np.searchsorted(decision_s, runs.finish_s[known])
    observed = known[place < len(decision_s)]
    observed_s = decision_s[place[place < len(decision_s)]]
    order = np.argsort(observed_s, kind="stable")
    return zip(
        observed_s[order].tolist(),
        runs.node[observed][order].tolist(),
        runs.residual[observed][order].tolist(),
        strict=True,
    )


class _Plain:
    """What of NumPy the filter needs, for single numbers, of which NumPy takes ten times as long."""

    exp, sqrt, minimum, maximum = math.exp, math.sqrt, min, max


class _NodeLevels:
    """The filter along a log, every node moved on only where one of its runs is observed: for one setting with plain
    numbers, or for several, leaves [settings], with those of NumPy."""

    def __init__(
        self, dynamics: RunDynamics, num_nodes: int, begin_s: float, age_s: float, np: Any = _Plain
    ) -> None:
        self._dynamics, self._np = dynamics, np
        fresh = aged(dynamics, age_s), dynamics.node_variance
        self._levels: list[tuple[Any, ...]] = [(0.0, 0.0, *fresh, begin_s) for _ in range(num_nodes)]
        self._pending: list[list[float]] = [[] for _ in range(num_nodes)]

    def ended(self, observed_s: float, node: int, residual: float) -> None:
        """Adds a run observed at a decision, not before the last one added; those of one decision count together."""
        if self._pending[node] and self._levels[node][4] < observed_s:
            self._update(node)
        if self._levels[node][4] < observed_s:
            self._move(node, observed_s)
        self._pending[node].append(residual)

    def at(self, instant_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [2, nodes] of one setting."""
        level = np.array([self.of(node, instant_s) for node in range(len(self._levels))]).T
        return level[:2], level[2:]

    def of(self, node: int, instant_s: float) -> tuple[Any, ...]:
        """Means, slow and fast, and variances of one node's level."""
        if self._pending[node]:
            self._update(node)
        self._move(node, instant_s)
        return self._levels[node][:4]

    def _move(self, node: int, instant_s: float) -> None:
        slow, fast, of_slow, of_fast, since_s = self._levels[node]
        elapsed_s, steady = max(instant_s - since_s, 0.0), self._dynamics.node_variance
        keep = self._np.exp(-elapsed_s / self._dynamics.node_memory_s)
        of_slow = of_slow + wandered(self._dynamics, elapsed_s)
        of_fast = steady + keep**2 * (of_fast - steady)
        self._levels[node] = slow, keep * fast, of_slow, of_fast, max(instant_s, since_s)

    def _update(self, node: int) -> None:
        slow, fast, of_slow, of_fast, now_s = self._levels[node]
        residuals, scatter, np = self._pending[node], self._dynamics.scatter, self._np
        most = CLIP * np.sqrt(scatter + of_slow + of_fast)
        cuts = [
            np.minimum(np.maximum(one - slow - fast, -most), most) - self._dynamics.offset
            for one in residuals
        ]
        innovation, whole = sum(cuts) / len(cuts), of_slow + of_fast + scatter / len(cuts)
        self._levels[node] = (
            slow + of_slow / whole * innovation,
            fast + of_fast / whole * innovation,
            of_slow * (1.0 - of_slow / whole),
            of_fast * (1.0 - of_fast / whole),
            now_s,
        )
        self._pending[node] = []


def robust_deviation(residual: np.ndarray) -> float:
    """Standard deviation of residuals that are all known, by their median distance from the median; never zero."""
    return max(1.4826 * float(np.median(np.abs(residual - np.median(residual)))), LEAST_SCATTER**0.5)


def fit_dynamics(runs: LoggedRuns, num_nodes: int) -> RunDynamics:
    """How run times move, by a log.

    Returns:
        The setting that predicted the runs best; without memory where none is better than that beyond chance.
    """
    known = np.isfinite(runs.residual)
    if known.sum() < 2 * NUM_BLOCKS:
        return RunDynamics()
    last = np.flatnonzero(known)[-MAX_RUNS:]
    runs = at_rows(runs, last)
    most = CLIP * robust_deviation(runs.residual)
    clipped = np.clip(runs.residual, -most, most)
    offset, whole = float(clipped.mean()), max(float(clipped.var()), LEAST_SCATTER)
    still = RunDynamics(whole, offset, 0.0, 600.0, DRIFT_PER_DAY, AGED_PER_DAY)
    tried = [
        replace(still, scatter=(1.0 - share) * whole, node_variance=share * whole, node_memory_s=memory_s)
        for share in SHARES
        for memory_s in MEMORIES_S
    ]
    best = _best([still, *tried], runs, num_nodes)
    faster = [replace(best, drift_per_day=factor * DRIFT_PER_DAY) for factor in FASTER]
    return _best(faster, runs, num_nodes)


def _best(tried: list[RunDynamics], runs: LoggedRuns, num_nodes: int) -> RunDynamics:
    """The setting of the best forecasts, if it is better than the first one beyond chance; else the first."""
    score = predicted_likelihood(tried, runs, num_nodes)
    gain = score - score[:1]
    best = int(np.argmax(gain.sum(axis=1)))
    blocks = np.array([part.mean() for part in np.array_split(gain[best], NUM_BLOCKS)])
    error = blocks.std(ddof=1) / np.sqrt(NUM_BLOCKS)
    return tried[best] if blocks.mean() > BEYOND_CHANCE * error else tried[0]


def predicted_likelihood(tried: list[RunDynamics], runs: LoggedRuns, num_nodes: int) -> np.ndarray:
    """[settings, runs] log likelihood of the cut residuals, each predicted at its arrival by what had ended before."""
    names = RunDynamics.__dataclass_fields__
    settings = RunDynamics(*(np.array([getattr(one, name) for one in tried]) for name in names))  # type: ignore[arg-type]
    levels = _NodeLevels(settings, num_nodes, float(runs.arrival_s[0]), 0.0, np)
    most = float((CLIP * np.sqrt(settings.scatter + settings.node_variance))[0])
    observed, mean, variance = _observed(runs, np.unique(runs.arrival_s)), [], []
    following = next(observed, None)
    for instant_s, node in zip(runs.arrival_s.tolist(), runs.node.tolist(), strict=True):
        while following is not None and following[0] <= instant_s:
            levels.ended(*following)
            following = next(observed, None)
        slow, fast, of_slow, of_fast = levels.of(node, instant_s)
        mean.append(settings.offset + slow + fast)
        variance.append(settings.scatter + of_slow + of_fast)
    about = settings.offset[:, None]  # type: ignore[index]
    error = np.clip(runs.residual[None], about - most, about + most) - np.stack(mean, axis=1)
    spread = np.stack(variance, axis=1)
    return np.asarray(-0.5 * (np.log(spread) + error**2 / spread))
