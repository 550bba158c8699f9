"""F1: `log10(requested) * processors + 870 * log10(arrival)`, lowest first; a formula fitted to simulations.

The arrival counts from the first job of the replay, so the formula depends on where a log begins; before the
first second it counts as one second.

Source: Carastan-Santos and de Camargo 2017, "Obtaining dynamic scheduling policies with simulation and
machine learning", SC, function F1.
"""

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting


def _score(waiting: Waiting, _now_s: float) -> np.ndarray:
    size = np.log10(waiting.requested_s) * waiting.processors
    return np.asarray(size + 870.0 * np.log10(np.maximum(waiting.arrival_s, 1.0)))


F1 = Rule("f1", "lowest log10(requested) x processors + 870 log10(arrival) first", _score)
