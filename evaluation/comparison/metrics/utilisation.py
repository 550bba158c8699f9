"""Utilisation: core-seconds used over core-seconds available.

Only run time inside the window counts, and only of requests decided in it: work carried in from before the window and
work after its end belong to other windows. With long requests and short windows this understates the load of the
system; the metric is meant for the comparison of policies.
"""

import numpy as np

from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.decisions import Decisions
from evaluation.comparison.metrics.metric import Metric, ratio


def _statistic(decisions: Decisions) -> Statistic:
    begin_s = np.where(decisions.started, np.maximum(decisions.start_s, decisions.begin_s), 0.0)
    end_s = np.where(decisions.started, np.fmin(decisions.finish_s, decisions.end_s), 0.0)
    used = decisions.demand[0] * np.maximum(end_s - begin_s, 0.0)
    return ratio(decisions, used, decisions.capacity[0] * decisions.span_s)


UTILISATION = Metric(
    "utilisation",
    "share",
    "none",
    "core-seconds used within the window by requests decided in it, over capacity times its length",
    ("capacities", "waits", "run_times"),
    _statistic,
)
