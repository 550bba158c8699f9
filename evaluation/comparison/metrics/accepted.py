"""Accepted ratio: the share of offers that agents accepted. Censored requests count: acceptance is immediate."""

import numpy as np

from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, mean


def _statistic(decisions: Decisions) -> Statistic:
    return mean(decisions, decisions.accepted, np.ones(decisions.num_rows, np.bool_))


ACCEPTED_RATIO = Metric(
    "accepted_ratio", "share", "higher", "share of offers that the agents accepted", ("answers",), _statistic
)
