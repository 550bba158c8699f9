"""On-time throughput: the share of requests that were accepted and finished within their deadline.

A request whose record was lost on an overfull node counts as late: left out, it would favour policies that overfill
nodes.
"""

from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, mean


def _statistic(decisions: Decisions) -> Statistic:
    return mean(decisions, decisions.on_time, decisions.judged)


ON_TIME = Metric(
    "on_time",
    "share",
    "higher",
    "share of requests accepted, completed and finished within their deadline",
    ("deadlines", "run_times"),
    _statistic,
)
