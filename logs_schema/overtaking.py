"""Requests that begin after later ones like them, as where nodes serve by priority or by fair shares of users."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ALIKE = ("queue", "service", "cpu_cores", "memory_gib", "gpus", "num_nodes", "requested_run_s")
"""What requests have in common where only the order of their node can put one before the other."""
NODE_COLUMNS = ("ran_node", "offered_node")
COLUMNS = ("arrival", "start", *NODE_COLUMNS, *ALIKE)


def overtaken(batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """How many requests waited, and how many of them began after a later one that is alike on the same node.

    Args:
        batches: Requests with `COLUMNS`.
    """
    found = list(batches)
    if not found:
        return 0, 0
    rows = pa.Table.from_batches(found)
    node = pc.coalesce(*(pc.cast(rows[name], pa.string()) for name in NODE_COLUMNS))
    known = pc.and_(pc.is_valid(rows["start"]), pc.is_valid(node))
    rows, node = rows.filter(known), node.filter(known)
    arrival, start = (pc.cast(rows[name], pa.int64()).to_numpy() for name in ("arrival", "start"))
    kind = _kinds([node, *(rows[name] for name in ALIKE)])
    order = np.lexsort((start, arrival, kind))
    arrival, start, kind = arrival[order], start[order], kind[order]
    waited = start > arrival
    # Kinds lie apart, so what is least of all that follow in the order is of later ones of the kind
    place = np.unique(start, return_inverse=True)[1] + kind * len(start)
    least_of_later = np.minimum.accumulate(place[::-1])[::-1]
    num_overtaken = int(np.sum(waited[:-1] & (least_of_later[1:] < place[:-1])))
    return int(waited.sum()), num_overtaken


def _kinds(columns: Iterable[pa.ChunkedArray]) -> np.ndarray:
    """[rows] index of the values of all columns together."""
    kind = np.zeros(1, np.int64)
    for column in columns:
        text = pc.fill_null(pc.cast(column, pa.string()), "").combine_chunks()
        code = np.asarray(pc.dictionary_encode(text).indices, np.int64)
        kind = np.unique(kind * (int(code.max(initial=0)) + 1) + code, return_inverse=True)[1]
    return kind
