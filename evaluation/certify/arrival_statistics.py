"""Statistics of arrivals: rate, daily profile, dispersion and autocorrelation."""

from typing import NamedTuple

import numpy as np

PARTS_OF_DAY = 12
"""Parts into which the paper cuts a day (Xiong et al., figure 4)."""


class ArrivalStatistics(NamedTuple):
    """Statistics of the arrivals of one day (or a part of it)."""

    rate_per_s: float
    # variance over mean of counts in windows, the daily profile removed; 1 for a Poisson process
    dispersion: float
    autocorrelation: float  # of neighbouring gaps' logarithms, in [-1, 1]; 0 for a Poisson process
    # squared coefficient of variation of the gaps; 1 for a Poisson process of constant rate
    gap_variation: float


def arrival_statistics(
    arrival_s: np.ndarray, length_s: float, *, num_parts: int = PARTS_OF_DAY
) -> ArrivalStatistics:
    """The statistics of sorted arrivals.

    Args:
        arrival_s: [arrivals] seconds in [0, length_s), sorted.
        length_s: Length of the day.
        num_parts: Parts of the day.

    Returns:
        The statistics; NaN where there are too few arrivals.
    """
    gaps_s = np.diff(arrival_s)
    gaps_s = gaps_s[gaps_s > 0]
    many = len(gaps_s) >= 20
    variation = float(np.var(gaps_s) / np.mean(gaps_s) ** 2) if many else float("nan")
    memory = _neighbours(np.log(gaps_s)) if many else float("nan")
    return ArrivalStatistics(
        len(arrival_s) / length_s, _dispersion(arrival_s, length_s, num_parts), memory, variation
    )


def _dispersion(arrival_s: np.ndarray, length_s: float, num_parts: int) -> float:
    """Index of dispersion of counts in windows of about ten arrivals, each against the mean of its part of the day."""
    per_part = max(2, int(len(arrival_s) / 10 / num_parts))
    counts = np.histogram(arrival_s, bins=num_parts * per_part, range=(0.0, length_s))[0]
    by_part = counts.reshape(num_parts, per_part)
    mean = by_part.mean(axis=1)
    busy = mean > 0
    if not busy.any():
        return float("nan")
    variance = by_part[busy].var(axis=1, ddof=1)
    return float(variance.sum() / mean[busy].sum())


def _neighbours(values: np.ndarray) -> float:
    centred = values - values.mean()
    square = float(np.sum(centred**2))
    return float(np.sum(centred[1:] * centred[:-1]) / square) if square > 0 else 0.0
