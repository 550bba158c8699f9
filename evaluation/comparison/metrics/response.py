"""Response times of completed requests, from arrival to finish: in seconds, and relative to the expected run time.

The mean log of response time over expected run time is minus the reward where no request has a deadline. The expected
run time is the requested one, or the service's mean over all nodes, never the actual one. As in the reward, refused,
failed, dropped and lost requests count with the worst value, so that completing fewer requests is not rewarded.
"""

from functools import partial

import numpy as np

from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, mean, quantile
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.rewards import LEAST_S
from twin.placement.types import COMPLETED

WORST = PlacementConfig().worst_response
_NEEDS = ("waits", "run_times")


def completed(decisions: Decisions) -> np.ndarray:
    """[rows] bool: the request is known to have completed."""
    return decisions.settled & decisions.accepted & (decisions.status == COMPLETED)


def response_s(decisions: Decisions) -> np.ndarray:
    """[rows] from arrival to finish; 0 where the request is not known to have completed."""
    return np.where(completed(decisions), decisions.finish_s - decisions.arrival_s, 0.0)


def _mean(decisions: Decisions) -> Statistic:
    return mean(decisions, response_s(decisions), completed(decisions))


def _quantile(decisions: Decisions, level: float) -> Statistic:
    return quantile(decisions, response_s(decisions), completed(decisions), level)


def _mean_log(decisions: Decisions) -> Statistic:
    expected_s = np.maximum(decisions.expected_run_s, LEAST_S)
    ratio = np.clip(np.maximum(response_s(decisions), LEAST_S) / expected_s, 1.0 / WORST, WORST)
    return mean(decisions, np.log(np.where(completed(decisions), ratio, WORST)), decisions.judged)


MEAN_RESPONSE = Metric(
    "mean_response", "s", "lower", "mean time from arrival to finish of completed requests", _NEEDS, _mean
)
RESPONSE_P95 = Metric(
    "response_p95",
    "s",
    "lower",
    "response time that 95 % of the completed requests do not exceed",
    _NEEDS,
    partial(_quantile, level=0.95),
)
MEAN_LOG_RESPONSE = Metric(
    "mean_log_response",
    "1",
    "lower",
    "mean natural logarithm of response time over expected run; what does not complete counts as 1000 expected runs",
    _NEEDS,
    _mean_log,
)
