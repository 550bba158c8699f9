"""The arrays of the assignment problem; NumPy, batch axes first, then requests [Z], then edges [Q].

Source: CoRaiS (CoRaiS), sections IV and V. Times are in seconds from the round's decision on.
"""

from typing import Any, NamedTuple

Leaf = Any
"""A NumPy array, or a JAX array inside programs."""


class Edges(NamedTuple):
    """A control region's edges as a scheduler sees them: performance and workload (section V-A); leaves [*batch, Q]."""

    xy: Leaf  # [*batch, Q, 2] coordinates
    compute: Leaf  # [*batch, Q, 3] seconds for a request of f MiB: constant, times f, times f squared
    replicas: Leaf  # requests served at the same time
    local_s: Leaf  # (1) computing left of requests that came here and stay, over all replicas
    arriving_s: Leaf  # (2) until the last of the requests on their way here has arrived
    transferred_s: Leaf  # (3) computing of requests that come from other edges, over all replicas
    local_result_s: Leaf  # (4) the longest way back of a result of the former
    transferred_result_s: Leaf  # (5) of the latter


class RoundRequests(NamedTuple):
    """New requests of a round; leaves [*batch, Z]."""

    source: Leaf  # int: edge that holds the request
    predicted: Leaf  # int: edge whose client waits for the result; -1 outside of the region
    predicted_xy: Leaf  # [*batch, Z, 2] coordinates of that edge, inside or outside
    input_mib: Leaf
    output_mib: Leaf


class Costs(NamedTuple):
    """What the objective needs of a round and nothing else: the seconds of every pair, and of what is there already.

    `work_s` is inf where an edge does not host the service.
    """

    work_s: Leaf  # [*batch, Z, Q] computing time over the edge's replicas
    transfer_s: Leaf  # [*batch, Z, Q] way of the input from its source; not looked at for the source itself
    result_s: Leaf  # [*batch, Z, Q] way of the result to the predicted edge
    source: Leaf  # [*batch, Z] int; -1: the request comes from none of these edges
    local_s: Leaf  # [*batch, Q] backlog, as of `Edges`
    arriving_s: Leaf  # [*batch, Q]
    transferred_s: Leaf  # [*batch, Q]
    returning_s: Leaf  # [*batch, Q] the larger of both results' ways


class AssignmentInstance(NamedTuple):
    """A round, or a batch of rounds of one size: what is seen, and what it costs."""

    edges: Edges
    requests: RoundRequests
    costs: Costs


def row_of(tree: Any, row: Any) -> Any:
    """One instance of a batch, or those of an array of rows: every leaf's `row` along the first axis."""
    if isinstance(tree, tuple):
        return type(tree)(*(row_of(leaf, row) for leaf in tree))
    return tree[row]
