"""What a priority rule is: a score for every waiting job; the lowest goes first, ties in order of arrival."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Waiting(NamedTuple):
    """What a rule may know of waiting jobs (never their run time).

    Attributes:
        arrival_s: [waiting] seconds after the first arrival of the replay.
        processors: [waiting] > 0.
        requested_s: [waiting] > 0.
        logged_start_s: [waiting] NaN if unknown; for the logged order alone.
    """

    arrival_s: np.ndarray
    processors: np.ndarray
    requested_s: np.ndarray
    logged_start_s: np.ndarray


class Rule(NamedTuple):
    """A priority rule.

    Attributes:
        name: as the command line spells it.
        description: one line.
        score: `score(waiting, now_s) -> [waiting]`, lowest first.
        ages: whether the order of two waiting jobs can change as time goes by.
    """

    name: str
    description: str
    score: Callable[[Waiting, float], np.ndarray]
    ages: bool = False
