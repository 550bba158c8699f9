"""First come, first served: `arrival`."""

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting


def _score(waiting: Waiting, _now_s: float) -> np.ndarray:
    return waiting.arrival_s


FCFS = Rule("fcfs", "first come, first served", _score)
