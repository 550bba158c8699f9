"""Accuracy of the judges.

The value of the logged policy is known from the log; the difference of a twin's value to it is the twin's error. Where
the truth is available, each judge's rank correlation and error over all policies are computed as well.
"""

from collections.abc import Sequence

import numpy as np

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.entries import JudgeTrust, Run, is_far
from evaluation.comparison.metrics import Metric
from evaluation.comparison.rank_correlation import known_rank_correlation

HISTORY, REPLAY, TRUTH = "history", "replay", "truth"
MIN_POLICIES = 4


def judges_trust(runs: Sequence[Run], metric: Metric) -> list[JudgeTrust]:
    """Every judge's agreement with the log and, where known, with the truth.

    Returns:
        One entry for each judge but the truth, and each shift, where there is a reference value.
    """
    values, far = known_values(runs, metric), dict[tuple[str, int], set[str]]()
    for run in runs:
        if is_far(run.out_of_support):
            far.setdefault((run.judge, run.shift_days), set()).add(run.policy)
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


def trust_in(comparison: Comparison, judge: str) -> list[JudgeTrust]:
    """A judge's agreement with the truth in the main metric, from the values of a comparison; empty without a truth."""

    def values(judge: str, shift_days: int) -> dict[str, float]:
        found = {
            one.name: comparison.cell(judge, shift_days, one.name, comparison.main_metric)
            for one in comparison.policies
        }
        return {name: one.value for name, one in found.items() if one is not None and one.value is not None}

    trust = []
    for shift in comparison.shifts:
        found, true = values(judge, shift.shift_days), values(TRUTH, shift.shift_days)
        one = JudgeTrust(judge, shift.shift_days, None, None, *_against(found, true))
        if one.error is not None:
            trust.append(one)
    return trust


def known_values(runs: Sequence[Run], metric: Metric) -> dict[tuple[str, int], dict[str, float]]:
    """(judge, shift) -> policy -> what the metric comes to, where it is a finite number."""
    values: dict[tuple[str, int], dict[str, float]] = {}
    for run in runs:
        value = metric.compute(run.decisions)
        if isinstance(value, float) and np.isfinite(value):
            values.setdefault((run.judge, run.shift_days), {})[run.policy] = value
    return values


def _against(
    found: dict[str, float], true: dict[str, float]
) -> tuple[float | None, float | None, float | None, int]:
    """Mean absolute error, bias, rank correlation and number of policies; None and 0 for fewer than `MIN_POLICIES`."""
    both = sorted(found.keys() & true.keys())
    if len(both) < MIN_POLICIES:
        return None, None, None, 0
    estimates, truths = (np.array([values[policy] for policy in both]) for values in (found, true))
    rank = known_rank_correlation(estimates, truths)
    errors = estimates - truths
    return float(np.mean(np.abs(errors))), float(np.mean(errors)), rank, len(both)
