"""Product of marginals: every column right by itself and nothing right together.

It passes any table of one-column divergences, so no such table proves anything; it stands beside every population that
is reported.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from twin.contracts import Array, PyTree
from twin.population.encoding import AgentEncoding
from twin.population.population import Population, Training


@dataclass(frozen=True)
class MarginalsConfig:
    """Nothing to choose."""


def marginals(config: MarginalsConfig | None = None) -> Population:
    """The product of marginals as a population."""
    return Population("marginals", config or MarginalsConfig(), _fit, _sample, _structure)


def _fit(key: Array, encoding: AgentEncoding, training: Training) -> tuple[PyTree, dict[str, Any]]:
    return {"rows": training.rows}, {}


def _sample(key: Array, encoding: AgentEncoding, parameters: PyTree, conditions: np.ndarray) -> np.ndarray:
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    rows = np.asarray(parameters["rows"])
    parts = []
    for block in encoding.blocks:
        chosen = random.integers(0, rows.shape[1], conditions.shape[1])
        parts.append(rows[block.start : block.start + block.width, chosen])
    return np.concatenate(parts)


def _structure(encoding: AgentEncoding) -> PyTree:
    return {"rows": 0}
