"""A world as the cluster that a log of it would be encoded with, made without writing a log."""

import numpy as np

from evaluation.simulator.hosting import host_rules
from evaluation.simulator.world import World
from twin.placement.service_times import without_history
from twin.placement.types import Cluster

UNKNOWN_NAME = "unknown"


def cluster_of(world: World) -> Cluster:
    """The cluster of a world: nodes and names in the world's own order, "unknown" before the names that need it.

    Returns:
        The cluster; its rules are the distinct sets of nodes that may host a service.
    """
    cores = [float(node.cpu_cores) for node in world.nodes]
    capacity = np.array([cores, [node.memory_gib for node in world.nodes], [0.0] * len(world.nodes)])
    return Cluster(
        node_names=tuple(node.name for node in world.nodes),
        capacity=capacity,
        unit_capacity=capacity,
        site_of_node=np.array([world.all_sites.index(node.site) for node in world.nodes]),
        is_cloud=np.array([node.tier == "cloud" for node in world.nodes]),
        sites=world.all_sites,
        scenarios=(UNKNOWN_NAME, *(scenario.name for scenario in world.scenarios)),
        services=(UNKNOWN_NAME, *(service.name for service in world.services)),
        queues=(UNKNOWN_NAME,),
        rules=host_rules(world)[0],
        **without_history(1 + len(world.services), len(world.nodes), 1 + len(world.scenarios)),
    )
