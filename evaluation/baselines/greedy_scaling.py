"""Greedy scaling: a replica more for the service with the longest queue, on the node with the lowest CPU utilisation.

The queue of a service is the mean number of its requests waiting in the last frame, at nodes and access points; the
utilisation of a node is the share of its cores in service, averaged likewise. With H changes a frame, the k-th goes to
the service with the k-th longest queue and to the least utilised node that can host it and was not chosen before. It
never removes a replica, so that at last the memory is full.

Source: KMPS, section IV, baseline 3 of service orchestration ("Greedy", figure 16).
"""

import jax
import jax.numpy as jnp

from evaluation.baselines.orchestration_baseline import OrchestrationBaseline
from twin.contracts import Array
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import FrameState, Scaling
from twin.orchestration.orchestrator import Orchestrate, any_largest, host_score
from twin.placement.features import one_hot


def _rule(case: EdgeCloud, config: FrameConfig) -> Orchestrate:
    def orchestrate(key: Array, state: FrameState) -> Scaling:
        load = state.load
        queue = jnp.sum(load.waiting, axis=1) + jnp.sum(load.queued, axis=1)
        cores = jnp.asarray(case.cores).reshape((-1,) + (1,) * state.clock_s.ndim)
        utilisation = jnp.sum(load.running, axis=0) / cores
        unchosen_service, unchosen_node = queue > 0.0, utilisation < jnp.inf
        nodes, changes = [], []
        for key_change in jax.random.split(key, config.num_changes):
            key_service, key_node = jax.random.split(key_change)
            service, waits = any_largest(key_service, queue, unchosen_service)
            _, can_host = host_score(case, state, state.deployment.used_gib, service)
            node, has_room = any_largest(key_node, -utilisation, can_host & unchosen_node)
            unchosen_service &= ~one_hot(service, queue.shape[0])
            unchosen_node &= ~(one_hot(node, utilisation.shape[0]) & (waits & has_room)[None])
            nodes.append(node)
            changes.append(jnp.where(waits & has_room, service, 0))
        return Scaling(jnp.stack(nodes), jnp.stack(changes))

    return orchestrate


GREEDY_SCALING = OrchestrationBaseline(
    "greedy_scaling",
    "a replica more of the service with the longest queue, on the node with the lowest CPU utilisation",
    _rule,
)
