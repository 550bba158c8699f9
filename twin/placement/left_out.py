"""Whether something forecasts a log better: fitted on every second stretch of it, held against the others."""

import numpy as np

NUM_STRETCHES, BEYOND_CHANCE = 16, 4.0
"""Stretches of a log over which an advantage is averaged, and standard errors that it must exceed."""


def stretches(num_rows: int) -> np.ndarray:
    """[rows] the stretch of consecutive rows that each is of."""
    return np.arange(num_rows) * NUM_STRETCHES // num_rows


def halves_in_turn(stretch: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Twice: which rows are fitted, and which are left out, bool [rows]."""
    even, odd = stretch % 2 == 0, stretch % 2 == 1
    return (even, odd), (odd, even)


def clear_gain(gains: np.ndarray, stretch: np.ndarray, deviations: float = BEYOND_CHANCE) -> float:
    """Mean of the gains [rows] over the stretches; 0 where it is not clear of chance, by so many standard errors."""
    each = np.bincount(stretch, gains) / np.bincount(stretch)
    mean, error = float(each.mean()), float(each.std(ddof=1)) / np.sqrt(NUM_STRETCHES)
    return mean if mean > deviations * error else 0.0
