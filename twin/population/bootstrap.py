"""Bootstrap of training rows: the ceiling for fidelity, and of no use for anything that was not logged.

A row is drawn among those of the scenario asked for and of the same part of the day; among all of the scenario where
that part has none.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from twin.contracts import Array, PyTree
from twin.population.encoding import NUM_HARMONICS, AgentEncoding
from twin.population.population import Population, Training

NUM_PARTS = 12


@dataclass(frozen=True)
class BootstrapConfig:
    """Nothing to choose."""


def bootstrap(config: BootstrapConfig | None = None) -> Population:
    """The bootstrap as a population."""
    return Population("bootstrap", config or BootstrapConfig(), _fit, _sample, _structure)


def _fit(key: Array, encoding: AgentEncoding, training: Training) -> tuple[PyTree, dict[str, Any]]:
    return {"rows": training.rows, "conditions": training.conditions}, {}


def _sample(key: Array, encoding: AgentEncoding, parameters: PyTree, conditions: np.ndarray) -> np.ndarray:
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    cells = cells_of(encoding, parameters["conditions"])
    wanted = cells_of(encoding, conditions)
    chosen = np.zeros(len(wanted), np.int64)
    for cell in np.unique(wanted):
        asks = np.flatnonzero(wanted == cell)
        among = np.flatnonzero(cells == cell)
        if not len(among):
            among = np.flatnonzero(cells // NUM_PARTS == cell // NUM_PARTS)
        chosen[asks] = random.choice(among, len(asks))
    return np.asarray(parameters["rows"])[:, chosen]


def _structure(encoding: AgentEncoding) -> PyTree:
    return {"rows": 0, "conditions": 0}


def cells_of(encoding: AgentEncoding, conditions: np.ndarray) -> np.ndarray:
    """[rows] scenario times `NUM_PARTS` plus part of the day, of encoded conditions."""
    num_scenarios = len(encoding.scenarios)
    scenario = np.argmax(conditions[:num_scenarios], axis=0)
    cosine, sine = conditions[num_scenarios], conditions[num_scenarios + NUM_HARMONICS]
    day_fraction = np.arctan2(sine, cosine) / (2.0 * np.pi) % 1.0
    return scenario * NUM_PARTS + np.minimum((day_fraction * NUM_PARTS).astype(int), NUM_PARTS - 1)
