"""What is decided about an application, and what counts: the objective and the limits of its grants."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError, first
from offline_rl.autoscaling.config import ScaleConfig
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.rewards import granted_cores
from twin.autoscaling.scaling_log import ScalingLog
from twin.autoscaling.types import Grants

KEPT_SHARE = 0.9
"""Of the intervals, in which an objective is kept that follows from a log."""


class ScalingTask(NamedTuple):
    """What is decided about, and what counts."""

    scaling: AutoscalingConfig
    limits: GrantLimits


def setting_of(config: ScaleConfig, twin: ApplicationTwin, log: ScalingLog) -> ScalingTask:
    """Objective and limits: what was asked for, and where the log has been.

    Raises:
        ConfigError: No objective is named, and the log has no quantiles that it would follow from; or there is no such
            deployment to keep fixed.
    """
    tails_s = log.gateway["response_p95_s"]
    if config.slo_s is None and np.isnan(tails_s).all():
        raise ConfigError(
            "no objective is named, and the log has none of the gateway's 95 % quantiles that it would follow from",
            where="[scale] slo_s",
            allowed="seconds within which 95 % of the requests shall be answered",
            advice="name slo_s in the configuration, or import response_p95_s of the gateway",
        )
    slo_s = config.slo_s or float(np.nanquantile(tails_s, KEPT_SHARE))
    scaling = AutoscalingConfig(
        interval_s=twin.interval_s,
        slo_s=slo_s,
        reach=(1.0, 1.0, 2.0),
        violation_cores=config.violation_weight * logged_cost(log),
    )
    seen = twin.coverage
    ends = [end(log.memory_granted, axis=0) for end in (np.nanmin, np.nanmax)]
    if unknown := sorted(set(config.fixed) - set(log.deployments)):
        raise ConfigError(
            f"the log has no deployment {first(unknown)}",
            where="[scale] fixed",
            allowed=", ".join(log.deployments),
        )
    fixed = np.isin(log.deployments, config.fixed)
    most = np.where(fixed, seen.most_replicas, np.ceil(seen.most_replicas * config.replicas_beyond))
    leaves = (seen.least_cores, seen.most_cores, *ends, np.where(fixed, most, 1.0), most)
    return ScalingTask(scaling, GrantLimits(*(jnp.asarray(leaf, jnp.float32) for leaf in leaves)))


def logged_cost(log: ScalingLog) -> float:
    """Mean cost of what a log granted, in cores."""
    granted = log.columns["cpu_cores"], log.memory_granted, log.columns["num_replicas"]
    return float(jnp.nanmean(granted_cores(Grants(*map(jnp.asarray, granted))), axis=0).sum())
