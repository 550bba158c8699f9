"""Offload ratio: the share of requests that ran away from the site where they arrived."""

from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, mean


def _statistic(decisions: Decisions) -> Statistic:
    return mean(decisions, decisions.off_site, decisions.started)


OFFLOAD_RATIO = Metric(
    "offload_ratio",
    "share",
    "none",
    "share of requests that ran away from their home site",
    ("sites",),
    _statistic,
)
