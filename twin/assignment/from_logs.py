"""The state evaluation model from a log: every edge's computing time and replicas.

What is needed stands in `requests`: a size (`input_mib`; cores asked for, where a log has no sizes), the node that ran
it, and how long, from start to finish. Ways between sites are no part of it: most logs do not time them.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.assignment.compute_times import ComputeTime, fit_compute_times

SIZES = ("input_mib", "cpu_cores")
"""Columns that are taken for a request's size, the first that a log has."""
COLUMNS = ("arrival", "start", "finish", "run_s", "offered_node", "ran_node", *SIZES)

QUANTILES = 101


@dataclass(frozen=True)
class EdgesFromLog:
    """What a log says of its edges.

    Attributes:
        compute: Name of the edge -> its computing time over the size.
        replicas: Name -> requests at the same time: its cores over the cores of a usual request.
        size: The column that is taken for the size.
        sizes: Their distribution at `QUANTILES` places from its smallest to its largest.
        num_rows: That were used.
        notes: What the log lacks, and what stands in its place.
    """

    compute: Mapping[str, ComputeTime]
    replicas: Mapping[str, int]
    size: str
    sizes: tuple[float, ...]
    num_rows: int
    notes: tuple[str, ...]


def lacking(archive: Archive) -> str:
    """Why a log cannot support the assignment problem, in words; empty where it can."""
    table = archive.read("requests", columns=list(COLUMNS))
    parts = []
    if not any(_known(table, name) for name in SIZES):
        parts.append("no size of requests (column input_mib, or cpu_cores)")
    if not (_known(table, "ran_node") or _known(table, "offered_node")):
        parts.append("no node that ran them (column ran_node or offered_node)")
    if not (_known(table, "run_s") or (_known(table, "start") and _known(table, "finish"))):
        parts.append("no time that they took (start and finish, or run_s)")
    if archive.nodes().num_rows < 2:
        parts.append("fewer than two nodes")
    return "; ".join(parts)


def fit_edges(archive: Archive, days: Sequence[dt.date] | None = None) -> EdgesFromLog:
    """Learns the edges of a log.

    Args:
        archive: With requests that ran.
        days: To learn from; all where None.

    Raises:
        ConfigError: The log lacks what is needed, by name, or has too few such requests.
    """
    if reason := lacking(archive):
        raise ConfigError(
            f"the log lacks {reason}", where=f"{archive.path}, table requests", allowed=", ".join(COLUMNS),
            advice="import a log that has them, or name another problem",
        )  # fmt: skip
    table = archive.read("requests", columns=list(COLUMNS), days=days)
    size_column = next(name for name in SIZES if _known(table, name))
    nodes = archive.nodes()
    names, classes = nodes["node_id"].to_pylist(), nodes["node_class"].to_pylist()
    place = {name: index for index, name in enumerate(names)}
    ran, offered = table["ran_node"].to_pylist(), table["offered_node"].to_pylist()
    edge = np.array(
        [place.get(one if one is not None else other, -1) for one, other in zip(ran, offered, strict=True)]
    )
    size, seconds = _numbers(table, size_column), _seconds(table)
    used = (edge >= 0) & (size > 0.0) & (seconds > 0.0)
    compute = fit_compute_times(names, classes, edge[used], size[used], seconds[used])
    replicas, usual_cores = {}, _usual_cores(table)
    for name, cores in zip(names, nodes["cpu_cores"].to_pylist(), strict=True):
        replicas[name] = max(1, int((cores or 1.0) // usual_cores))
    notes = [f"{name}: too few requests of its own, so the function of {found.source}"
             for name, found in compute.items() if found.source != "own"]  # fmt: skip
    if size_column != SIZES[0]:
        notes.append(f"the log has no {SIZES[0]}: {size_column} stands for the size")
    if (num_left := int(len(used) - used.sum())) > 0:
        notes.append(f"{num_left} requests without node, size or time were left out")
    sizes = tuple(np.quantile(size[used], np.linspace(0.0, 1.0, QUANTILES)).tolist())
    return EdgesFromLog(compute, replicas, size_column, sizes, int(used.sum()), tuple(notes))


def _known(table: pa.Table, name: str) -> bool:
    return bool(table[name].null_count < table.num_rows)


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """[rows] NaN where unknown."""
    return np.array(table[name].to_pylist(), float)


def _seconds(table: pa.Table) -> np.ndarray:
    """[rows] how long a request ran; NaN where unknown."""
    said = _numbers(table, "run_s")
    start, finish = (table[name].to_numpy().astype("datetime64[us]") for name in ("start", "finish"))
    seconds = np.where(np.isnat(start) | np.isnat(finish), np.nan, (finish - start).astype(np.int64) / 1e6)
    return np.where(np.isnan(said), seconds, said)


def _usual_cores(table: pa.Table) -> float:
    """The median of cores asked for; 1 where a log does not say."""
    cores = _numbers(table, "cpu_cores")
    return float(np.nanmedian(cores)) if np.any(cores > 0.0) else 1.0
