"""Spearman's rank correlation."""

import numpy as np


def rank_correlation(one: np.ndarray, two: np.ndarray) -> float:
    """Spearman's rank correlation of two columns; NaN where one of them is constant, holds a NaN or has one row."""
    from scipy.stats import rankdata

    ranks = rankdata(one), rankdata(two)
    if len(one) < 2 or any(not np.ptp(rank) > 0 for rank in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[1, 0])


def known_rank_correlation(one: np.ndarray, two: np.ndarray) -> float | None:
    """The same; None in place of NaN."""
    found = rank_correlation(one, two)
    return None if np.isnan(found) else found
