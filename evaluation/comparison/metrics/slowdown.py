"""Bounded slowdown: response time over run time, `max(1, (wait + run) / max(run, 10 s))`.

The bound keeps requests of a second from dominating the mean (Feitelson and Rudolph 1998, "Metrics and benchmarking
for parallel job scheduling"). Slowdowns span orders of magnitude, so the mean of their logarithm is reported as well.
It is not the reward of requests without deadlines: a slowdown divides by the actual run time, so a slow node is not
penalised (see `evaluation.comparison.metrics.response`).

A request whose record was lost on an overfull node counts as `LOST`: left out, it would favour policies that overfill
nodes.
"""

from functools import partial

import numpy as np

from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, mean, quantile
from twin.ordering.slowdown import bounded_slowdown

LOST = 1000.0
"""Bounded slowdown of a request whose record was lost."""
_NEEDS = ("waits", "run_times")


def has_slowdown(decisions: Decisions) -> np.ndarray:
    """[rows] bool: the request ran, or its record was lost."""
    return decisions.ran | decisions.lost


def slowdown_of(decisions: Decisions) -> np.ndarray:
    """[rows] bounded slowdown where the request `ran`, `LOST` where its record was lost, else 1."""
    ran = decisions.ran
    bounded = bounded_slowdown(np.where(ran, decisions.wait_s, 0.0), np.where(ran, decisions.run_s, 0.0))
    return np.where(decisions.lost, LOST, bounded)


def _mean(decisions: Decisions) -> Statistic:
    return mean(decisions, slowdown_of(decisions), has_slowdown(decisions))


def _mean_log(decisions: Decisions) -> Statistic:
    return mean(decisions, np.log(slowdown_of(decisions)), has_slowdown(decisions))


def _quantile(decisions: Decisions, level: float) -> Statistic:
    return quantile(decisions, slowdown_of(decisions), has_slowdown(decisions), level)


BOUNDED_SLOWDOWN = Metric(
    "bounded_slowdown", "1", "lower", "mean of max(1, (wait + run) / max(run, 10 s))", _NEEDS, _mean
)
BOUNDED_SLOWDOWN_P50 = Metric(
    "bounded_slowdown_p50", "1", "lower", "median bounded slowdown", _NEEDS, partial(_quantile, level=0.5)
)
BOUNDED_SLOWDOWN_P99 = Metric(
    "bounded_slowdown_p99",
    "1",
    "lower",
    "bounded slowdown that 99 % of the requests do not exceed",
    _NEEDS,
    partial(_quantile, level=0.99),
)
MEAN_LOG_SLOWDOWN = Metric(
    "mean_log_slowdown",
    "1",
    "lower",
    "mean natural logarithm of the bounded slowdown (0: no request waited)",
    _NEEDS,
    _mean_log,
)
