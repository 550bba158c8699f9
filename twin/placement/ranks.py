"""What requests go by before others on their node: the rank of their queue, or the key of the node's discipline."""

from typing import Any

import numpy as np

from twin.placement.types import Cluster, Leaf, PlacementState, Requests


def rank_type(cluster: Cluster) -> type | None:
    """Of the table's `rank`: int32 of queues, float32 of disciplines; None where nothing is ranked."""
    if not cluster.is_ranked:
        return None
    return np.int32 if cluster.disciplines is None else np.float32


def ranks(cluster: Cluster, request: Requests, node: Leaf, arrival_s: Leaf, np: Any) -> Leaf:
    """What requests [*batch] on nodes [*batch] go by, in arrays of the module `np`; None where nothing is ranked."""
    if cluster.disciplines is not None:
        return cluster.disciplines.key(node, arrival_s, request.expected_run_s, request.deadline_s, np)
    return None if cluster.priorities is None else cluster.priorities.of(request.queue, np)


def rank_in_hand(cluster: Cluster, state: PlacementState, node: Leaf, np: Any) -> Leaf:
    """The same of the requests in hand, on nodes [seats, *streams]."""
    return ranks(cluster, state.request, node, np.broadcast_to(state.clock_s[None], node.shape), np)
