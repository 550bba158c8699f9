"""Bootstrap of training rows: the ceiling for fidelity, and of no use for anything that was not logged.

A row is drawn among the rows of the same scenario that are nearest in time of day: a twelfth of them, and where
that is few, more (`near_share`); a window of few rows would show each of them too often. Agents are dealt like cards:
the agent shown least so far is next, evenly among equals. In real logs the same agents come again from day to
day, so that shares of independent draws scatter more than those of days do (columns of wagap by up to 2.5 times).
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from twin.contracts import Array, PyTree
from twin.population.encoding import AgentEncoding, near_share
from twin.population.population import Population, Training


@dataclass(frozen=True)
class ResamplingConfig:
    """Nothing to choose."""


def bootstrap(config: ResamplingConfig | None = None) -> Population:
    """The bootstrap as a population."""
    return Population("bootstrap", config or ResamplingConfig(), _fit, _sample, _structure)


def _fit(key: Array, encoding: AgentEncoding, training: Training) -> tuple[PyTree, dict[str, Any]]:
    unit = np.unique(training.unit, return_inverse=True)[1].astype(np.int32)
    return {"rows": training.rows, "conditions": training.conditions, "unit": unit}, {}


def _sample(key: Array, encoding: AgentEncoding, parameters: PyTree, conditions: np.ndarray) -> np.ndarray:
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    rows, logged, unit = (np.asarray(parameters[name]) for name in ("rows", "conditions", "unit"))
    theirs, wanted = (encoding.scenario_codes(some) for some in (logged, conditions))
    time, at = (encoding.day_fraction(some) for some in (logged, conditions))
    shown = np.zeros(int(unit.max()) + 1)
    chosen = np.zeros(len(wanted), np.int64)
    for one in np.unique(wanted):
        among = np.flatnonzero(theirs == one)
        among = among[np.argsort(time[among], kind="stable")]
        num_near = max(1, round(near_share(len(among)) * len(among)))
        away = np.arange(num_near) - num_near // 2
        places = random.permutation(np.flatnonzero(wanted == one))
        for place, nearest in zip(places, np.searchsorted(time[among], at[places]), strict=True):
            near = among[(nearest + away) % len(among)]
            chosen[place] = near[np.argmin(shown[unit[near]] + random.random(num_near))]
            shown[unit[chosen[place]]] += 1.0
    return np.asarray(rows[:, chosen])


def _structure(encoding: AgentEncoding) -> PyTree:
    return {"rows": 0, "conditions": 0, "unit": 0}
