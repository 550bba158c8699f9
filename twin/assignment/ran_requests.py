"""Requests of a log that ran, as columns: when they came, where they ran, their sizes and how long they took."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive
from logs_schema.errors import ConfigError

SIZES = ("input_mib", "requested_run_s", "cpu_cores")
"""Columns that may be a request's size; of equally good ones the first."""
COLUMNS = (
    "arrival", "start", "finish", "run_s", "site", "agent", "offered_node", "ran_node", "output_mib", "deadline_s",
    "candidates", "request_id", "service", "status", *SIZES,
)  # fmt: skip
CUT = ("failed", "killed", "dropped", "rejected", "running", "waiting")
"""Statuses of requests whose time says nothing of how long they would have computed."""


class RanRequests(NamedTuple):
    """Columns [rows], in the order of arrival; NaN where a log does not say."""

    request_id: np.ndarray  # texts
    arrival_s: np.ndarray  # since the epoch
    delay_s: np.ndarray  # from arrival to start
    seconds: np.ndarray  # that it ran
    edge: np.ndarray  # int, where it ran
    site: np.ndarray  # texts, where it came from
    agent: np.ndarray  # texts, empty where unknown
    service: np.ndarray  # texts, empty where unknown
    deadline_s: np.ndarray
    output_mib: np.ndarray
    sizes: Mapping[str, np.ndarray]  # of `SIZES`, those that the log has
    hosts: np.ndarray | None  # [rows, edges] bool, where the log names candidates
    num_left_out: int  # requests without node, size or time, or cut short

    @property
    def cores(self) -> np.ndarray:
        """Cores that each holds; one where the log does not say."""
        return np.nan_to_num(self.sizes.get("cpu_cores", np.ones(len(self.edge))), nan=1.0)


def known(table: pa.Table, name: str) -> bool:
    """Whether any row has the column."""
    return bool(table[name].null_count < table.num_rows)


def read_ran(archive: Archive, edges: Sequence[str], days: Sequence[dt.date] | None = None) -> RanRequests:
    """The requests that ran on some days.

    Args:
        archive: Of the log.
        edges: Names of nodes, in the order of `RanRequests.edge`.
        days: To read; all where None.
    """
    table = archive.read("requests", columns=list(COLUMNS), days=days)
    node = pc.coalesce(table["ran_node"].cast(pa.string()), table["offered_node"].cast(pa.string()))
    place = pc.index_in(node, value_set=pa.array(list(edges), pa.string()))
    edge = np.asarray(place.fill_null(-1)).astype(int)
    instants = {
        name: np.asarray(table[name]).astype("datetime64[us]") for name in ("arrival", "start", "finish")
    }
    sizes = {name: _numbers(table, name) for name in SIZES if known(table, name) or not table.num_rows}
    seconds = _numbers(table, "run_s")
    seconds = np.where(np.isnan(seconds), _between(instants["start"], instants["finish"]), seconds)
    with np.errstate(invalid="ignore"):
        used = (
            (edge >= 0) & (seconds > 0.0) & ~np.isin(np.asarray(table["status"].cast(pa.string()), str), CUT)
        )
        used &= np.any([one > 0.0 for one in sizes.values()], axis=0) if sizes else False
    rows = np.flatnonzero(used)
    rows = rows[np.argsort(instants["arrival"][rows], kind="stable")]
    texts = {
        name: np.asarray(table[name].cast(pa.string()).fill_null(""), str)
        for name in ("site", "agent", "service")
    }
    return RanRequests(
        request_id=np.asarray(table["request_id"], str)[rows],
        arrival_s=instants["arrival"][rows].astype(np.int64) / 1e6,
        delay_s=_between(instants["arrival"], instants["start"])[rows],
        seconds=seconds[rows],
        edge=edge[rows],
        **{name: text[rows] for name, text in texts.items()},
        deadline_s=_numbers(table, "deadline_s")[rows],
        output_mib=_numbers(table, "output_mib")[rows],
        sizes={name: one[rows] for name, one in sizes.items()},
        hosts=_hosts(table, edges, rows),
        num_left_out=len(used) - len(rows),
    )


def never_ran(rows: RanRequests, num_edges: int, *, least: float = 10.0) -> list[tuple[str, int]]:
    """Services and edges on which they never ran, though by the others from the same sites `least` or more would have.

    Empty where the log names candidates, or no service: then it is known, or there is nothing to tell apart.
    """
    names, service = np.unique(rows.service, return_inverse=True)
    if rows.hosts is not None or len(names) < 2:
        return []
    sites, site = np.unique(rows.site, return_inverse=True)
    count = np.zeros((len(sites), len(names), num_edges))
    np.add.at(count, (site, service, rows.edge), 1.0)
    at_site = np.maximum(count.sum(axis=(1, 2), keepdims=True), 1.0)
    expected = (count.sum(axis=2, keepdims=True) * count.sum(axis=1, keepdims=True) / at_site).sum(axis=0)
    found = np.argwhere((count.sum(axis=0) == 0.0) & (expected >= least))
    return [(str(names[which]), int(edge)) for which, edge in found]


def sized(rows: RanRequests, size: str) -> RanRequests:
    """The rows that have the size; ConfigError where the log lacks the column."""
    if size not in rows.sizes:
        raise ConfigError(
            f"the log has no {size}, which the twin takes for the size",
            where="table requests",
            allowed=size,
            advice="fit a twin on this log",
        )
    with np.errstate(invalid="ignore"):
        kept = np.flatnonzero(rows.sizes[size] > 0.0)
    return take(rows, kept)


def take(rows: RanRequests, kept: np.ndarray) -> RanRequests:
    """Some of the rows, by index."""
    columns = {name: leaf[kept] for name, leaf in rows._asdict().items() if isinstance(leaf, np.ndarray)}
    return rows._replace(**columns, sizes={name: one[kept] for name, one in rows.sizes.items()})


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(table[name].cast(pa.float64()).fill_null(float("nan")), float)


def _between(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Seconds from one instant to another; NaN where one is unknown."""
    unknown = np.isnat(begin) | np.isnat(end)
    return np.where(unknown, np.nan, (end - begin).astype(np.int64) / 1e6)


def _hosts(table: pa.Table, edges: Sequence[str], rows: np.ndarray) -> np.ndarray | None:
    if not known(table, "candidates"):
        return None
    place = {name: index for index, name in enumerate(edges)}
    hosts = np.ones((len(rows), len(edges)), bool)
    for row, names in enumerate(table["candidates"].take(rows).to_pylist()):
        if names is not None:
            hosts[row] = False
            hosts[row, [place[name] for name in names if name in place]] = True
    hosts[~hosts.any(axis=1)] = True
    return hosts
