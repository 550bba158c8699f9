"""Kubernetes' autoscaler with an operator's interventions: the behaviour that writes logs of simulated applications.

Targets and the cores of replicas differ from deployment to deployment and from stream to stream (from day to day, in a
log), and now and then an operator scales by hand.
"""

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.rules.autoscaling.autoscaler import Autoscaler
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, horizontal_pod
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import Grants
from twin.contracts import Array, PyTree


def operated(
    config: AutoscalingConfig, limits: GrantLimits, num_deployments: int, num_streams: int, seed: int
) -> Autoscaler:
    """The pod autoscaler in the hands of an operator: settings [deployments, streams], and hands on the replicas."""
    random = np.random.default_rng([seed, 0x0B5E])
    shape = (num_deployments, num_streams)
    target = jnp.asarray(random.uniform(0.45, 0.85, shape), jnp.float32)
    cores = jnp.asarray(random.choice([0.25, 0.5, 0.75, 1.0], shape, p=[0.1, 0.6, 0.15, 0.15]), jnp.float32)
    rule = horizontal_pod(config, limits, PodAutoscalerConfig(target=target))

    def decide(key: Array, memory: PyTree, state: ScalingState) -> tuple[PyTree, Grants]:
        memory, wanted = rule.decide(key, memory, state)
        key_hand, key_change = jax.random.split(key)
        by_hand = jax.random.uniform(key_hand, wanted.replicas.shape) < 0.01
        change = jax.random.randint(key_change, wanted.replicas.shape, -2, 4).astype(jnp.float32)
        replicas = wanted.replicas + jnp.where(by_hand, change, 0.0)
        replicas = jnp.clip(replicas, 1.0, limits.max_replicas[:, None])
        return memory, wanted._replace(replicas=replicas, cpu_cores=cores)

    return Autoscaler(rule.init, decide)
