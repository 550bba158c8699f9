"""The index of predicted run times: an order of waiting jobs, and what trained orders start from.

Minimising the sum of slowdowns is minimising the sum of waits weighted by `w = 1 / max(run, 10 s)`, and on one machine
the order that does so is by `w / run` (Smith 1956, "Various optimizers for single-stage production"); here by
processors too, since a job holds several. Run times are not known, so their expectations take their place
(`offline_rl.ordering.predicting`):

    index  = a log haste - b log(share x requested) - c log requested - d log processors + e days waited

The highest goes first. Without a and b the index is smallest area first (c = d) or shortest first (d = 0); with e no
job waits for ever. The exponents are Smith's (`SMITH`): those that a search in generated months found were no better in
later weeks.
"""

from typing import NamedTuple

import jax
import numpy as np

from offline_rl.ordering.predicting import NETWORK, SEEN, TIME_UNIT_S, history_of
from twin.contracts import PyTree
from twin.ordering.types import Jobs, Pool
from twin.ordering.user_history_replay import Score

SMITH = np.array([1.0, 1.0, 0.0, 1.0, 0.06])
"""Exponents: expected weight over expected processor seconds, and ageing by 6 % a day."""
KNOTS = np.array([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0])
"""Where log(1 + exp(x)) is taken as it is; between them as a line, below the first as 0: off by .05 at most."""


class Index(NamedTuple):
    """An order of waiting jobs: the highest index goes first.

    Attributes:
        predictor: Parameters of the prediction of run times.
        exponents: [5] a, b, c, d and e.
    """

    predictor: PyTree
    exponents: np.ndarray

    def score(self, jobs: Jobs, pool: Pool) -> Score:
        """The index of jobs that have not waited, for `twin.ordering.user_history_replay`; that ages it itself."""
        layers = [
            tuple(
                np.asarray(self.predictor["params"][f"Dense_{number}"][name]) for name in ("kernel", "bias")
            )
            for number in range(3)
        ]
        requested = np.log1p(jobs.requested_s / TIME_UNIT_S).astype(np.float32)
        width = (np.log1p(jobs.processors) / np.log1p(pool.processors)).astype(np.float32)
        a, b, c, d, _ = self.exponents

        def score(rows: np.ndarray, memory: np.ndarray) -> np.ndarray:
            hidden = np.stack([requested[rows], *history_of(memory), width[rows]], axis=1).astype(np.float32)
            for kernel, bias in layers[:2]:
                hidden = np.maximum(hidden @ kernel + bias, 0.0)
            log_haste, log_share = log_logistic(hidden @ layers[2][0] + layers[2][1]).T
            log_processors = width[rows] * np.log1p(pool.processors)
            return np.asarray(a * log_haste - b * log_share - (b + c) * requested[rows] - d * log_processors)

        return score


def some_index() -> Index:
    """An index that has learned nothing: the structure of every other."""
    return Index(NETWORK.init(jax.random.key(0), np.zeros((len(SEEN), 1), np.float32)), SMITH)


def log_logistic(logit: np.ndarray) -> np.ndarray:
    """log(1 / (1 + exp(-logit))) as a line through its values at minus `KNOTS`."""
    rises = np.maximum(-logit[..., None] - KNOTS, 0.0)
    return np.asarray(-rises @ bends())


def bends() -> np.ndarray:
    """[knots] by how much the slope of the line grows at every knot."""
    heights = np.logaddexp(0.0, KNOTS) - np.logaddexp(0.0, KNOTS[0])
    slopes = np.append(np.diff(heights) / np.diff(KNOTS), 1.0)
    return np.diff(slopes, prepend=0.0)
