"""The largest use at once of nodes, from the requests on them."""

import numpy as np
import pyarrow as pa

from logs_schema.concurrency import most_at_once
from twin.placement.columns import amount, decided_node, index_of, instant_s


def largest_use(
    node: np.ndarray, begin_s: np.ndarray, end_s: np.ndarray, amount: np.ndarray, num_nodes: int
) -> np.ndarray:
    """[nodes] the largest amount that requests hold at once.

    Args:
        node: [rows] index, -1 for none.
        begin_s, end_s: [rows] from when to when each holds its amount; rows in which one is not finite do not count.
        amount: [rows] at least 0.
        num_nodes: Number of nodes.
    """
    peak = np.zeros(num_nodes)
    known = np.isfinite(begin_s) & np.isfinite(end_s)
    for index in range(num_nodes):
        here = known & (node == index)
        peak[index] = most_at_once(begin_s[here], end_s[here], amount[here])
    return peak


def cores_in_use(nodes: pa.Table, rows: pa.Table) -> np.ndarray:
    """[machines] the most cores that requests are known to have had at once: a guess of what none is known of."""
    node = index_of(decided_node(rows), nodes["node_id"].to_pylist(), missing=-1)
    cores = amount(rows, "cpu_cores", 1.0) / amount(rows, "num_nodes", 1.0)
    return largest_use(node, instant_s(rows, "start"), instant_s(rows, "finish"), cores, len(nodes))
