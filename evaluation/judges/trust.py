"""How far the judges themselves may be believed.

The log knows what the logged policy was worth. A twin that gives it another value is off by that much, whatever it says
of other policies. Where the truth is at hand, each judge's ranking and error over all policies are told as well.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from evaluation.comparison.entries import JudgeTrust, Run, is_far
from evaluation.comparison.metrics import Metric

HISTORY, REPLAY, TRUTH = "history", "replay", "truth"
MIN_POLICIES = 4


def judges_trust(runs: Sequence[Run], metric: Metric) -> list[JudgeTrust]:
    """Every judge's agreement with the log and, where known, with the truth.

    Args:
        runs: All runs of a comparison.
        metric: The main metric.

    Returns:
        One entry for each judge but the truth, and each shift, where anything is known.
    """
    values: dict[tuple[str, int], dict[str, float]] = {}
    far: dict[tuple[str, int], set[str]] = {}
    for run in runs:
        if is_far(run.out_of_support):
            far.setdefault((run.judge, run.shift_days), set()).add(run.policy)
        value = metric.compute(run.decisions)
        if isinstance(value, float) and np.isfinite(value):
            values.setdefault((run.judge, run.shift_days), {})[run.policy] = value
    trust = []
    for (judge, shift), found in values.items():
        if judge == TRUTH:
            continue
        logged = values.get((REPLAY, shift), {}).get(HISTORY)
        true, beyond = values.get((TRUTH, shift), {}), far.get((judge, shift), set())
        near = {policy: value for policy, value in found.items() if policy not in beyond}
        error_near, _, _, num_near = _against(near, true)
        one = JudgeTrust(
            judge, shift, found.get(HISTORY), logged, *_against(found, true), error_near, num_near
        )
        if one.error is not None or (judge != REPLAY and None not in (one.told, one.logged)):
            trust.append(one)
    return trust


def _against(
    found: dict[str, float], true: dict[str, float]
) -> tuple[float | None, float | None, float | None, int]:
    """Mean absolute error, bias, rank correlation and number of policies; too few policies are no ranking."""
    both = sorted(found.keys() & true.keys())
    if len(both) < MIN_POLICIES:
        return None, None, None, 0
    told, was = np.array([found[policy] for policy in both]), np.array([true[policy] for policy in both])
    is_ranked = np.ptp(told) > 0 and np.ptp(was) > 0
    rank = float(spearmanr(told, was).statistic) if is_ranked else None
    return float(np.mean(np.abs(told - was))), float(np.mean(told - was)), rank, len(both)
