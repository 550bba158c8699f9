"""UNICEF: priority `wait / (log2(processors) * requested)`, highest first; fast turnaround of small jobs.

`log2(1) = 0`: a job of one processor goes before all others, and among its like by `wait / requested`. The
logarithm is bounded below by a billionth for this.

Source: Tang, Lan, Desai and Buettner 2009, "Fault-aware, utility-based job scheduling on Blue Gene/P
systems", CLUSTER; the form compared in Carastan-Santos and de Camargo 2017, "Obtaining dynamic scheduling
policies with simulation and machine learning", SC.
"""

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting

SMALLEST_LOGARITHM = 1e-9


def _score(waiting: Waiting, now_s: float) -> np.ndarray:
    size = np.maximum(np.log2(waiting.processors), SMALLEST_LOGARITHM)
    return np.asarray(-(now_s - waiting.arrival_s) / (size * waiting.requested_s))


UNICEF = Rule("unicef", "largest wait / (log2(processors) x requested) first", _score, ages=True)
