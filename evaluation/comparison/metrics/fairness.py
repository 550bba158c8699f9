"""Jain's fairness index over agents: `(sum x)^2 / (n sum x^2)` of the agents' mean bounded slowdowns `x`.

1 if all agents have the same slowdown, 1/n if a single agent bears all of it (Jain, Chiu and Hawe 1984, "A quantitative
measure of fairness and discrimination"). Requests without a logged agent are left out.
"""

import numpy as np

from evaluation.comparison.bootstrap import Statistic, blocks_of
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, in_chunks
from evaluation.comparison.metrics.slowdown import has_slowdown, slowdown_of


def jain_index(value: np.ndarray, present: np.ndarray) -> np.ndarray:
    """`(sum x)^2 / (n sum x^2)` over the last axis of `value` where `present`; NaN where none is.

    Args:
        value: [..., agents] >= 0.
        present: [..., agents] bool.

    Returns:
        [...] between 1/n and 1.
    """
    kept = np.where(present, value, 0.0)
    below = present.sum(axis=-1) * np.sum(kept**2, axis=-1)
    return np.divide(np.sum(kept, axis=-1) ** 2, below, out=np.full(below.shape, np.nan), where=below > 0.0)


def _statistic(decisions: Decisions) -> Statistic:
    blocks = blocks_of(decisions.unit)
    rows = np.flatnonzero(has_slowdown(decisions) & (decisions.agent >= 0))
    agents, agent = np.unique(decisions.agent[rows], return_inverse=True)
    shape = (blocks.num_units, max(len(agents), 1))
    cell = (blocks.row_unit[rows], agent)
    num_requests, slowdown = np.zeros(shape), np.zeros(shape)
    np.add.at(num_requests, cell, 1.0)
    np.add.at(slowdown, cell, slowdown_of(decisions)[rows])

    def statistic(weights: np.ndarray) -> np.ndarray:
        drawn = weights @ num_requests
        present = drawn > 0.0
        return jain_index(weights @ slowdown / np.where(present, drawn, 1.0), present)

    return in_chunks(statistic, shape[1])


JAIN_FAIRNESS = Metric(
    "jain_fairness",
    "1",
    "higher",
    "Jain's index of the agents' mean bounded slowdowns (1: all equal)",
    ("agents", "waits", "run_times"),
    _statistic,
)
