"""Runs that are cut off after a fixed time: read off a log, the same for all requests of a service.

    a run fails at the limit of its service, if it would take longer

Failures of such a service all come after the same time, and hardly a run takes longer. Drawn apart from how long a run
takes, they would be counted twice: most of those that are cut off would have been late, too, and the others among them
on time. So answers draw how long a run would take, of which one that was cut off says that it is at least so long, and
cut it off.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twin.placement.types import FAILED

FEWEST = 20
"""Failed runs of a service, without which nothing is said of it."""
NEARLY_ALL, MOST_LONGER = 0.9, 0.005
"""Share of them that end at the limit, at least, and of all its runs that take longer, at most."""
AT_LIMIT = 0.01
"""How far from the limit that is, as a share of it."""


def fit_timeouts(
    service: np.ndarray, run_s: np.ndarray, status: np.ndarray, num_services: int
) -> tuple[float, ...]:
    """[services] seconds after which runs are cut off, 0 where they are not; empty where none are.

    Args:
        service: [rows] 0 is unknown.
        run_s: [rows] NaN where not known.
        status: [rows].
        num_services: Of the vocabulary.
    """
    limits = [0.0] * num_services
    for number in range(1, num_services):
        ran = (service == number) & np.isfinite(run_s)
        failed_s = run_s[ran & (status == FAILED)]
        if len(failed_s) < FEWEST:
            continue
        limit = float(np.median(failed_s))
        at_limit = np.abs(failed_s - limit) <= AT_LIMIT * limit
        longer = run_s[ran] > (1.0 + AT_LIMIT) * limit
        if limit > 0.0 and at_limit.mean() >= NEARLY_ALL and longer.mean() <= MOST_LONGER:
            limits[number] = limit
    return tuple(limits) if any(limits) else ()


def is_cut_off(limits: Sequence[float], service: Any, run_s: Any, status: Any) -> np.ndarray:
    """Whether runs that ended so were cut off; arrays of one shape."""
    limit = np.array(limits)[service]
    return np.asarray((status == FAILED) & (limit > 0.0) & (run_s >= (1.0 - AT_LIMIT) * limit))
