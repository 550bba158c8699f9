"""Days by slots as tables of an archive, simulated by a world or a twin."""

import datetime as dt
from typing import NamedTuple

import jax
import numpy as np
import pyarrow as pa

from evaluation.simulator.log_tables import instants, labels
from evaluation.simulator.names import agent_name
from evaluation.simulator.slots.recording import RecordedDay
from evaluation.simulator.world import CALENDAR_DAY_S, World
from logs_schema.calendar import EPOCH_DATE
from twin.orchestration.config import SlotConfig
from twin.orchestration.edge_cloud import EdgeCloud
from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED

_STATUS = {COMPLETED: "completed", FAILED: "failed", DROPPED: "dropped", REJECTED: "dropped"}


class LogNames(NamedTuple):
    """What a log calls things; indices are those of the recorded days, 0 of services and scenarios is "unknown"."""

    nodes: tuple[str, ...]
    sites: tuple[str, ...]  # of the access points
    services: tuple[str, ...]
    scenarios: tuple[str, ...]
    agents: tuple[str, ...]  # empty without agents
    memory_gib: np.ndarray  # [services]
    output_mib: np.ndarray  # [services]


def world_names(world: World) -> LogNames:
    """As a world calls things, in its own order."""
    services = world.services
    return LogNames(
        tuple(one.name for one in world.nodes),
        world.sites,
        ("unknown", *(one.name for one in services)),
        ("unknown", *(one.name for one in world.scenarios)),
        tuple(agent_name(agent) for agent in range(world.num_agents)),
        np.array([0.0, *(one.memory_gib for one in services)]),
        np.array([0.0, *(one.output_mib for one in services)]),
    )


def cluster_names(edge: EdgeCloud) -> LogNames:
    """As the log that a cluster was described from called things."""
    cluster = edge.cluster
    sites = tuple(cluster.sites[site] for site in edge.seat_site)
    return LogNames(
        cluster.node_names,
        sites,
        cluster.services,
        cluster.scenarios,
        (),
        edge.replica_gib.astype(np.float64),
        edge.output_mib.astype(np.float64),
    )


def requests_of(
    names: LogNames, slots: SlotConfig, rows: RecordedDay, day: dt.date
) -> tuple[pa.Table, np.ndarray]:
    """The requests of a day as the archive's table, and how many there are, on time, never sent."""
    slot, one, seat = np.nonzero(rows.comes)
    arrival_s = rows.arrival_s[slot, one, seat]
    order = np.lexsort((seat, arrival_s))
    slot, one, seat, arrival_s = slot[order], one[order], seat[order], arrival_s[order]
    request = jax.tree.map(lambda leaf: leaf[..., slot, one, seat], rows.request)
    sent = _sending(rows, np.asarray(arrival_s), seat)
    was_sent, at = sent >= 0, (np.maximum(sent, 0), seat)
    decided_s = np.where(was_sent, at[0] * slots.slot_s, np.inf)
    settled = was_sent & rows.settled[at]
    status = np.where(settled, rows.outcome.status[at], DROPPED)
    refused = settled & (status == REJECTED)
    start_s = np.where(settled & ~refused, rows.outcome.start_s[at], np.inf)
    late_s = np.ceil((arrival_s + request.deadline_s) / slots.slot_s) * slots.slot_s
    finish_s = np.where(settled & ~refused, rows.outcome.finish_s[at], np.where(was_sent, np.inf, late_s))
    finish_s = np.where(refused, decided_s, finish_s)
    midnight_s = (day - EPOCH_DATE).days * CALENDAR_DAY_S
    fates = np.array([_STATUS[one] for one in (COMPLETED, FAILED, DROPPED, REJECTED)])
    running = was_sent & ~rows.settled[at]
    words = np.where(running, "running", fates[np.searchsorted([0, 1, 2, 3], np.clip(status, 0, 3))])
    on_time = (words == "completed") & (finish_s - arrival_s <= request.deadline_s)
    service = np.asarray(request.service)
    columns = {
        "request_id": [f"{day:%Y%m%d}-{index:06d}" for index in range(len(seat))],
        "arrival": instants(midnight_s, arrival_s),
        "site": labels(names.sites, seat),
        "scenario": labels(names.scenarios, request.scenario),
        "service": labels(names.services, service),
        "cpu_cores": pa.array(np.ones(len(seat))),
        "memory_gib": pa.array(names.memory_gib[service]),
        "requested_run_s": pa.array(request.expected_run_s.astype(np.float64)),
        "input_mib": pa.array(request.input_mib.astype(np.float64)),
        "output_mib": pa.array(names.output_mib[service]),
        "deadline_s": pa.array(request.deadline_s.astype(np.float64)),
        "decided": instants(midnight_s, decided_s),
        "offered_node": pa.DictionaryArray.from_arrays(
            pa.array(np.asarray(rows.node)[at], mask=~was_sent), list(names.nodes)
        ),
        "accepted": pa.array(was_sent & ~refused, mask=~was_sent),
        "start": instants(midnight_s, start_s),
        "finish": instants(midnight_s, finish_s),
        "status": pa.array(words),
    } | ({"agent": labels(names.agents, request.agent)} if names.agents else {})
    return pa.table(columns), np.array([len(seat), on_time.sum(), (~was_sent).sum()])


