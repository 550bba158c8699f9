"""The largest use at once of nodes, from the requests on them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from logs_schema.concurrency import most_at_once
from twin.placement.columns import amount, decided_node, index_of, instant_s, node_index
from twin.placement.service_times import rows_of_each


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
    known = np.isfinite(begin_s) & np.isfinite(end_s)
    of_node = rows_of_each(np.where(known, node, -1), num_nodes)
    return np.array([most_at_once(begin_s[here], end_s[here], amount[here]) for here in of_node])


def cores_in_use(nodes: pa.Table, rows: pa.Table) -> np.ndarray:
    """[machines] the most cores that requests are known to have had at once: a guess of what none is known of."""
    node = index_of(decided_node(rows), nodes["node_id"].to_pylist(), missing=-1)
    cores = amount(rows, "cpu_cores", 1.0) / amount(rows, "num_nodes", 1.0)
    return largest_use(node, instant_s(rows, "start"), instant_s(rows, "finish"), cores, len(nodes))


def depth_of(
    looked_at: Sequence[pa.Table], node_of_name: dict[str, int], num_nodes: int, until_s: float
) -> int:
    """Slots per node: head-room over the largest number of requests in flight at once on one node."""
    peak = 1.0
    for rows in looked_at:
        node = node_index(rows, node_of_name, num_nodes)
        finish_s = np.minimum(instant_s(rows, "finish"), until_s)
        use = largest_use(node, instant_s(rows, "arrival"), finish_s, np.ones(len(node)), num_nodes)
        peak = float(use.max(initial=peak))
    availability = 2.0 * peak if peak <= 256 else 1.5 * peak
    return max(8, int(np.ceil(availability / 8.0)) * 8)
