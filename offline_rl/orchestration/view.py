"""What the stepwise actor sees of the orchestration problem, and the actor of an edge-cloud cluster.

To what is measured in a frame it adds what is fixed and public of nodes and services, and to every pair of service and
node what waits for that service at the node's own access point.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from offline_rl.orchestration.stepwise_actor import ChangeView
from twin.contracts import Array, PyTree
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_state import Scaling
from twin.orchestration.frames import FrameObservation


def change_reader(case: EdgeCloud) -> Callable[[FrameObservation, Scaling], ChangeView]:
    """(observation, legal) of the orchestration problem -> what the first seat sees; all see the same.

    Nodes: what is observed, in the cloud, cores, memory. Access points, one a site: requests queued, whether requests
    come to it. Services: what is observed, memory and work of a request. Pairs: replicas, in service, waiting, queued
    at the node's access point, share of the node's memory that a replica takes, time to pull the image.
    """
    cluster, site = case.cluster, np.asarray(case.cluster.site_of_node)
    seat_of_site = np.full(len(cluster.sites), -1)
    seat_of_site[case.seat_site] = np.arange(case.num_seats)
    has_seat = (seat_of_site >= 0).astype(np.float32)
    of_node = np.stack([cluster.is_cloud, np.log1p(case.cores), np.log1p(case.memory_gib)])
    of_service = np.stack([np.log1p(case.replica_gib), np.log1p(case.work_s)])[:, 1:]
    share = case.replica_gib[:, None] / np.maximum(case.memory_gib, 1e-9)
    of_pair = np.stack([share, np.log1p(case.pull_s)])[:, 1:]

    def read(observation: FrameObservation, legal: Scaling) -> ChangeView:
        node, service = observation.node[:, :, 0], observation.service[:, 1:, 0]
        hosted, queued = observation.hosted[:, 1:, :, 0], observation.queued[1:, :, 0]
        changes: PyTree = legal.change
        table = changes.table[:, :, 0]
        batch = node.shape[2:]
        by_site = jnp.take(queued, np.maximum(seat_of_site, 0), axis=1) * _wide(has_seat, batch)[None]
        total = jnp.log1p(jnp.sum(jnp.expm1(by_site), axis=0))
        num_services = service.shape[1]
        able = jnp.stack([table[1 : num_services + 1], table[num_services + 1 :]])
        return ChangeView(
            node=jnp.concatenate([node, _fixed(of_node, batch)]),
            point=jnp.stack([total, _fixed(has_seat, batch)]),
            service=jnp.concatenate([service, _fixed(of_service, batch)]),
            pair=jnp.concatenate([hosted, jnp.take(by_site, site, axis=1)[None], _fixed(of_pair, batch)]),
            able=able,
            up=legal.node[:, 0],
        )

    return read


def _wide(value: np.ndarray, batch: tuple[int, ...]) -> Array:
    return jnp.asarray(value, jnp.float32).reshape((*value.shape, *(1,) * len(batch)))


def _fixed(value: np.ndarray, batch: tuple[int, ...]) -> Array:
    """`value` in every stream: [..., *batch]."""
    return jnp.broadcast_to(_wide(value, batch), (*value.shape, *batch))
