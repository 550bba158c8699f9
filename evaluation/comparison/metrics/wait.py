"""Waits: seconds from arrival to start, over the requests that are known to have started."""

from functools import partial

from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, mean, quantile


def _mean(decisions: Decisions) -> Statistic:
    return mean(decisions, decisions.wait_s, decisions.started)


def _quantile(decisions: Decisions, level: float) -> Statistic:
    return quantile(decisions, decisions.wait_s, decisions.started, level)


def _percentile(percent: int) -> Metric:
    description = f"wait that {percent} % of the started requests do not exceed"
    return Metric(
        f"wait_p{percent}", "s", "lower", description, ("waits",), partial(_quantile, level=percent / 100)
    )


MEAN_WAIT = Metric("mean_wait", "s", "lower", "mean wait of the started requests", ("waits",), _mean)
WAIT_P50 = _percentile(50)
WAIT_P90 = _percentile(90)
WAIT_P99 = _percentile(99)