def _sending(rows: RecordedDay, arrival_s: np.ndarray, seat: np.ndarray) -> np.ndarray:
    """[requests] the slot in which each was sent, -1 for never; a request is known by its seat and its arrival."""
    slot, where = np.nonzero(rows.sent)
    came = rows.arrived_s[slot, where]
    order = np.lexsort((came, where))
    slot, where, came = slot[order], where[order], came[order]
    found = np.full(len(seat), -1)
    for one in np.unique(seat):
        mine, theirs = np.flatnonzero(seat == one), where == one
        times, slots = came[theirs], slot[theirs]
        if not len(times):
            continue
        place = np.clip(np.searchsorted(times, arrival_s[mine]), 0, len(times) - 1)
        found[mine] = np.where(times[place] == arrival_s[mine], slots[place], -1)
    return found


def replicas_of(names: LogNames, rows: RecordedDay, day: dt.date, slot_s: float) -> pa.Table:
    """The deployment of a day: at midnight in full, then every change."""
    known = rows.replicas.astype(np.int64)
    first, changed = known[0], np.diff(known, axis=0) != 0
    service, node = np.nonzero(first)
    later, which, where = np.nonzero(changed)
    time_s = np.concatenate([np.zeros(len(service)), (later + 1) * slot_s])
    service, node = np.concatenate([service, which]), np.concatenate([node, where])
    count = np.concatenate([first[first > 0], known[later + 1, which, where]])
    midnight_s = (day - EPOCH_DATE).days * CALENDAR_DAY_S
    return pa.table(
        {
            "time": instants(midnight_s, time_s),
            "service": labels(names.services, service),
            "node_id": labels(names.nodes, node),
            "num_replicas": pa.array(count, pa.int32()),
        }
    )


def samples_of(names: LogNames, rows: RecordedDay, day: dt.date, slot_s: float, every: int) -> pa.Table:
    """What nodes report of themselves, every so many slots."""
    running, waiting, used_gib, available = (
        getattr(rows, name)[every - 1 :: every] for name in ("running", "waiting", "used_gib", "available")
    )
    num_samples, num_nodes = running.shape
    time_s = np.repeat((np.arange(num_samples) + 1) * every * slot_s, num_nodes)
    inside = time_s < CALENDAR_DAY_S
    node = np.tile(np.arange(num_nodes), num_samples)
    midnight_s = (day - EPOCH_DATE).days * CALENDAR_DAY_S
    columns = {
        "time": instants(midnight_s, time_s),
        "node_id": labels(names.nodes, node),
        "cpu_cores_used": pa.array(running.ravel().astype(np.float64)),
        "memory_gib_used": pa.array(used_gib.ravel().astype(np.float64)),
        "num_waiting": pa.array(waiting.ravel().astype(np.int32)),
        "num_running": pa.array(running.ravel().astype(np.int32)),
        "available": pa.array(available.ravel()),
    }
    return pa.table(columns).filter(pa.array(inside))
