"""Completed ratio: the share of accepted requests that completed; requests lost on overfull nodes did not."""

from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, mean
from twin.placement.types import COMPLETED


def _statistic(decisions: Decisions) -> Statistic:
    return mean(decisions, decisions.status == COMPLETED, decisions.judged & decisions.accepted)


COMPLETED_RATIO = Metric(
    "completed_ratio",
    "share",
    "higher",
    "share of accepted requests that completed, rather than failed or were dropped",
    ("statuses",),
    _statistic,
)
