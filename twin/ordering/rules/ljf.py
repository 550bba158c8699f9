"""Largest job first: `-processors`, so that wide jobs do not starve behind narrow ones."""

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting


def _score(waiting: Waiting, _now_s: float) -> np.ndarray:
    return -waiting.processors


LJF = Rule("ljf", "largest job first: most processors", _score)
