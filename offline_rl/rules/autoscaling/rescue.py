"""The guard of every exported autoscaler while requests fail: nothing is taken away, and the load is provided for.

Where capacity is short, requests that fail do not reach the deployments behind: their use falls though the load has
risen, and whoever follows use or calls takes from them what they need to recover. What users ask for is still seen at
the gateway. So while more than `FAILING_SHARE` of its requests fail, every deployment keeps what it has at least, and
has replicas for

    requests a second at the gateway * core-seconds of a request there, by the log / RESCUE_TARGET   cores

`RESCUE_ADDS` more at once at most. `offline_rl.runner.scaling.rescued` is the same for NumPy.
"""

import jax.numpy as jnp
import numpy as np

from offline_rl.rules.autoscaling.autoscaler import Autoscaler, along
from offline_rl.runner.scaling import FAILING_SHARE, RESCUE_ADDS, RESCUE_TARGET
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.laws import Laws
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import Grants
from twin.contracts import Array, PyTree


def core_s_per_request(laws: Laws) -> np.ndarray:
    """[deployments] core-seconds of a request of the log's mix, by laws with leaves [members, deployments]."""
    return np.mean(np.asarray(laws.calls_per_request) * np.asarray(laws.work_s), axis=0)


def rescued(
    config: AutoscalingConfig, limits: GrantLimits, autoscaler: Autoscaler, core_s: np.ndarray
) -> Autoscaler:
    """The autoscaler with the rescue around it; `core_s`: [deployments], of `core_s_per_request`."""

    def decide(key: Array, memory: PyTree, state: ScalingState) -> tuple[PyTree, Grants]:
        memory, wanted = autoscaler.decide(key, memory, state)
        now, granted = known(config, state).gateway, state.grants
        fails = now.num_failures > FAILING_SHARE * jnp.maximum(now.rate_per_s * config.interval_s, 1.0)
        least = Grants(*(jnp.maximum(one, had) for one, had in zip(wanted, granted, strict=True)))
        cores = jnp.maximum(RESCUE_TARGET * least.cpu_cores, 1e-6)
        needed = jnp.ceil(
            along(jnp.asarray(core_s, jnp.float32), cores) * now.rate_per_s[None] / cores - 1e-4
        )
        most = jnp.minimum(granted.replicas + RESCUE_ADDS, along(limits.max_replicas, cores))
        replicas = jnp.maximum(least.replicas, jnp.minimum(needed, most))
        runs = fails[None] & (granted.replicas > 0.0)
        saved = least._replace(replicas=replicas)
        return memory, Grants(*(jnp.where(runs, new, old) for new, old in zip(saved, wanted, strict=True)))

    return Autoscaler(autoscaler.init, decide)
