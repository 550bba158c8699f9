"""A tide of two states: run times are usual, or for a while all longer or shorter by one factor.

A tide that rises and falls by diffusion (`tides`) smooths what switches: regimes of long requests are read as shorter
at their edges and in their midst, and what is read is neither state. So where an Ornstein-Uhlenbeck process is found,
a Markov chain of two states in continuous time is tried too: forward and backward passes give the chance of either
state at every arrival by all other runs (L. Baum et al., 1970), under Student's density, and its settings are searched
for along their coordinates. The better forecast of the log's own runs is taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from twin.placement.run_filter import robust_deviation

SHIFTS, TIMES_S = (-1.5, -0.7, 0.7, 1.5), (120.0, 600.0, 3_000.0)
"""Settings that the search begins from."""
FACTORS = {"shift": 1.2, "usual_s": 1.6, "other_s": 1.6, "scatter": 1.2}
"""Steps of the search, up and down."""
STEP = 0.1
"""Step of the search for what is usual, in logarithms of seconds."""
LEAST_S, MOST_S = 30.0, 40_000.0
"""How long a state may last in the mean."""
KEPT = 0.99
"""Share of runs that count as they are where means are taken."""
MOST_STEPS = 30
MOST_EVIDENCE = 8.0
"""Logarithm of the odds that one run may be worth."""
TAILS = 4.0
"""Degrees of freedom of Student's density, by which settings are judged: outliers would decide by a Gaussian one."""


@dataclass(frozen=True)
class Switching:
    """Two states of run times; logarithms of seconds.

    Attributes:
        shift: Of runs in the other state.
        usual_s: That the usual state lasts in the mean.
        other_s: That the other state does.
        offset: Usual residual.
        scatter: Squared scale of Student's density of one run.
    """

    shift: float
    usual_s: float
    other_s: float
    offset: float
    scatter: float

    @property
    def share(self) -> float:
        """Of the time that the other state lasts."""
        return self.other_s / (self.usual_s + self.other_s)

    @property
    def memory_s(self) -> float:
        """Time in which what is known of the state fades to 1/e."""
        return self.share * self.usual_s

    @property
    def variance(self) -> float:
        """Of the shift, over time."""
        return self.shift**2 * self.share * (1.0 - self.share)


def fit_switching(arrival_s: np.ndarray, residual: np.ndarray) -> tuple[Switching, float]:
    """The most likely two states, and the log likelihood of every run given all others [nats, but for a constant].

    Args:
        arrival_s: [rows] ascending.
        residual: [rows] log(run / run time by the tables), all known.
    """
    offset = float(np.median(residual))
    scatter = robust_deviation(residual) ** 2
    tried = [
        Switching(shift, usual_s, other_s, offset, scatter)
        for shift, usual_s, other_s in product(SHIFTS, TIMES_S, TIMES_S)
    ]
    best, most = tried[0], -math.inf
    for _ in range(MOST_STEPS):
        runs = _states_of(tried, residual)
        gained = _likelihood(_by_earlier(tried, np.diff(arrival_s), runs.odds), runs)
        at = int(np.argmax(gained))
        if gained[at] <= most:
            break
        best, most = tried[at], float(gained[at])
        tried = _around(best)
    runs = _states_of([best], residual)
    chance = _by_others(best, arrival_s, runs.odds)
    return _with_mean_shift(best, chance[:, 0], residual), float(_likelihood(chance, runs)[0])


def _with_mean_shift(law: Switching, chance: np.ndarray, residual: np.ndarray) -> Switching:
    """The law whose shift, within a step of the search, is that of the mean run between the states: what queues behind
    them goes by the mean. Runs farther from their state than `KEPT` of all count as so far. `chance` [rows] is that of
    the other state."""
    of_state = law.offset + law.shift * (chance > 0.5)
    farthest, step = np.quantile(np.abs(residual - of_state), KEPT), FACTORS["shift"]
    ratio = np.exp(of_state + np.clip(residual - of_state, -farthest, farthest))
    other, usual = (np.sum(share * ratio) / np.sum(share) for share in (chance, 1.0 - chance))
    least, most = sorted((law.shift / step, law.shift * step))
    return replace(law, shift=min(max(float(np.log(other / usual)), least), most))


