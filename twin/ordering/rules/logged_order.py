"""The logged order: by the logged start; jobs without one go last.

What history decided, on this machine: never the logged waits themselves, which depend on more than a replay has.
"""

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting


def _score(waiting: Waiting, _now_s: float) -> np.ndarray:
    return np.where(np.isnan(waiting.logged_start_s), np.inf, waiting.logged_start_s)


LOGGED_ORDER = Rule("logged_order", "in the order in which the log started them", _score)
