"""From archive tables to padded arrays: the only place where that happens.

Rows are read day by day. Every window starts with the requests that were in flight at that moment, also those that
arrived on earlier days. What happened after `known_until` is unknown to the arrays, whatever the archive says: outcomes
that end later are censored, so training cannot see past its cutoff.
"""

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.placement.encoding import (
    DAY_S,
    Encoding,
    acceptance_of,
    amount,
    candidate_set,
    day_start_s,
    expected_run_s,
    instant_s,
    label_index,
    node_index,
)
from twin.placement.types import (
    CARRIED,
    COMPLETED,
    DROPPED,
    EMPTY,
    FAILED,
    NUM_RESOURCES,
    REJECTED,
    RESOURCES,
    UNKNOWN,
    Fate,
    InFlight,
    Requests,
)
from twin.placement.windows import Windows

MONDAY_S = 4 * DAY_S
"""1970-01-01 was a Thursday; the first Monday began this many seconds later."""

_STATUS = {
    "completed": COMPLETED,
    "failed": FAILED,
    "killed": FAILED,
    "dropped": DROPPED,
    "rejected": REJECTED,
}


class EncodedRows(NamedTuple):
    """Encoded requests, sorted by arrival; instants in float64 seconds since 1970, inf where not known."""

    arrival_s: np.ndarray
    start_s: np.ndarray
    finish_s: np.ndarray
    status: np.ndarray
    node: np.ndarray
    request: Requests  # leaves [rows], demand [resources, rows]
    request_id: np.ndarray
    silent: np.ndarray  # bool: the log never says whether it ran; not held against any node

    @property
    def num_rows(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)


def encode_rows(rows: pa.Table, encoding: Encoding, known_until_s: float) -> EncodedRows:
    """One archive table of requests as arrays.

    Args:
        rows: `requests`, sorted by arrival.
        encoding: Vocabularies and estimates.
        known_until_s: Seconds since 1970; outcomes later than this are censored.

    Returns:
        The rows; `start_s` and `finish_s` are inf where they are unknown or later than `known_until_s`.
    """
    arrival_s = instant_s(rows, "arrival")
    start_s, finish_s = instant_s(rows, "start"), instant_s(rows, "finish")
    start_s = np.where(start_s <= known_until_s, start_s, np.inf)
    finish_s = np.where(finish_s <= known_until_s, finish_s, np.inf)
    status = _status(rows, finish_s)
    finish_s = np.where((status == REJECTED) | (status == UNKNOWN), np.inf, finish_s)
    node = node_index(rows, encoding.node_of_name, encoding.cluster.num_nodes)
    return EncodedRows(
        arrival_s, start_s, finish_s, status, node, _requests(rows, encoding, arrival_s),
        rows["request_id"].to_numpy(zero_copy_only=False), _silent(rows),
    )  # fmt: skip


def _status(rows: pa.Table, finish_s: np.ndarray) -> np.ndarray:
    """Status codes; UNKNOWN where the outcome is not (or not yet) known. A null acceptance counts as accepted."""
    labels = pc.cast(rows["status"], pa.string())
    codes = np.array([_STATUS.get(label, UNKNOWN) for label in labels.to_pylist()], np.int32)
    finished = np.isfinite(finish_s)
    codes = np.where(finished & (codes == UNKNOWN), COMPLETED, codes)
    codes = np.where(finished | (codes == REJECTED), codes, UNKNOWN)
    refused = pc.fill_null(pc.equal(rows["accepted"], False), False).to_numpy(zero_copy_only=False)
    return np.where(refused, REJECTED, codes).astype(np.int32)


def _silent(rows: pa.Table) -> np.ndarray:
    """[rows] bool: neither start nor finish, nor a word that it is in the system, was given up or was refused."""
    spoken = pa.array(["running", "waiting", "dropped", "rejected"])
    told = pc.is_in(pc.cast(rows["status"], pa.string()), value_set=spoken)
    refused = pc.fill_null(pc.equal(rows["accepted"], False), False)
    unseen = pc.and_(pc.is_null(rows["start"]), pc.is_null(rows["finish"]))
    silent = pc.and_(unseen, pc.invert(pc.or_(told, refused)))
    return silent.to_numpy(zero_copy_only=False)


