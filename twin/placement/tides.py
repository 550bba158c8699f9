"""Run times that rise and fall everywhere at once: what neither tables nor nodes explain, by the time of arrival.

    log(run / table) - crowding = tide at the arrival + scatter

Requests may be larger for a while, or a storage that all share slower: nobody is told, and a log shows it afterwards.
The tide is an Ornstein-Uhlenbeck process, of which a log's runs before and after a request tell, its own run left out
(a diagonal Kalman filter in either direction of time; D. Fraser and J. Potter, The optimum linear smoother as a
combination of two optimum linear filters, 1969). It does not depend on decisions, so it is replayed with the logged
arrivals, and no policy observes it. Without it a twin reads long runs off the long queues that they cause, and promises
short ones to whoever keeps queues short (selection by a hidden cause; compare A. Alomar et al., CausalSim, 2023).

Variance and memory are those that predict the log's own runs best; what gains less than chance may is no tide.
"""

import math
from dataclasses import dataclass

import numpy as np

from twin.placement.crowding import CrowdedRuns, uncrowded

MOST_RUNS = 40_000
"""Runs of a log that a tide is estimated from: the last ones."""
MIN_RUNS = 200
CLIP = 2.0
"""Deviations up to which a residual counts."""
LEAST_SCATTER = 1e-4
MEMORIES_S = (120.0, 600.0, 3_000.0)
SHARES = (0.05, 0.2, 0.5)
"""Of the variance of residuals, that may rise and fall."""
NUM_NUMBERS = 3
"""Of a tide more than of none. What it gains in likelihood must exceed so many logarithms of the number of runs, twice
Schwarz's criterion (1978): gains are made in a few hours of a log, and their spread cannot tell them from chance."""
TAILS = 4.0
"""Degrees of freedom of Student's density, by which settings are judged: outliers would decide by a Gaussian one."""
WIDTHS = np.exp(np.linspace(-1.0, 0.5, 13))
"""Factors on a setting's deviations, of which the best is its own: settings are to differ by what they forecast."""


@dataclass(frozen=True)
class Tide:
    """How run times rise and fall everywhere; logarithms of seconds.

    Attributes:
        variance: Of the tide; 0: there is none.
        memory_s: Time in which it fades to 1/e.
        scatter: Variance of one run around it.
        offset: Mean of the residuals.
        most: Distance from it up to which a residual counts.
    """

    variance: float = 0.0
    memory_s: float = 600.0
    scatter: float = 1.0
    offset: float = 0.0
    most: float = 1.0


def fit_tide(runs: CrowdedRuns, pressure: np.ndarray) -> Tide:
    """How run times rise and fall everywhere, by the last runs of a log and the pressures of its services."""
    last = CrowdedRuns(*(leaf[-MOST_RUNS:] for leaf in runs))
    return tide_in(last.arrival_s, uncrowded(last, pressure))


def tide_in(arrival_s: np.ndarray, residual: np.ndarray) -> Tide:
    """How residuals rise and fall.

    Args:
        arrival_s: [rows] ascending.
        residual: [rows] log(run / run time by the tables), less crowding; NaN where a run is not known.
    """
    known = np.flatnonzero(np.isfinite(residual))
    if len(known) < MIN_RUNS:
        return Tide()
    arrival_s, residual = arrival_s[known], residual[known]
    centre = float(np.median(residual))
    most = CLIP * max(1.4826 * float(np.median(np.abs(residual - centre))), LEAST_SCATTER**0.5)
    cut = np.clip(residual - centre, -most, most)
    offset, whole = centre + float(cut.mean()), max(float(cut.var()), LEAST_SCATTER)
    none = Tide(0.0, MEMORIES_S[0], whole, offset, most)
    tried = [
        Tide(share * whole, memory_s, (1.0 - share) * whole, offset, most)
        for share in SHARES
        for memory_s in MEMORIES_S
    ]
    gains = [_score(one, arrival_s, residual) - _score(none, arrival_s, residual) for one in tried]
    best = int(np.argmax(gains))
    return tried[best] if gains[best] > NUM_NUMBERS * math.log(len(known)) else none


def tide_along(tide: Tide, arrival_s: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """[rows] float32 the tide at every arrival by all other runs; arguments as of `tide_in`."""
    return _by_others(tide, arrival_s, residual)[0].astype(np.float32)


def drawn_tide(generator: np.random.Generator, tide: Tide, arrival_s: np.ndarray) -> np.ndarray:
    """[rows] float32 a tide at generated arrivals [rows] (ascending), of which no run tells; stationary."""
    keep = np.concatenate([[0.0], np.exp(-np.diff(arrival_s) / tide.memory_s)])[: len(arrival_s)]
    steps = np.sqrt(tide.variance * (1.0 - keep**2)) * generator.standard_normal(len(keep))
    now, found = 0.0, []
    for kept, step in zip(keep.tolist(), steps.tolist(), strict=True):
        now = kept * now + step
        found.append(now)
    return np.array(found, np.float32)


def _score(tide: Tide, arrival_s: np.ndarray, residual: np.ndarray) -> float:
    """Log likelihood of all residuals, each by all others, but for a constant."""
    mean, variance = _by_others(tide, arrival_s, residual)
    error, variance = residual - tide.offset - mean, variance + tide.scatter
    return max(
        -float(
            np.sum(
                0.5 * (TAILS + 1.0) * np.log1p(error**2 / (TAILS * width**2 * variance))
                + 0.5 * np.log(variance)
                + np.log(width)
            )
        )
        for width in WIDTHS
    )


def _by_others(tide: Tide, arrival_s: np.ndarray, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance [rows] of the tide at every row by all other rows."""
    if tide.variance <= 0.0:
        return np.zeros(len(arrival_s)), np.zeros(len(arrival_s))
    seen = np.clip(residual - tide.offset, -tide.most, tide.most)
    keep = np.exp(-np.diff(arrival_s) / tide.memory_s)
    before, after = _by_earlier(tide, keep, seen), _by_earlier(tide, keep[::-1], seen[::-1])[:, ::-1]
    precision = 1.0 / before[1] + 1.0 / after[1] - 1.0 / tide.variance
    return (before[0] / before[1] + after[0] / after[1]) / precision, 1.0 / precision


def _by_earlier(tide: Tide, keep: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """[2, rows] mean and variance of the tide at every row by the rows before it; `keep` [rows - 1] between rows."""
    mean, variance = 0.0, tide.variance
    found = [(mean, variance)]
    for kept, value in zip(keep.tolist(), seen[:-1].tolist(), strict=True):
        if not math.isnan(value):
            gain = variance / (variance + tide.scatter)
            mean, variance = mean + gain * (value - mean), (1.0 - gain) * variance
        mean, variance = kept * mean, tide.variance + kept * kept * (variance - tide.variance)
        found.append((mean, variance))
    return np.array(found).T
