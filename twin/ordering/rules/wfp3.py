"""WFP3: priority `(wait / requested)^3 * processors`, highest first; favours old, short and large jobs.

Source: Tang, Lan, Desai and Buettner 2009, "Fault-aware, utility-based job scheduling on Blue Gene/P
systems", CLUSTER; the form compared in Carastan-Santos and de Camargo 2017, "Obtaining dynamic scheduling
policies with simulation and machine learning", SC.
"""

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting


def _score(waiting: Waiting, now_s: float) -> np.ndarray:
    relative_wait = (now_s - waiting.arrival_s) / waiting.requested_s
    return np.asarray(-(relative_wait * relative_wait * relative_wait) * waiting.processors)


WFP3 = Rule("wfp3", "largest (wait / requested)^3 x processors first", _score, ages=True)
