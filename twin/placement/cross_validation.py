"""Whether something forecasts a log better: fitted on every second stretch of it, held against the others."""

from collections.abc import Callable

import numpy as np

NUM_STRETCHES, BEYOND_CHANCE = 16, 4.0
"""Stretches of a log over which an advantage is averaged, and standard errors that it must exceed."""

MIN_RUNS, LEAST_GAIN = 320, 0.02
"""Rows without which nothing is fitted by `forecasts_better`, and the share of the variance that it must gain: less is
not worth tables of its own."""


def forecasts_better(
    num_rows: int, errors: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> bool:
    """Whether a fit forecasts what is left out of it, beyond chance and by a share of the variance.

    Args:
        num_rows: Of the log.
        errors: (rows that are fitted, rows that are left out), bool [rows] -> squared errors of the latter without the
            fit, and with it.
    """
    stretch, plain, gains = stretches(num_rows), np.empty(num_rows), np.empty(num_rows)
    for fitted, held in halves_in_turn(stretch):
        plain[held], found = errors(fitted, held)
        gains[held] = plain[held] - found
    return clear_gain(gains, stretch) > LEAST_GAIN * float(plain.mean())


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
