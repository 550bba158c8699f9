"""Requests that ran on another node than the one that they were offered to, as where full nodes pass them on."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.archive import Archive
from logs_schema.tables import NODES

COLUMNS = ("offered_node", "ran_node")


def class_of_node(archive: Archive) -> dict[str, str]:
    """Class of every node of the inventory that has one."""
    nodes = archive.nodes() if archive.num_rows(NODES.name) else None
    if nodes is None:
        return {}
    pairs = zip(nodes["node_id"].to_pylist(), nodes["node_class"].to_pylist(), strict=True)
    return {node: name for node, name in pairs if name}


def redirected(rows: pa.RecordBatch, class_of: Mapping[str, str]) -> pa.Array:
    """[rows] whether a request ran elsewhere than it was offered to; null where the log does not say both.

    Args:
        rows: With `COLUMNS`.
        class_of: `class_of_node`: who was offered to a class of nodes and ran on one of them ran where it was to.
    """
    offered, ran = (pc.cast(rows[name], pa.string()) for name in COLUMNS)
    names = pa.array(list(class_of), pa.string())
    place = pc.index_in(ran, value_set=names)
    class_ran = pc.take(pa.array(list(class_of.values()), pa.string()), place)
    is_class = pc.fill_null(pc.equal(offered, class_ran), False)
    return pc.and_not(pc.not_equal(offered, ran), is_class)
