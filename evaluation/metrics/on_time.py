"""On-time throughput: the share of requests that were accepted and finished within their deadline."""

from evaluation.bootstrap import Statistic
from evaluation.decisions import Decisions
from evaluation.metrics.metric import Metric, mean


def _statistic(decisions: Decisions) -> Statistic:
    return mean(decisions, decisions.on_time, decisions.settled)


ON_TIME = Metric(
    "on_time",
    "share",
    "higher",
    "share of requests accepted, completed and finished within their deadline",
    ("deadlines", "run_times"),
    _statistic,
)
