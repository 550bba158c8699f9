"""A log of slot mode as arrays: the cluster that it describes, its requests, its deployments, what its nodes report.

What a log must hold is said by `missing_from`, table by table and column by column.
"""

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive
from logs_schema.errors import ArchiveError
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.settings import HOW_TO_SAY, SETTINGS, from_facts
from twin.placement.columns import amount, index_of, instant_s, label_index, vocabulary
from twin.placement.encoding import day_start_s
from twin.placement.service_times import without_history
from twin.placement.types import COMPLETED, DROPPED, FAILED, UNKNOWN, Cluster
from twin.records import at_rows

NEEDED = (
    "arrival", "site", "service", "scenario", "memory_gib", "requested_run_s", "input_mib", "output_mib", "deadline_s",
    "candidates", "decided", "offered_node", "start", "finish", "status",
)  # fmt: skip
"""Columns of requests that the problem reads; of these some may be empty: see `missing_from`."""
MUST_SAY = (
    "service",
    "memory_gib",
    "requested_run_s",
    "deadline_s",
    "decided",
    "offered_node",
    "start",
    "finish",
)
_CODES = {"completed": COMPLETED, "failed": FAILED, "dropped": DROPPED}


class SlotRows(NamedTuple):
    """Requests of some days in the order of arrival; leaves [rows], times since midnight, NaN: never."""

    day: np.ndarray  # position among the days
    site: np.ndarray  # indices of the cluster's vocabularies
    service: np.ndarray
    scenario: np.ndarray
    arrival_s: np.ndarray
    decided_s: np.ndarray
    start_s: np.ndarray
    finish_s: np.ndarray
    node: np.ndarray  # -1: never sent
    status: np.ndarray  # COMPLETED, FAILED, DROPPED or UNKNOWN
    requested_run_s: np.ndarray
    input_mib: np.ndarray
    deadline_s: np.ndarray

    @property
    def on_time(self) -> np.ndarray:
        """[rows] bool: the answer was back within the deadline."""
        with np.errstate(invalid="ignore"):
            return (self.status == COMPLETED) & (self.finish_s - self.arrival_s <= self.deadline_s)


class ReplicaRows(NamedTuple):
    """Changes of deployments; leaves [rows], in the order of days and times."""

    day: np.ndarray
    time_s: np.ndarray
    service: np.ndarray
    node: np.ndarray
    num_replicas: np.ndarray


class SampleRows(NamedTuple):
    """What nodes report; leaves [rows]."""

    day: np.ndarray
    time_s: np.ndarray
    node: np.ndarray
    memory_gib: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    available: np.ndarray


def missing_from(archive: Archive) -> str:
    """What a log lacks for orchestration, in words; empty where it lacks nothing."""
    lacks = [f"table {name} is empty" for name in ("replicas", "node_samples") if not archive.num_rows(name)]
    if SETTINGS not in archive.facts:
        lacks.append(f"nothing says how it is run by slots: {HOW_TO_SAY}")
    if not archive.num_rows("requests"):
        return "; ".join(["table requests is empty", *lacks])
    rows = archive.read("requests", columns=list(MUST_SAY), days=archive.days("requests")[:1])
    lacks += [
        f"column {name} of requests is empty"
        for name in MUST_SAY
        if not rows.num_rows or rows[name].null_count == rows.num_rows
    ]
    return "; ".join(lacks)


def describe_cluster(archive: Archive, days: Sequence[dt.date]) -> tuple[EdgeCloud, FrameConfig]:
    """The public description of the cluster that a log is of, as some days show it.

    Args:
        archive: With `nodes`, `requests`, `replicas` and the settings among its facts.
        days: Whose requests name the services; the first deployment is that at their first midnight.

    Returns:
        The cluster and the settings of frames. Of images nothing is known yet (`fit.fit_pulls` estimates their time).

    Raises:
        ArchiveError: naming what is missing.
    """
    if lacks := missing_from(archive):
        raise ArchiveError(
            f"this is no log of orchestration: {lacks}",
            where=str(archive.path),
            allowed="a log by slots, as `schedtwin simulate --slots` writes it",
            advice="learn another problem of it",
        )
    config, frames = from_facts(archive.facts, str(archive.path))
    rows = archive.read("requests", columns=list(NEEDED), days=days)
    cluster = _cluster(archive.nodes(), rows)
    service, num_services = label_index(rows, "service", cluster.services), len(cluster.services)
    asked = set(pc.unique(rows["site"]).to_pylist())
    seats = [index for index, site in enumerate(cluster.sites) if site in asked]
    shape = (num_services, cluster.num_nodes)

    def mean(column: str) -> np.ndarray:
        return _mean_by(service, amount(rows, column, np.nan), num_services)

    edge = EdgeCloud(
        config=config,
        cluster=cluster,
        seat_site=np.array(seats, np.int32),
        cores=cluster.capacity[0].astype(np.float32),
        at_once=cluster.capacity[0].astype(np.float32),
        memory_gib=amount(archive.nodes(), "memory_gib", np.inf).astype(np.float32),
        hosts=_hosts(rows, cluster, service),
        replica_gib=mean("memory_gib"),
        work_s=mean("requested_run_s"),
        output_mib=mean("output_mib"),
        pull_s=np.zeros(shape, np.float32),
        pull_mib=np.zeros(shape, np.float32),
        replicas=np.zeros(shape, np.int32),
    )
    return edge._replace(replicas=midnight_replicas(read_replicas(archive, days[:1], cluster), edge)), frames