def _requests(rows: pa.Table, encoding: Encoding, arrival_s: np.ndarray) -> Requests:
    cluster = encoding.cluster
    service = label_index(rows, "service", cluster.services)
    demand = np.stack([amount(rows, name, 1.0 if name == "cpu_cores" else 0.0) for name in RESOURCES])
    known_resource = np.isfinite(cluster.capacity).any(axis=1) & (cluster.capacity > 0.0).any(axis=1)
    agents = pc.dictionary_encode(pc.cast(rows["agent"], pa.string()))
    agent = pa.chunked_array([agents]) if isinstance(agents, pa.Array) else agents
    agent = agent.combine_chunks() if agent.num_chunks else agent
    agent_index = pc.fill_null(agent.indices, -1).to_numpy() if len(rows) else np.zeros(0)
    scenario = label_index(rows, "scenario", cluster.scenarios)
    home, elsewhere, cloud = acceptance_of(cluster, rows["agent"], scenario)
    return Requests(
        site=label_index(rows, "site", cluster.sites),
        scenario=scenario,
        service=service,
        queue=label_index(rows, "queue", cluster.queues),
        agent=agent_index.astype(np.int32),
        rule=_rule(rows, encoding),
        demand=np.where(known_resource[:, None], demand, 0.0).astype(np.float32),
        num_nodes=amount(rows, "num_nodes", 1.0).astype(np.float32),
        expected_run_s=expected_run_s(rows, service, encoding.run_of_service_s).astype(np.float32),
        deadline_s=amount(rows, "deadline_s", np.inf).astype(np.float32),
        input_mib=amount(rows, "input_mib", 0.0).astype(np.float32),
        day_fraction=((arrival_s % DAY_S) / DAY_S).astype(np.float32),
        week_fraction=(((arrival_s - MONDAY_S) % (7 * DAY_S)) / (7 * DAY_S)).astype(np.float32),
        accepts_home=home,
        accepts_elsewhere=elsewhere,
        accepts_cloud=cloud,
    )


def _rule(rows: pa.Table, encoding: Encoding) -> np.ndarray:
    """[rows] candidate set of every request; one unseen in training falls back to the smallest known set around it."""
    cluster = encoding.cluster
    known = {tuple(rule): index for index, rule in reversed(list(enumerate(cluster.rules.tolist())))}
    rules = []
    for names in rows["candidates"].to_pylist():
        wanted = candidate_set(names, encoding.node_of_name, cluster.num_nodes)
        if wanted not in known:
            holds = [i for i, rule in enumerate(cluster.rules) if np.all(rule >= np.array(wanted))]
            known[wanted] = min(holds, key=lambda i: int(cluster.rules[i].sum()))
        rules.append(known[wanted])
    return np.array(rules, np.int32)


def read_rows(
    archive: Archive,
    encoding: Encoding,
    days: Sequence[dt.date],
    *,
    known_until_s: float,
    lookback_days: int = 60,
) -> tuple[EncodedRows, np.ndarray]:
    """The requests of `days`, and before them those of earlier days that were still in flight when `days` begin.

    Args:
        archive: The log archive.
        encoding: Vocabularies and estimates.
        days: Days to encode, ascending.
        known_until_s: See `encode_rows`.
        lookback_days: How far back to look for requests still in flight.

    Returns:
        The rows sorted by arrival, and a mask [rows] of those that arrived on `days`.
    """
    first_s = day_start_s(min(days))
    parts = []
    for day in archive.days("requests"):
        if 0 < (min(days) - day).days <= lookback_days:
            earlier = archive.read("requests", days=[day])
            begins = pa.scalar(int(first_s * 1e6), pa.timestamp("us", tz="UTC"))
            lasts = pc.fill_null(pc.greater_equal(earlier["finish"], begins), False)
            parts.append(earlier.filter(lasts))
    parts.append(archive.read("requests", days=list(days)))
    table = pa.concat_tables([part.unify_dictionaries() for part in parts], promote_options="permissive")
    rows = encode_rows(table.unify_dictionaries(), encoding, known_until_s)
    return rows, rows.arrival_s >= first_s


