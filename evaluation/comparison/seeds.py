"""Means over seeds with intervals."""

from collections.abc import Sequence

import numpy as np

from evaluation.comparison.bootstrap import ANYWHERE, Estimate, verdict
from offline_rl.confidence import half_width


def over_seeds(values: Sequence[float], within: tuple[float, float] = ANYWHERE) -> Estimate:
    """The mean over seeds with Student's 95 % interval; without one for a single seed.

    Args:
        values: One a seed; none may be missing.
        within: What a value can be; intervals are cut there.
    """
    num_seeds = len(values)
    if not num_seeds or not np.all(np.isfinite(values)):
        return Estimate(None, None, None, num_seeds, "undefined: a seed has no value")
    mean = float(np.mean(values))
    if num_seeds == 1:
        return Estimate(mean, None, None, 1, "no interval: one seed")
    half = half_width(np.asarray(values), 0.975)
    return Estimate(mean, max(mean - half, within[0]), min(mean + half, within[1]), num_seeds)


def named(name: str, estimate: Estimate) -> dict[str, float | None]:
    """An estimate as the columns `name`, `name_low` and `name_high` of a row."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def named_gap(name: str, gap: Estimate) -> dict[str, float | str | None]:
    """A difference as the columns of `named` and a `verdict`, where more is better."""
    return named(name, gap) | {"verdict": verdict(gap, "higher").value}
