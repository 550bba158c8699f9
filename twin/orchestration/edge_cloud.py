"""The public description of an edge-cloud cluster: what is public before any request has come.

Requests come to access points, one a site. Services are hosted in replicas on nodes; a replica holds its memory whether
it serves or not, and serves one request at a time. Nothing here is hidden and nothing is by chance: a log's inventory
and declarations say all of it. What is by chance stands in `twin.orchestration.chance`.
"""

from typing import NamedTuple

import numpy as np

from twin.orchestration.config import SlotConfig
from twin.placement.types import Cluster


class EdgeCloud(NamedTuple):
    """A cluster that is run by slots; services, sites and nodes are indices of `cluster`, service 0 is "unknown"."""

    config: SlotConfig
    cluster: Cluster  # memory unlimited: it is replicas that take memory, not requests
    seat_site: np.ndarray  # [seats] int32: the site of every access point
    cores: np.ndarray  # [nodes]
    at_once: np.ndarray  # [nodes] requests in service at once: one a core, any number where cores are shared
    memory_gib: np.ndarray  # [nodes]
    hosts: np.ndarray  # [services, nodes] bool: the rules allow a replica
    replica_gib: np.ndarray  # [services] memory of a replica
    work_s: np.ndarray  # [services] mean declared work
    output_mib: np.ndarray  # [services] size of an answer
    pull_s: np.ndarray  # [services, nodes] time to pull an image that the node does not have
    pull_mib: np.ndarray  # [services, nodes] what that puts on the WAN: 0 in the cloud, where images are kept
    replicas: np.ndarray  # [services, nodes] int32: the first deployment

    @property
    def num_seats(self) -> int:
        """Number of access points."""
        return len(self.seat_site)

    @property
    def num_services(self) -> int:
        """Number of services, the unknown one included."""
        return len(self.replica_gib)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.cores)

    @property
    def adapts(self) -> bool:
        """Whether some queue follows estimates."""
        return self.config.eap_queue.adapts or self.config.node_queue.adapts
