"""Importance sampling and doubly robust estimates of a policy's value from another policy's log.

Both use the logged states: the effect of the policy's own decisions on the queues is not included. Weights of whole
stretches of decisions would include it, but reduce the effective sample size to almost nothing (see `num_decisions`).
"""

import numpy as np

from evaluation.comparison.bootstrap import blocks_of, estimate, ratio_over_units
from evaluation.judges.off_policy.logged import (
    Logged,
    OffPolicyConfig,
    OffPolicyEstimate,
    Target,
    declined,
    effective_size,
    overlap,
    ratios,
    trouble,
)


def importance_sampling(
    logged: Logged, target: Target, config: OffPolicyConfig, *, num_decisions: int = 1
) -> OffPolicyEstimate:
    """Self-normalised importance sampling, `sum w r / sum w`.

    Args:
        logged: The log.
        target: The policy.
        config: Floors below which it declines.
        num_decisions: Number of decisions whose ratios weight a decision, its own and those before it in its window, so
            that the state accounts for the policy's last decisions.

    Returns:
        The estimate; it declines where the effective sample size is too small, or the log hardly took the policy's
        actions.

    Source: Swaminathan and Joachims 2015 (self-normalised); Precup et al. 2000 (per decision).
    """
    weight = _products(ratios(logged, target, config), logged.following, num_decisions)
    size, seen = effective_size(weight), overlap(logged, target, config)
    method = "importance sampling" if num_decisions == 1 else f"importance sampling over {num_decisions}"
    why = trouble(size, seen, logged.num_rows, config)
    blocks = blocks_of(logged.unit)
    above = np.bincount(blocks.row_unit, weight * logged.reward, blocks.num_units)
    below = np.bincount(blocks.row_unit, weight, blocks.num_units)
    value = (
        declined(why) if why else estimate(ratio_over_units(above, below), blocks.num_units, config.intervals)
    )
    return OffPolicyEstimate(method, target.name, value, size, seen, logged.num_rows)


def doubly_robust(
    logged: Logged, target: Target, expected: np.ndarray, config: OffPolicyConfig
) -> OffPolicyEstimate:
    """A fitted reward, corrected by weighted residuals: consistent if either the fit or the propensities are.

        mean of sum_b pi(b | s) q(s, b)  +  sum w (r - q(s, a)) / sum w

    Args:
        logged: The log.
        target: The policy.
        expected: q [rows, A], fitted on other rows than those it is evaluated on (`fitted_reward`).
        config: Floors below which it declines.

    Returns:
        The estimate, or the reason why there is none.

    Source: Dudik et al. 2014, with self-normalised weights.
    """
    weight = ratios(logged, target, config)
    size, seen = effective_size(weight), overlap(logged, target, config)
    why = trouble(size, seen, logged.num_rows, config)
    blocks = blocks_of(logged.unit)
    direct = np.sum(target.probability * expected, axis=1)
    residual = logged.reward - expected[np.arange(logged.num_rows), logged.action]
    sums = [
        np.bincount(blocks.row_unit, column, blocks.num_units)
        for column in (direct, np.ones(logged.num_rows), weight * residual, weight)
    ]

    def statistic(drawn: np.ndarray) -> np.ndarray:
        total, count, correction, weights = (drawn @ column for column in sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(total / count + correction / weights)

    value = declined(why) if why else estimate(statistic, blocks.num_units, config.intervals)
    return OffPolicyEstimate("doubly robust", target.name, value, size, seen, logged.num_rows)


def _products(ratio: np.ndarray, following: np.ndarray, num_decisions: int) -> np.ndarray:
    """[rows] the ratio of each row times those of the `num_decisions - 1` rows before it; 0 where there are fewer."""
    if num_decisions == 1:
        return ratio
    previous = np.full(len(ratio), -1)
    has_next = np.flatnonzero(following >= 0)
    previous[following[has_next]] = has_next
    product, row = ratio.copy(), np.arange(len(ratio))
    for _ in range(num_decisions - 1):
        row = np.where(row >= 0, previous[row], -1)
        product = np.where(row >= 0, product * ratio[row], 0.0)
    return product
