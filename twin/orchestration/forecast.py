"""What is expected of a day before it comes: the workload where and when, and how long services run and travel.

Tables, of a log or of the truth; rules that plan ahead read nothing else.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.orchestration.edge_cloud import EdgeCloud


class DayForecast(NamedTuple):
    """Expectations of one day; services, sites and nodes as in `EdgeCloud.cluster`."""

    bin_s: float  # length of a bin of the time of day
    rate_per_s: np.ndarray  # [bins, services, sites] arrivals
    run_s: np.ndarray  # [services, nodes] mean run of a request, alone on a core
    latency_s: np.ndarray  # [sites, nodes] of a way
    s_per_mib: np.ndarray  # [sites, nodes]

    def at(self, time_of_day_s: Array) -> Array:
        """int32 [*streams] the bin of a time of day; the last one after the day."""
        last = self.rate_per_s.shape[0] - 1
        return jnp.clip((time_of_day_s / self.bin_s).astype(jnp.int32), 0, last)


def expected_busy(case: EdgeCloud, forecast: DayForecast) -> np.ndarray:
    """[bins, services] replicas that are busy on average, were runs spread over all cores that may host them."""
    weight = case.hosts * case.cores[None]
    run_s = (weight * forecast.run_s).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-9)
    return (forecast.rate_per_s.sum(axis=2) * run_s[None]).astype(np.float32)