def chance_along(law: Switching, arrival_s: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """[rows] chance of the other state at every arrival (ascending) by all other runs; residuals are NaN where
    unknown."""
    return _by_others(law, arrival_s, _states_of([law], residual).odds)[:, 0]


def drawn_states(generator: np.random.Generator, law: Switching, arrival_s: np.ndarray) -> np.ndarray:
    """[rows] bool: the state at generated arrivals [rows] (ascending), of which no run tells; stationary."""
    keep = np.concatenate([[0.0], np.exp(-np.diff(arrival_s) / law.memory_s)])[: len(arrival_s)]
    is_other, found = False, []
    for kept, uniform in zip(keep.tolist(), generator.uniform(size=len(keep)).tolist(), strict=True):
        is_other = uniform < law.share + kept * (is_other - law.share)
        found.append(is_other)
    return np.array(found, bool)


class _States(NamedTuple):
    """What every run is worth in either state; leaves [rows, settings]."""

    usual: np.ndarray  # log densities, but for a constant; NaN where a run is unknown
    other: np.ndarray
    odds: np.ndarray  # of the other state to the usual one, by that run; 1 where it is unknown


def _around(law: Switching) -> list[Switching]:
    """The next settings along every coordinate."""
    found = [replace(law, offset=law.offset + step) for step in (-STEP, STEP)]
    for name, factor in FACTORS.items():
        for one in (getattr(law, name) * factor, getattr(law, name) / factor):
            found.append(replace(law, **{name: one}))
    return [
        one
        for one in found
        if LEAST_S <= min(one.usual_s, one.other_s) <= max(one.usual_s, one.other_s) <= MOST_S
    ]


def _column(tried: Sequence[Switching], name: str) -> np.ndarray:
    return np.array([getattr(one, name) for one in tried])


def _states_of(tried: Sequence[Switching], residual: np.ndarray) -> _States:
    scatter, error = _column(tried, "scatter"), residual[:, None] - _column(tried, "offset")

    def density(error: np.ndarray) -> np.ndarray:
        return -0.5 * (TAILS + 1.0) * np.log1p(error**2 / (TAILS * scatter)) - 0.5 * np.log(scatter)

    usual, other = density(error), density(error - _column(tried, "shift"))
    evidence = np.clip(np.nan_to_num(other - usual), -MOST_EVIDENCE, MOST_EVIDENCE)
    return _States(usual, other, np.exp(evidence))


def _by_others(law: Switching, arrival_s: np.ndarray, odds: np.ndarray) -> np.ndarray:
    """[rows, 1] the chance of the other state by all other runs; `odds` [rows, 1]."""
    gap_s = np.diff(arrival_s)
    before = _by_earlier([law], gap_s, odds)
    after = _by_earlier([law], gap_s[::-1], odds[::-1])[::-1]
    both = before * after / law.share
    return both / (both + (1.0 - before) * (1.0 - after) / (1.0 - law.share))


def _by_earlier(tried: Sequence[Switching], gap_s: np.ndarray, odds: np.ndarray) -> np.ndarray:
    """[rows, settings] the chance of the other state by the rows before each.

    Args:
        tried: The settings.
        gap_s: [rows - 1] between rows.
        odds: [rows, settings] what every row is worth.
    """
    share, found = _column(tried, "share"), np.empty_like(odds)
    keep = np.exp(-gap_s[:, None] / _column(tried, "memory_s"))
    chance = share
    for row in range(len(odds)):
        found[row] = chance
        weight = chance * odds[row]
        if row < len(keep):
            chance = share + keep[row] * (weight / (weight + 1.0 - chance) - share)
    return np.clip(found, 1e-9, 1.0 - 1e-9)


def _likelihood(chance: np.ndarray, runs: _States) -> np.ndarray:
    """[settings] log likelihood of runs of which the chance of the other state is known."""
    with np.errstate(divide="ignore"):  # of a state that is certain
        logs = np.logaddexp(np.log1p(-chance) + runs.usual, np.log(chance) + runs.other)
    found: np.ndarray = np.sum(logs, axis=0)
    return found
