"""Nodes that the requests of a queue may use, read off a log that lists no candidates.

A batch system's partition is a queue with nodes of its own: no request of it ever ran elsewhere, so that a log cannot
say what would have come of it there. Replay would lend it the short waits of another partition, and a twin the queue of
nodes that it could never use. Queues and nodes that requests join make up components; a node is closed to a queue if
none of the queue's requests named it, and chance, by the nodes' shares of all requests, would have had at least
`ENOUGH` of them there: on this node, or, where it belongs to another component, on all of that one.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

ENOUGH = 20.0
"""Requests that chance would have had on closed nodes, at least: none of them by luck has probability 2e-9."""


def bound_queues(
    rows: pa.Table, queue: np.ndarray, node: np.ndarray, queues: Sequence[str], num_nodes: int
) -> dict[str, tuple[int, ...]]:
    """`nodes_of_queues` of a log's requests; nothing where one of them lists candidates."""
    if rows["candidates"].null_count < len(rows):
        return {}
    return nodes_of_queues(queue, node, queues, num_nodes)


def nodes_of_queues(
    queue: np.ndarray, node: np.ndarray, queues: Sequence[str], num_nodes: int
) -> dict[str, tuple[int, ...]]:
    """The open nodes of the queues that some node is closed to.

    Args:
        queue: [requests] index into `queues`, 0 where it is unknown.
        node: [requests] index of the node that was named, -1 where none was.
        queues: Names; the first is "unknown", which says nothing.
        num_nodes: Number of nodes.

    Returns:
        Queue -> nodes, ascending.
    """
    counts = np.zeros((len(queues), num_nodes))
    is_placed = node >= 0
    np.add.at(counts, (queue[is_placed], node[is_placed]), 1.0)
    share = counts.sum(axis=0) / max(counts.sum(), 1.0)
    component = _components(counts[1:] > 0.0)
    found = {}
    for number in range(1, len(queues)):
        num, used = counts[number].sum(), counts[number] > 0.0
        if not used.any():
            continue
        elsewhere = component != component[used][0]
        together = num * np.bincount(component, share)[component]
        closed = ~used & ((num * share >= ENOUGH) | (elsewhere & (share > 0.0) & (together >= ENOUGH)))
        if closed.any():
            found[queues[number]] = tuple(np.flatnonzero(~closed).tolist())
    return found


def with_sets(rules: np.ndarray, bound: Mapping[str, tuple[int, ...]]) -> np.ndarray:
    """[sets, nodes] bool: candidate sets, and those of queues that are bound to nodes."""
    nodes = np.arange(rules.shape[1])
    sets = sorted({tuple(np.isin(nodes, each).tolist()) for each in bound.values()})
    return np.array([*rules.tolist(), *sets], bool)


def _components(joined: np.ndarray) -> np.ndarray:
    """[nodes] the component of every node, the least node of it, where `joined` [queues, nodes] says who used which."""
    label = np.arange(joined.shape[1])
    for _ in range(len(joined)):  # a chain of queues is at most as long
        for nodes in joined:
            if nodes.any():
                whole = np.isin(label, label[nodes])
                label[whole] = label[whole].min()
    return label
