"""How far a mean may be from the truth, by Student's t."""

import math

import numpy as np
from scipy.special import stdtrit


def half_width(values: np.ndarray, level: float) -> float:
    """What a mean of independent values may be off by, to one side, with confidence `level`; infinite of fewer than two
    values."""
    if len(values) < 2:
        return math.inf
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(stdtrit(len(values) - 1, level)) * error
