"""The pools of an archive: every class of its nodes is a queue of its own, with its own processors.

A job belongs to the pool of the nodes it ran on, else of the node it was offered to. Left out of every pool, and
counted over the whole log: `no_pool`, jobs of which the log names no node, or one without a class; `several_pools`,
jobs that ran on nodes of several classes at once. So every row of the log is in one pool, or in one of these counts.

An archive is one pool, of all its nodes and jobs, where its nodes are of one class at most, or where the log names no
node of any job: then it is unknown which job waited for what.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.archive import Archive
from logs_schema.errors import ConfigError
from twin.ordering.types import OrderingError, Pool

NODES_OF_JOBS = ("ran_node", "ran_nodes", "offered_node")
OUTSIDE = ("no_pool", "several_pools")
"""What is counted of jobs that are in no pool."""
UNKNOWN = -1


def pool_sizes(archive: Archive) -> dict[str, float]:
    """Processors of every pool, by name, names in order.

    Of an archive that is one pool: those of all its nodes, by its only class, if it has one.

    Raises:
        ArchiveError: A file of the archive is missing or damaged.
    """
    classes = _classes(archive)
    names = sorted(set(classes.values()))
    if len(names) > 1 and not _names_nodes(archive, classes):
        return {}
    sizes = dict.fromkeys(names, 0.0)
    for row in archive.nodes().select(["node_class", "cpu_cores"]).to_pylist():
        name = names[0] if len(names) == 1 else row["node_class"]
        if name in sizes:
            sizes[name] += row["cpu_cores"]
    return sizes


def rows_of_pool(archive: Archive, rows: pa.Table, pool: str) -> tuple[pa.Table, dict[str, int]]:
    """The requests of one pool.

    Args:
        archive: Where they are from.
        rows: Requests, with the columns `NODES_OF_JOBS`.
        pool: Name of the pool.

    Returns:
        Its rows, and of all `rows` how many each rule left out of every pool: none where the archive is one pool.

    Raises:
        ConfigError: The archive has no such pool.
    """
    names = tuple(pool_sizes(archive))
    refuse_unknown(archive, names, pool)
    if len(names) == 1:
        return rows, {}
    code_of = {node: names.index(name) for node, name in _classes(archive).items()}
    lowest, highest = _lowest_and_highest(rows, code_of)
    outside = lowest == UNKNOWN, (lowest != UNKNOWN) & (lowest != highest)
    counts = {rule: int(hit.sum()) for rule, hit in zip(OUTSIDE, outside, strict=True)}
    own = names.index(pool)
    return rows.filter(pa.array((lowest == own) & (highest == own))), counts


def pool_of(
    archive: Archive, processors: float | None, *, name: str | None = None, easy: bool = False
) -> Pool:
    """One pool of an archive.

    Args:
        archive: the archive.
        processors: how many; those of the pool's nodes if None.
        name: which pool; None where the archive is one.
        easy: whether to backfill.

    Raises:
        ConfigError: no such pool, or several of which none is named.
        OrderingError: the archive holds no jobs, or does not give the pool's size.
    """
    sizes = pool_sizes(archive)
    if name is not None:
        refuse_unknown(archive, tuple(sizes), name)
    elif len(sizes) > 1:
        raise ConfigError(
            f"the archive has {len(sizes)} pools, each a queue of its own",
            where=f"{archive.path}, table nodes, column node_class",
            allowed=", ".join(f"{one} ({size:g} processors)" for one, size in sizes.items()),
            advice="choose one where the queue is named: "
            f'--pool {next(iter(sizes))} of fit, order, replay and refresh, or pool = "{next(iter(sizes))}" in [order]',
        )
    if processors is None:
        processors = _processors(archive) if name is None else sizes[name]
    return Pool(processors, easy, name)


def pools_of(archive: Archive, *, easy: bool = False) -> list[Pool]:
    """All pools of an archive; raises as `pool_of` where it is one.

    Args:
        archive: the archive.
        easy: whether to backfill.
    """
    sizes = pool_sizes(archive)
    if len(sizes) < 2:
        return [pool_of(archive, None, easy=easy)]
    return [Pool(size, easy, name) for name, size in sizes.items()]


def _processors(archive: Archive) -> float:
    processors = float(np.sum(archive.nodes()["cpu_cores"].to_numpy()))
    if not archive.num_rows("requests"):
        raise OrderingError(
            "the archive holds no jobs",
            where=f"{archive.path}, table requests",
            allowed="one job or more",
            advice="import a log of jobs, or take a problem that the log supports (schedtwin check says which)",
        )
    if not processors > 0.0:
        raise OrderingError(
            "the archive does not give the size of the machine",
            where=f"{archive.path}, table nodes",
            allowed="at least one node",
            advice="give --processors",
        )
    return processors


def refuse_unknown(archive: Archive, names: tuple[str, ...], pool: str) -> None:
    """Makes sure that a pool is among those of an archive; ConfigError."""
    if pool not in names:
        raise ConfigError(
            f"the archive has no pool {pool!r}",
            where=f"{archive.path}, table nodes, column node_class",
            allowed=", ".join(names)
            or "no name: its log does not show which job ran where, so it is one pool",
            advice="name one of these" if names else "leave the pool out, or take a log with nodes of jobs",
        )


def _classes(archive: Archive) -> dict[str, str]:
    """The class of every node that has one."""
    nodes = archive.nodes().select(["node_id", "node_class"]).to_pylist()
    return {row["node_id"]: row["node_class"] for row in nodes if row["node_class"] is not None}


def _names_nodes(archive: Archive, classes: Mapping[str, str]) -> bool:
    """Whether any request names a node of a class; the log is read up to the first that does, mostly its beginning."""
    code_of = dict.fromkeys(classes, 0)
    batches = archive.scan("requests", columns=NODES_OF_JOBS)
    parts = (_lowest_and_highest(pa.Table.from_batches([batch]), code_of)[0] for batch in batches)
    return any(np.any(part != UNKNOWN) for part in parts)


def _lowest_and_highest(rows: pa.Table, code_of: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """[rows] the least and the greatest of the codes of a job's nodes; of the one offered where it ran on none."""
    spread = rows["ran_nodes"].combine_chunks()
    parent, code = pc.list_parent_indices(spread).to_numpy(), _codes(pc.list_flatten(spread), code_of)
    node = pc.coalesce(*(rows[name].cast(pa.string()) for name in ("ran_node", "offered_node")))
    lowest = _codes(node, code_of)
    lists_alone = np.asarray(pc.is_null(rows["ran_node"]))[parent]
    lowest[parent[lists_alone]] = code[lists_alone]
    highest = lowest.copy()
    np.minimum.at(lowest, parent, code)
    np.maximum.at(highest, parent, code)
    return lowest, highest


def _codes(nodes: pa.ChunkedArray | pa.Array, code_of: Mapping[str, int]) -> np.ndarray:
    """[nodes] int; `UNKNOWN` for nodes without a code and for null."""
    found = pc.index_in(nodes.cast(pa.string()), value_set=pa.array(list(code_of), pa.string()))
    codes = np.array([*code_of.values(), UNKNOWN])
    return codes[np.asarray(pc.fill_null(found, len(code_of)).to_numpy())]
