"""Metrics: one file each; a new one is a file and a line here."""

from evaluation.comparison.metrics.accepted import ACCEPTED_RATIO
from evaluation.comparison.metrics.completed import COMPLETED_RATIO
from evaluation.comparison.metrics.fairness import JAIN_FAIRNESS
from evaluation.comparison.metrics.metric import Metric, NotApplicable
from evaluation.comparison.metrics.offload import OFFLOAD_RATIO
from evaluation.comparison.metrics.on_time import ON_TIME
from evaluation.comparison.metrics.response import MEAN_LOG_RESPONSE, MEAN_RESPONSE, RESPONSE_P95
from evaluation.comparison.metrics.slowdown import (
    BOUNDED_SLOWDOWN,
    BOUNDED_SLOWDOWN_P50,
    BOUNDED_SLOWDOWN_P99,
    MEAN_LOG_SLOWDOWN,
)
from evaluation.comparison.metrics.utilisation import UTILISATION
from evaluation.comparison.metrics.wait import MEAN_WAIT, WAIT_P50, WAIT_P90, WAIT_P99

METRICS = (
    ON_TIME,
    MEAN_LOG_RESPONSE,
    MEAN_RESPONSE,
    RESPONSE_P95,
    MEAN_LOG_SLOWDOWN,
    BOUNDED_SLOWDOWN,
    BOUNDED_SLOWDOWN_P50,
    BOUNDED_SLOWDOWN_P99,
    MEAN_WAIT,
    WAIT_P50,
    WAIT_P90,
    WAIT_P99,
    ACCEPTED_RATIO,
    OFFLOAD_RATIO,
    COMPLETED_RATIO,
    UTILISATION,
    JAIN_FAIRNESS,
)
"""Every metric, in the order of reports."""


def main_metric(reward: str) -> Metric:
    """The metric that corresponds to a reward of `PlacementConfig`."""
    return ON_TIME if reward == "on_time" else MEAN_LOG_RESPONSE


__all__ = [
    "ACCEPTED_RATIO",
    "BOUNDED_SLOWDOWN",
    "BOUNDED_SLOWDOWN_P50",
    "BOUNDED_SLOWDOWN_P99",
    "COMPLETED_RATIO",
    "JAIN_FAIRNESS",
    "MEAN_LOG_RESPONSE",
    "MEAN_LOG_SLOWDOWN",
    "MEAN_RESPONSE",
    "MEAN_WAIT",
    "METRICS",
    "OFFLOAD_RATIO",
    "ON_TIME",
    "RESPONSE_P95",
    "UTILISATION",
    "WAIT_P50",
    "WAIT_P90",
    "WAIT_P99",
    "Metric",
    "NotApplicable",
    "main_metric",
]