def read_rows(archive: Archive, days: Sequence[dt.date], cluster: Cluster) -> SlotRows:
    """The requests of some days; those at sites that the cluster does not know are left out."""
    rows = archive.read("requests", columns=list(NEEDED), days=days)
    arrival = instant_s(rows, "arrival")
    midnight = np.array([day_start_s(day) for day in days])
    day = np.searchsorted(midnight, arrival, side="right") - 1

    def since(column: str) -> np.ndarray:
        return instant_s(rows, column) - midnight[day]

    status = index_of(rows["status"], list(_CODES), missing=len(_CODES))
    codes = np.array([*_CODES.values(), UNKNOWN])
    found = SlotRows(
        day=day,
        site=index_of(rows["site"], cluster.sites, missing=-1),
        service=label_index(rows, "service", cluster.services),
        scenario=label_index(rows, "scenario", cluster.scenarios),
        arrival_s=since("arrival"),
        decided_s=since("decided"),
        start_s=since("start"),
        finish_s=since("finish"),
        node=index_of(rows["offered_node"], cluster.node_names, missing=-1),
        status=codes[status],
        requested_run_s=amount(rows, "requested_run_s", 0.0),
        input_mib=amount(rows, "input_mib", 0.0),
        deadline_s=amount(rows, "deadline_s", np.inf),
    )
    order = np.lexsort((found.arrival_s, found.day))
    order = order[found.site[order] >= 0]
    return at_rows(found, order)


def read_replicas(archive: Archive, days: Sequence[dt.date], cluster: Cluster) -> ReplicaRows:
    """Changes of deployments on some days; those on nodes that the cluster does not know are left out."""
    rows = archive.read("replicas", days=days)
    day, time_s = _day_and_time(rows, days)
    found = ReplicaRows(
        day,
        time_s,
        label_index(rows, "service", cluster.services),
        index_of(rows["node_id"], cluster.node_names, missing=-1),
        amount(rows, "num_replicas", 0.0).astype(int),
    )
    return ReplicaRows(*(leaf[found.node >= 0] for leaf in found))


def read_samples(archive: Archive, days: Sequence[dt.date], cluster: Cluster) -> SampleRows:
    """What nodes report on some days; a node that does not say is available."""
    rows = archive.read("node_samples", days=days)
    day, time_s = _day_and_time(rows, days)
    available = pc.fill_null(rows["available"], True).to_numpy(zero_copy_only=False).astype(bool)
    return SampleRows(
        day,
        time_s,
        index_of(rows["node_id"], cluster.node_names, missing=-1),
        amount(rows, "memory_gib_used", np.nan),
        amount(rows, "num_running", np.nan),
        amount(rows, "num_waiting", np.nan),
        available,
    )


def midnight_replicas(rows: ReplicaRows, edge: EdgeCloud) -> np.ndarray:
    """[services, nodes] int32 what is deployed as the first of the days begins."""
    replicas = np.zeros((edge.num_services, edge.num_nodes), np.int32)
    first = (rows.day == 0) & (rows.time_s <= 0.0) & (rows.node >= 0)
    replicas[rows.service[first], rows.node[first]] = rows.num_replicas[first]
    return replicas


def _day_and_time(rows: pa.Table, days: Sequence[dt.date]) -> tuple[np.ndarray, np.ndarray]:
    midnight = np.array([day_start_s(day) for day in days])
    instant = instant_s(rows, "time")
    day = np.searchsorted(midnight, instant, side="right") - 1
    return day, instant - midnight[day]


def _cluster(nodes: pa.Table, rows: pa.Table) -> Cluster:
    """Nodes and vocabularies; memory is unlimited for requests, whose replicas hold it."""
    names, site_names = nodes["node_id"].to_pylist(), nodes["site"].to_pylist()
    sites = tuple(dict.fromkeys([*site_names, *pc.unique(rows["site"]).to_pylist()]))
    scenarios, services = (vocabulary(rows[kind].to_pylist()) for kind in ("scenario", "service"))
    cores, unlimited = amount(nodes, "cpu_cores", 1.0), np.full(len(names), np.inf)
    capacity = np.stack([cores, unlimited, np.zeros(len(names))])
    return Cluster(
        node_names=tuple(names),
        capacity=capacity,
        unit_capacity=capacity,
        site_of_node=np.array([sites.index(site) for site in site_names]),
        is_cloud=np.array([tier == "cloud" for tier in nodes["tier"].to_pylist()]),
        sites=sites,
        scenarios=scenarios,
        services=services,
        queues=(scenarios[0],),
        rules=np.ones((1, len(names)), bool),
        knows_week=False,
        **without_history(len(services), len(names), len(scenarios)),
    )


def _hosts(rows: pa.Table, cluster: Cluster, service: np.ndarray) -> np.ndarray:
    """[services, nodes] bool: the rules allow a replica, as the candidates of requests tell; else every node."""
    hosts = np.ones((len(cluster.services), cluster.num_nodes), bool)
    if "candidates" not in rows.column_names:
        return hosts
    for one in range(1, len(cluster.services)):
        mine = np.flatnonzero(service == one)
        allowed = rows["candidates"][int(mine[0])].as_py() if len(mine) else None
        if allowed is not None:
            hosts[one] = [name in allowed for name in cluster.node_names]
    return hosts


def _mean_by(group: np.ndarray, values: np.ndarray, num_groups: int) -> np.ndarray:
    """[groups] float32 means of what is known; 0 where nothing is."""
    known = np.isfinite(values)
    total = np.bincount(group[known], values[known], num_groups)
    return (total / np.maximum(np.bincount(group[known], minlength=num_groups), 1)).astype(np.float32)