def cut_windows(
    rows: EncodedRows, wanted: np.ndarray, encoding: Encoding, *, num_steps: int, stride: int | None = None
) -> Windows:
    """Cuts the wanted rows into windows of consecutive requests with a known decision.

    Rows of which the log never says whether they ran are left out: they would look like requests that wait for ever.

    Args:
        rows: Sorted by arrival.
        wanted: [rows] bool; the others are only looked at for what was in flight.
        encoding: For the cluster and the depth of its tables.
        num_steps: Requests per window.
        stride: Requests from one window's start to the next; `num_steps` (no overlap) by default.

    Returns:
        The windows; the last may be shorter.

    Raises:
        ConfigError: No wanted row has a known decision.
    """
    usable = np.flatnonzero(wanted & (rows.node >= 0) & ~rows.silent)
    if len(usable) == 0:
        raise ConfigError(
            "no request of these days has a known decision on a known node",
            where=f"{int(wanted.sum())} requests",
            allowed="requests with offered_node or ran_node named in the table nodes",
            advice="look at the capability matrix of `schedtwin check`",
        )
    begins = np.arange(0, len(usable), stride or num_steps)
    if stride is not None and stride < num_steps:
        begins = begins[: max(1, np.searchsorted(begins, len(usable) - num_steps, side="right"))]
    position = begins[None] + np.arange(num_steps)[:, None]
    length = np.minimum(len(usable) - begins, num_steps).astype(np.int32)
    row = usable[np.minimum(position, len(usable) - 1)]
    valid = np.arange(num_steps)[:, None] < length[None]
    origin_s = np.floor(rows.arrival_s[row[0]])
    carried, carried_fate, num_overflow = _carried(rows, row[0], origin_s, encoding)

    def clock(instants_s: np.ndarray) -> np.ndarray:
        return (instants_s[row] - origin_s[None]).astype(np.float32)

    requests = {name: getattr(rows.request, name)[..., row] for name in Requests._fields}
    return Windows(
        request=Requests(**requests),
        arrival_s=clock(rows.arrival_s),
        length=length,
        node=np.where(valid, rows.node[row], -1).astype(np.int32),
        fate=Fate(rows.status[row] != REJECTED, clock(rows.start_s), clock(rows.finish_s), rows.status[row]),
        carried=carried,
        carried_fate=carried_fate,
        row=np.where(valid, row, -1),
        origin_s=origin_s,
        num_overflow=num_overflow,
    )


def _carried(
    rows: EncodedRows, first_row: np.ndarray, origin_s: np.ndarray, encoding: Encoding
) -> tuple[InFlight, Fate, int]:
    """The table in flight at the first arrival of every window, with the fates of what is in it.

    A request whose finish is not known is taken to end when its expected run time is over; one that has not been seen
    to start begins its expected run time before its finish, though not before the window; a dropped one never starts.
    """
    nodes, depth, num_windows = encoding.cluster.num_nodes, encoding.problem.depth, len(first_row)
    shape = (nodes, depth, num_windows)
    table = _empty_numpy_table(shape)
    fate = Fate(
        accepted=np.ones(shape, bool),
        start_s=np.full(shape, np.inf, np.float32),
        finish_s=np.full(shape, np.inf, np.float32),
        status=np.full(shape, UNKNOWN, np.int32),
    )
    num_overflow = 0
    may_hold = (rows.node >= 0) & (rows.status != REJECTED) & ~rows.silent
    for window, (first, origin) in enumerate(zip(first_row, origin_s, strict=True)):
        now = rows.arrival_s[first]
        held = may_hold[:first] & (rows.finish_s[:first] > now)
        for node in range(nodes):
            here = np.flatnonzero(held & (rows.node[:first] == node))
            num_overflow += max(0, len(here) - depth)
            here = here[-depth:]
            slot = np.arange(len(here))
            start_s, finish_s = rows.start_s[here], rows.finish_s[here]
            expected = rows.request.expected_run_s[here]
            assumed = np.maximum(np.where(np.isfinite(start_s), start_s, now) + expected, now + 1.0)
            finish_s = np.where(np.isfinite(finish_s), finish_s, assumed)
            begun = np.where(np.isfinite(start_s), start_s, np.maximum(finish_s - expected, now))
            begun = np.where(rows.status[here] == DROPPED, np.inf, begun)
            at = (node, slot, window)
            table.decision[at] = CARRIED
            table.arrival_s[at] = rows.arrival_s[here] - origin
            table.start_s[at] = np.where(start_s <= now, start_s - origin, np.inf)
            table.expected_run_s[at] = expected
            table.service[at] = rows.request.service[here]
            table.demand[:, node, slot, window] = rows.request.demand[:, here]
            fate.start_s[at] = begun - origin
            fate.finish_s[at] = finish_s - origin
            fate.status[at] = np.where(rows.status[here] == UNKNOWN, COMPLETED, rows.status[here])
    return table, fate, num_overflow


def _empty_numpy_table(shape: tuple[int, int, int]) -> InFlight:
    def zero() -> np.ndarray:
        return np.zeros(shape, np.float32)

    def never() -> np.ndarray:
        return np.full(shape, np.inf, np.float32)

    return InFlight(
        decision=np.full(shape, EMPTY, np.int32),
        arrival_s=zero(),
        start_s=never(),
        finish_s=never(),
        status=np.full(shape, UNKNOWN, np.int32),
        expected_run_s=zero(),
        service=np.zeros(shape, np.int32),
        demand=np.zeros((NUM_RESOURCES, *shape), np.float32),
    )
