"""Shortest job first: `requested`, since the run time is not known before the end."""

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting


def _score(waiting: Waiting, _now_s: float) -> np.ndarray:
    return waiting.requested_s


SJF = Rule("sjf", "shortest requested time first", _score)
