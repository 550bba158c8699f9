"""What forecasts are made from: the load and the grants of every interval, and how they changed.

The load is the request rate at the gateway; where a log lacks it, the rates of its deployments; where it lacks these
too, the cores that deployments used. Everything enters as a logarithm, so that grants twice as large are the same step
anywhere.
"""

from typing import NamedTuple

import numpy as np

from logs_schema.errors import ConfigError
from twin.autoscaling.scaling_log import ScalingLog

LEAST_RATE_PER_S, LEAST_CORES = 1e-2, 1e-3
RATE, RATES, CORES = "request_rate_per_s of the gateway", "request_rate_per_s", "cpu_cores_used"
QUANTITIES = ("response_s", "response_p95_s", "response_p99_s", "cores_used")
"""What is forecast: three times at the gateway, and the cores that all deployments use together."""


class GatewayForecastInputs(NamedTuple):
    """Inputs of all intervals of a log; NumPy."""

    load_source: str
    load: np.ndarray  # [intervals, loads] logarithms
    grants: np.ndarray  # [intervals, deployments] logarithms of cores in all replicas
    changes: np.ndarray  # [intervals, loads + deployments] since the interval before, 0 after a gap

    @property
    def levels(self) -> np.ndarray:
        """[intervals, loads + deployments] without changes."""
        return np.concatenate([self.load, self.grants], axis=1)

    @property
    def features(self) -> np.ndarray:
        """[intervals, features]"""
        return np.concatenate([self.load, self.grants, self.changes], axis=1)

    @property
    def known(self) -> np.ndarray:
        """[intervals] bool: load and grants are logged."""
        return np.isfinite(self.levels).all(axis=1)


def load_source_of(log: ScalingLog) -> str:
    """Which of the three a log has in most intervals.

    Raises:
        ConfigError: None of them, or the log never tells how many replicas there were.
    """
    having = {
        RATE: np.isfinite(log.gateway["request_rate_per_s"]),
        RATES: np.isfinite(log.columns["request_rate_per_s"]).all(axis=1),
        CORES: np.isfinite(log.columns["cpu_cores_used"]).all(axis=1),
    }
    there = np.isfinite(log.columns["num_replicas"]).any(axis=1)
    if not there.any():
        raise ConfigError(
            "the log never tells how many replicas there were",
            where="deployment_samples, column num_replicas",
            allowed="replicas of every deployment",
            advice="import them; where they never change, as a constant",
        )
    for name, known in having.items():
        if known[there].mean() > 0.5:
            return name
    raise ConfigError(
        "the log has no load in most of its intervals",
        where="deployment_samples",
        allowed=", or ".join(having),
        advice="import request rates, of the gateway at least",
    )


def inputs_of(log: ScalingLog, load_source: str) -> GatewayForecastInputs:
    """The inputs of a log; intervals in which something is not logged hold NaN."""
    column = log.columns
    if load_source == RATE:
        load = _logs(log.gateway["request_rate_per_s"][:, None], LEAST_RATE_PER_S)
    elif load_source == RATES:
        load = _logs(column["request_rate_per_s"], LEAST_RATE_PER_S)
    else:
        load = _logs(column["cpu_cores_used"] * column["ready_replicas"], LEAST_CORES)
    grants = _logs(column["cpu_cores"] * column["num_replicas"], LEAST_CORES)
    levels = np.concatenate([load, grants], axis=1)
    changes = np.nan_to_num(np.diff(levels, axis=0, prepend=levels[:1]), nan=0.0)
    return GatewayForecastInputs(load_source, load, grants, changes)


def quantity_of(log: ScalingLog, name: str) -> np.ndarray:
    """[intervals] one of `QUANTITIES`, NaN where it is not logged."""
    if name == "cores_used":
        values: np.ndarray = np.sum(log.columns["cpu_cores_used"] * log.columns["ready_replicas"], axis=1)
        return values
    return log.gateway[name]


def _logs(values: np.ndarray, least: float) -> np.ndarray:
    logs: np.ndarray = np.log(np.maximum(values, least))
    return logs
