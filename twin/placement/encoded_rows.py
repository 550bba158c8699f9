"""Encoded requests, and what of their run times depends on the requests before and around them."""

from typing import NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from twin.placement.cold_starts import filed_runs_s
from twin.placement.crowding import crowded_runs, uncrowded
from twin.placement.discontent import discontent_along, ill_in_log
from twin.placement.driving_out import may_be_driven_out
from twin.placement.encoding import Encoding
from twin.placement.pace import HeldRuns, WorkProgress
from twin.placement.ranks import rank_type, ranks
from twin.placement.replanning import overtaken
from twin.placement.run_filter import LoggedRuns, NodeLevel, levels_along, runs_of
from twin.placement.tides import node_tides_along, tide_along
from twin.placement.types import REJECTED, Cluster, Requests


class EncodedRows(NamedTuple):
    """Encoded requests, sorted by arrival; instants in float64 seconds since 1970, inf where not known."""

    arrival_s: np.ndarray
    start_s: np.ndarray
    finish_s: np.ndarray
    status: np.ndarray
    node: np.ndarray
    request: Requests  # leaves [rows], demand [resources, rows]
    request_id: np.ndarray
    silent: np.ndarray  # bool: the log does not show whether it ran; no node is charged for it

    @property
    def num_rows(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)


def ranks_of_rows(
    rows: EncodedRows, row: np.ndarray, origin_s: np.ndarray, cluster: Cluster
) -> np.ndarray | None:
    """What rows [*batch, W] go by, on the clocks of windows from `origin_s` [W] on; None where nothing is ranked."""
    request = Requests(*(None if leaf is None else np.asarray(leaf)[..., row] for leaf in rows.request))
    found = ranks(cluster, request, np.maximum(rows.node[row], 0), rows.arrival_s[row] - origin_s, np)
    return None if found is None else np.asarray(found).astype(rank_type(cluster))


def overtaken_rows(rows: EncodedRows, cluster: Cluster) -> np.ndarray:
    """[rows] bool: whether a request that goes first, or drives out, came to the node before each began."""
    node, arrival_s, start_s = rows.node, rows.arrival_s, rows.start_s
    if cluster.disciplines is not None:
        return overtaken(cluster.disciplines, rows.request, node, arrival_s, start_s)
    assert cluster.priorities is not None
    return may_be_driven_out(cluster.priorities, rows.request.queue, node, arrival_s, start_s)


def levels_at(rows: EncodedRows, at_s: np.ndarray, encoding: Encoding, filed_s: np.ndarray) -> NodeLevel:
    """The levels of run times at some instants, by the rows that had ended before."""
    cluster = encoding.cluster
    age_s = max(float(at_s[0]) - encoding.trained_until_s, 0.0)
    return levels_along(cluster.dynamics, _runs(rows, encoding, filed_s), cluster.num_nodes, at_s, age_s)


