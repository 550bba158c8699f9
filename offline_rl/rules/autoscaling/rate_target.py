"""Scaling by request rate, as event-driven autoscalers do (KEDA), and a fixed number of replicas for the peak.

    replicas = ceil(rate / rate that a replica is meant to take)

with the windows and policies of the pod autoscaler, through which such triggers act. A replica of more cores is meant
to take more.
"""

import jax.numpy as jnp

from offline_rl.rules.autoscaling.autoscaler import Autoscaler, along
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, remembering, remembering_nothing
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.state import ScalingState, known
from twin.autoscaling.types import Grants
from twin.contracts import Array, PyTree

DOWN_WINDOW_S = 300.0
"""The most replicas wanted within so long are kept."""


def rate_target(config: AutoscalingConfig, limits: GrantLimits, rate_per_core: Array) -> Autoscaler:
    """The autoscaler.

    Args:
        config: When decisions are taken.
        limits: Of the grants.
        rate_per_core: [deployments] calls a second that a replica is meant to take for each core granted to it.
    """
    settings = PodAutoscalerConfig(down_window_s=DOWN_WINDOW_S)

    def decide(_key: Array, memory: Array, state: ScalingState) -> tuple[Array, Grants]:
        rate = known(config, state).measured.rate_per_s
        per_replica = along(rate_per_core, rate) * jnp.maximum(state.grants.cpu_cores, 1e-6)
        desired = jnp.ceil(rate / per_replica - 1e-4)
        memory, replicas = remembering(config, settings, limits, state, memory, desired)
        return memory, state.grants._replace(replicas=replicas)

    return Autoscaler(remembering_nothing(config, settings), decide)


def static(grants: Grants) -> Autoscaler:
    """Always the same grants, leaves [deployments]: for the peak, say."""

    def decide(_key: Array, memory: PyTree, state: ScalingState) -> tuple[PyTree, Grants]:
        like = state.grants.replicas
        return memory, Grants(*(jnp.broadcast_to(along(leaf, like), like.shape) for leaf in grants))

    return Autoscaler(lambda grants: (), decide)
