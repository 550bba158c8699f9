"""The largest use at once of nodes, from the requests on them."""

import numpy as np


def largest_use(
    node: np.ndarray, begin_s: np.ndarray, end_s: np.ndarray, amount: np.ndarray, num_nodes: int
) -> np.ndarray:
    """[nodes] the largest amount that requests hold at once; what ends at an instant leaves before what begins.

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
        times = np.concatenate([begin_s[here], end_s[here]])
        change = np.concatenate([amount[here], -amount[here]])
        peak[index] = np.cumsum(change[np.lexsort((change, times))]).max(initial=0.0)
    return peak
