"""The largest use at once of nodes, from the requests on them."""

import numpy as np

from logs_schema.concurrency import most_at_once


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