def tides_of(
    rows: EncodedRows, encoding: Encoding, filed_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """The tides at every arrival, by the runs of all other rows: everywhere, float32 [rows], and of every node
    [nodes, rows]; None where single nodes have none."""
    cluster = encoding.cluster
    if not cluster.tide.variance and not cluster.node_tide.variance:
        return np.zeros(rows.num_rows, np.float32), None
    runs = _runs(rows, encoding, filed_s, works=True)
    crowded = crowded_runs(runs, rows.start_s, rows.request.service, filed_s, cluster.run_ratio)
    residual = uncrowded(crowded, cluster.pressure)
    tide = tide_along(cluster.tide, rows.arrival_s, residual)
    if not cluster.node_tide.variance:
        return tide, None
    residual = residual - tide
    return tide, node_tides_along(cluster.node_tide, rows.arrival_s, residual, rows.node, cluster.num_nodes)


def discontent_of_rows(rows: EncodedRows) -> tuple[np.ndarray, np.ndarray]:
    """[rows] how ill the agents were served lately, by the rows before (`discontent`), and whether each went ill."""
    day = np.floor_divide(rows.arrival_s, DAY_S).astype(np.int64)
    deadline_s = np.where(rows.silent, np.inf, rows.request.deadline_s)  # whether it is overdue is not known
    went = (rows.arrival_s, rows.finish_s, rows.status, deadline_s)
    return discontent_along(rows.request.agent, day, *went), ill_in_log(*went)


def table_run_s(rows: EncodedRows, encoding: Encoding, expected_s: np.ndarray) -> np.ndarray:
    """[rows] how long each should run on its node, by the tables of the log and what is expected of it anywhere."""
    ratio = encoding.cluster.run_ratio[rows.request.service, rows.node]
    return np.asarray(expected_s * ratio, np.float32)


def filed_run_s(rows: EncodedRows, encoding: Encoding, begin_s: float) -> np.ndarray:
    """[rows] what is expected of each anywhere, with the start-up that was due (`run_levels.filed_run_s`)."""
    cluster, service, expected_s = (
        encoding.cluster,
        rows.request.service,
        np.asarray(rows.request.expected_run_s),
    )
    if cluster.cold is None:
        return expected_s
    pair, ratio = _pairs(rows, encoding), cluster.run_ratio[service, rows.node]
    return filed_runs_s(cluster.cold, rows.arrival_s, service, pair, expected_s, ratio, begin_s)


def last_ends_s(
    rows: EncodedRows, first_row: np.ndarray, origin_s: np.ndarray, encoding: Encoding, begin_s: float
) -> np.ndarray | None:
    """[services, nodes, W] when the last runs before every window should have ended, on its clock."""
    cluster = encoding.cluster
    if cluster.cold is None:
        return None
    shape = len(cluster.services), cluster.num_nodes
    pair = _pairs(rows, encoding)
    ends_s = rows.arrival_s + table_run_s(rows, encoding, rows.request.expected_run_s)
    found, latest, begin = [], np.full(shape[0] * shape[1], begin_s), 0
    for first in first_row:
        here = np.arange(begin, first)
        here = here[pair[here] >= 0]
        np.maximum.at(latest, pair[here], ends_s[here])
        begin = first
        found.append(latest.copy())
    return (np.stack(found, axis=-1).reshape(*shape, -1) - origin_s).astype(np.float32)


def progress_of(rows: EncodedRows, encoding: Encoding) -> WorkProgress | None:
    """How far runs have come by any instant; None where they do not slow each other."""
    cluster = encoding.cluster
    if cluster.pace is None:
        return None
    node = np.where((rows.status == REJECTED) | rows.silent, -1, rows.node)
    held = HeldRuns(node, rows.request.service, rows.request.demand[0], rows.start_s, rows.finish_s)
    return WorkProgress(cluster.pace, held, cluster.capacity[0])


def _runs(rows: EncodedRows, encoding: Encoding, filed_s: np.ndarray, *, works: bool = False) -> LoggedRuns:
    """The runs that ended, by their run times or, where runs slow each other, by their works."""
    ran = encoding.cluster.tells_run(rows.status)
    with np.errstate(invalid="ignore"):
        run_s = np.where(ran, rows.finish_s - rows.start_s, np.nan)
    if works and (progress := progress_of(rows, encoding)) is not None:
        some = np.flatnonzero(np.isfinite(run_s))
        run_s[some] = progress.work_s(some, rows.start_s[some], rows.finish_s[some])
    service, ratio = rows.request.service, encoding.cluster.run_ratio
    return runs_of(rows.arrival_s, rows.finish_s, run_s, filed_s, service, rows.node, ratio)


def _pairs(rows: EncodedRows, encoding: Encoding) -> np.ndarray:
    """[rows] the service and node of each as one index, -1 where no node took it."""
    taken = (rows.node >= 0) & (rows.status != REJECTED) & ~rows.silent
    return np.where(taken, rows.request.service * encoding.cluster.num_nodes + rows.node, -1)


def with_last_ends(
    held: list[tuple[np.ndarray, np.ndarray]], rows: EncodedRows, first_row: np.ndarray, num_nodes: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows in flight at the beginning of every window, with their slots, and of a node that holds nothing the row
    that ended last there, in its first slot."""
    ended = np.flatnonzero(
        (rows.node >= 0) & np.isfinite(rows.finish_s) & (rows.status != REJECTED) & ~rows.silent
    )
    ended = ended[np.argsort(rows.finish_s[ended], kind="stable")]
    until = np.searchsorted(rows.finish_s[ended], rows.arrival_s[first_row], "right")
    last, seen, found = np.full(num_nodes, -1), 0, []
    for first, upto, (those, slots) in zip(first_row, until.tolist(), held, strict=True):
        new = ended[seen:upto]
        new = new[new < first]
        last[rows.node[new]] = new  # of several on one node the one that ends last stands last
        seen = upto
        nothing = np.setdiff1d(np.flatnonzero(last >= 0), rows.node[those])
        found.append(
            (np.concatenate([those, last[nothing]]), np.concatenate([slots, np.zeros(len(nothing), int)]))
        )
    return found
