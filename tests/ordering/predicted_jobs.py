"""Jobs of users, a tuple each."""

import numpy as np

from twin.ordering.predicted import PredictedOrder
from twin.ordering.types import Jobs

FIRST_COME = PredictedOrder(run_weight=0.0, width_weight=0.0)


def jobs_of(*rows):
    """(arrival, processors, requested, run, user) a job."""
    arrival_s, processors, requested_s, run_s, agent = np.array(rows, float).T
    names = np.array([str(number) for number in range(len(rows))])
    return Jobs(
        names, arrival_s, processors, requested_s, run_s, np.full(len(rows), np.nan), agent.astype(int)
    )
