"""How far the judges themselves may be believed, in the words of the numbers at hand.

The log knows what the logged policy was worth. A twin that gives it another value is off by that much, whatever it says
of other policies. Where the truth is at hand, each judge's ranking and error over all policies are told as well.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from evaluation.comparison import Run
from evaluation.metrics import Metric

HISTORY, REPLAY, TRUTH = "history", "replay", "truth"
MIN_POLICIES = 4


def judges_notes(runs: Sequence[Run], metric: Metric) -> list[str]:
    """Sentences on every judge's agreement with the log and, where known, with the truth.

    Args:
        runs: All runs of a comparison.
        metric: The main metric.

    Returns:
        One sentence for each judge and shift.
    """
    values: dict[tuple[str, int], dict[str, float]] = {}
    for run in runs:
        value = metric.compute(run.decisions)
        if isinstance(value, float) and np.isfinite(value):
            values.setdefault((run.judge, run.shift_days), {})[run.policy] = value
    notes = []
    for (judge, shift), found in values.items():
        if judge not in (REPLAY, TRUTH):
            notes += _against_log(judge, shift, found, values.get((REPLAY, shift), {}), metric.name)
        if judge != TRUTH:
            notes += _against_truth(judge, shift, found, values.get((TRUTH, shift), {}), metric.name)
    return notes


def _against_log(
    judge: str, shift: int, found: dict[str, float], logged: dict[str, float], name: str
) -> list[str]:
    if HISTORY not in found or HISTORY not in logged:
        return []
    return [
        f"{judge}, shift {shift}d: gives the logged decisions {name} {found[HISTORY]:.3f}; in the log they were worth "
        f"{logged[HISTORY]:.3f} ({found[HISTORY] - logged[HISTORY]:+.3f})"
    ]


def _against_truth(
    judge: str, shift: int, found: dict[str, float], true: dict[str, float], name: str
) -> list[str]:
    both = sorted(found.keys() & true.keys())
    if len(both) < MIN_POLICIES:
        return []
    told, was = np.array([found[policy] for policy in both]), np.array([true[policy] for policy in both])
    rank = float(spearmanr(told, was).statistic)
    return [
        f"{judge}, shift {shift}d against the truth: {name} off by {np.mean(np.abs(told - was)):.3f} on average "
        f"({np.mean(told - was):+.3f} bias), rank correlation {rank:.2f} over {len(both)} policies"
    ]
