"""Bounded slowdown: how many times longer a job took than it ran (Feitelson and Rudolph 1998)."""

import numpy as np

THRESHOLD_S = 10.0
"""Run times below count as this long: jobs of a second must not rule a mean."""


def bounded_slowdown(wait_s: np.ndarray, run_s: np.ndarray) -> np.ndarray:
    """`max(1, (wait + run) / max(run, 10 s))` of waits and run times of any one shape."""
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, THRESHOLD_S))
