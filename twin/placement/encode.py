"""From archive tables to padded arrays: the only place where that happens.

Rows are read day by day. Every window starts with the requests that were in flight at that moment, also those that
arrived on earlier days. What happened after `known_until_s` is unknown to the arrays, whatever the archive holds:
outcomes that end later are censored, so training cannot see past its cutoff.
"""

import datetime as dt
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive
from logs_schema.calendar import DAY_S, MONDAY_S
from logs_schema.errors import ConfigError
from logs_schema.tables import REQUESTS
from twin.placement.acceptance import acceptance_of
from twin.placement.columns import (
    agent_index,
    amount,
    index_of,
    instant_s,
    label_index,
    node_index,
    outcomes,
    refused,
)
from twin.placement.encoded_rows import EncodedRows as EncodedRows
from twin.placement.encoded_rows import (
    discontent_of_rows,
    filed_run_s,
    last_ends_s,
    levels_at,
    overtaken_rows,
    progress_of,
    ranks_of_rows,
    table_run_s,
    tides_of,
    with_last_ends,
)
from twin.placement.encoding import Encoding, candidate_set, expected_run_s
from twin.placement.pace import WorkProgress
from twin.placement.pieces import pieces
from twin.placement.repeats import is_repeat
from twin.placement.reported_ends import amended
from twin.placement.run_habits import own_runs_s
from twin.placement.service_kinds import labels_of
from twin.placement.think_times import think_times_s
from twin.placement.timeouts import run_limits_s
from twin.placement.types import (
    CARRIED,
    COMPLETED,
    DROPPED,
    EMPTY,
    REJECTED,
    RESOURCES,
    UNKNOWN,
    Carried,
    Fate,
    InFlight,
    Repeats,
    Requests,
)
from twin.placement.windows import Windows

LEAST_ROOM = 16
"""Rows for what is carried into windows; four times as many wherever they do not suffice: few shapes, few programs."""


def encode_rows(rows: pa.Table, encoding: Encoding, known_until_s: float) -> EncodedRows:
    """One archive table of requests as arrays.

    Args:
        rows: `requests`, sorted by arrival.
        encoding: Vocabularies and estimates.
        known_until_s: Seconds since 1970; outcomes later than this are censored.

    Returns:
        The rows; `start_s` and `finish_s` are inf where they are unknown or later than `known_until_s`. A request that
        was dropped at an unknown instant counts as dropped when it arrived: that it never ran is known.
    """
    rows = amended(rows, encoding.reported_ends, known_until_s)
    arrival_s, start_s = (instant_s(rows, name) for name in ("arrival", "start"))
    start_s = np.where(start_s <= known_until_s, start_s, np.inf)
    finish_s, status = outcomes(rows, known_until_s)
    node = node_index(rows, encoding.node_of_name, encoding.cluster.num_nodes)
    return EncodedRows(
        arrival_s, start_s, finish_s, status, node,
        _requests(rows, encoding, (arrival_s, start_s, finish_s), node),
        rows["request_id"].to_numpy(zero_copy_only=False), _silent(rows),
    )  # fmt: skip


def _silent(rows: pa.Table) -> np.ndarray:
    """[rows] bool: neither start nor finish, nor a status of being in the system, given up or refused."""
    known = pa.array(["running", "waiting", "dropped", "rejected"])
    has_status = pc.is_in(pc.cast(rows["status"], pa.string()), value_set=known)
    unseen = pc.and_(pc.is_null(rows["start"]), pc.is_null(rows["finish"]))
    silent = pc.and_(unseen, pc.invert(has_status)).to_numpy(zero_copy_only=False)
    return np.asarray(silent & ~refused(rows))


def _requests(
    rows: pa.Table, encoding: Encoding, times_s: tuple[np.ndarray, np.ndarray, np.ndarray], node: np.ndarray
) -> Requests:
    """`times_s`: arrivals, starts and ends."""
    arrival_s, *_ = times_s
    cluster, usual = encoding.cluster, (encoding.run_of_service_s, encoding.run_labels, encoding.run_habits)
    service, scenario, queue = labels = labels_of(rows, cluster)
    own_run_s = None
    if encoding.run_habits is not None:
        own_run_s = own_runs_s(encoding.train_days, *times_s, node) / cluster.run_ratio[service, node]
    expected_s = expected_run_s(rows, labels, *usual, own_run_s)
    demand = np.stack([amount(rows, name, 1.0 if name == "cpu_cores" else 0.0) for name in RESOURCES])
    known_resource = np.isfinite(cluster.capacity).any(axis=1) & (cluster.capacity > 0.0).any(axis=1)
    home, elsewhere, cloud = acceptance_of(cluster, rows["agent"], scenario)
    return Requests(
        site=label_index(rows, "site", cluster.sites),
        scenario=scenario,
        service=service,
        queue=queue,
        agent=agent_index(rows),
        rule=_by_queue(_rule(rows, encoding), rows, encoding, node),
        demand=np.where(known_resource[:, None], demand, 0.0).astype(np.float32),
        num_nodes=amount(rows, "num_nodes", 1.0).astype(np.float32),
        expected_run_s=expected_s.astype(np.float32),
        deadline_s=amount(rows, "deadline_s", np.inf).astype(np.float32),
        input_mib=amount(rows, "input_mib", 0.0).astype(np.float32),
        day_fraction=((arrival_s % DAY_S) / DAY_S).astype(np.float32),
        week_fraction=(((arrival_s - MONDAY_S) % (7 * DAY_S)) / (7 * DAY_S)).astype(np.float32),
        accepts_home=home,
        accepts_elsewhere=elsewhere,
        accepts_cloud=cloud,
        run_limit_s=run_limits_s(cluster.timeouts, service, amount(rows, "requested_run_s", np.nan)),
    )


def _rule(rows: pa.Table, encoding: Encoding) -> np.ndarray:
    """[rows] candidate set of every request; one unseen in training falls back to the smallest known set around it."""
    cluster = encoding.cluster
    known = {tuple(rule): index for index, rule in reversed(list(enumerate(cluster.rules.tolist())))}
    lists = [tuple(names or ()) for names in rows["candidates"].to_pylist()]
    rule_of = {}
    for names in set(lists):
        wanted = candidate_set(names, encoding.node_of_name, cluster.num_nodes)
        if wanted not in known:
            holds = [i for i, rule in enumerate(cluster.rules) if np.all(rule >= np.array(wanted))]
            known[wanted] = min(holds, key=lambda i: int(cluster.rules[i].sum()))
        rule_of[names] = known[wanted]
    return np.array([rule_of[names] for names in lists], np.int32)


def _by_queue(rule: np.ndarray, rows: pa.Table, encoding: Encoding, node: np.ndarray) -> np.ndarray:
    """The candidate sets, of requests that list none by their queue; one whose logged node is closed to its queue (a
    job that was moved) may use all nodes."""
    if not encoding.nodes_of_queue:
        return rule
    rules = encoding.cluster.rules
    nodes = np.arange(rules.shape[1])
    queue = index_of(rows["queue"], list(encoding.nodes_of_queue), missing=-1)
    lists_none = pc.is_null(rows["candidates"]).to_numpy(zero_copy_only=False)
    for number, each in enumerate(encoding.nodes_of_queue.values()):
        allowed = np.isin(nodes, each)
        known = int(np.flatnonzero(np.all(rules == allowed, axis=1))[0])
        rule[(queue == number) & lists_none & ((node < 0) | allowed[node])] = known
    return rule


def read_rows(
    archive: Archive, encoding: Encoding, days: Sequence[dt.date], *, known_until_s: float
) -> tuple[EncodedRows, np.ndarray]:
    """The requests of `days`, and before them those of earlier days that were still in flight when `days` begin.

    Args:
        archive: The log archive.
        encoding: Vocabularies and estimates.
        days: Days to encode, ascending.
        known_until_s: See `encode_rows`.

    Returns:
        The rows sorted by arrival, and a mask [rows] of those that arrived on `days`.
    """
    ((rows, wanted),) = read_pieces(archive, encoding, days, known_until_s=known_until_s, most=None)
    return rows, wanted


def read_pieces(
    archive: Archive,
    encoding: Encoding,
    days: Sequence[dt.date],
    *,
    known_until_s: float,
    most: int | None,
    each: int | None = None,
) -> Iterator[tuple[EncodedRows, np.ndarray]]:
    """As `read_rows`, of at most about `most` requests, piece by piece (`twin.placement.pieces`)."""
    for table, wanted in pieces(archive, days, most=most, columns=REQUESTS.names, each=each):
        yield encode_rows(table, encoding, known_until_s), wanted


def with_tides(rows: EncodedRows, wanted: np.ndarray, encoding: Encoding) -> EncodedRows:
    """The rows with their tides and their agents' discontent, which `cut_windows` looks for in the log where rows have
    none: for several cuts."""
    tide, node_tide = tides_of(rows, encoding, filed_run_s(rows, encoding, _begin_s(rows, wanted)))
    request = rows.request._replace(tide=tide, node_tide=node_tide)
    if encoding.cluster.reaction:
        discontent, ill_in_log = discontent_of_rows(rows)
        request = request._replace(discontent=discontent, ill_in_log=ill_in_log)
    return rows._replace(request=request)


def cut_windows(
    rows: EncodedRows, wanted: np.ndarray, encoding: Encoding, *, num_steps: int, stride: int | None = None
) -> Windows:
    """Cuts the wanted rows into windows of consecutive requests with a known decision.

    Rows for which the log does not show whether they ran are left out: they would look like requests that wait for
    ever.

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
            advice="import the log together with its nodes, by the names that requests give them; `schedtwin check` "
            "shows which names are unknown",
        )
    begins = np.arange(0, len(usable), stride or num_steps)
    if stride is not None and stride < num_steps:
        begins = begins[: max(1, np.searchsorted(begins, len(usable) - num_steps, side="right"))]
    position = begins[None] + np.arange(num_steps)[:, None]
    length = np.minimum(len(usable) - begins, num_steps).astype(np.int32)
    place = np.minimum(position, len(usable) - 1)
    row = usable[place]
    valid = np.arange(num_steps)[:, None] < length[None]
    origin_s = np.floor(rows.arrival_s[row[0]])
    if rows.request.tide is None:
        rows = with_tides(rows, wanted, encoding)
    begin_s = _begin_s(rows, wanted)
    filed_s = filed_run_s(rows, encoding, begin_s)
    progress = progress_of(rows, encoding)
    carried, num_overflow = _carried(rows, row[0], origin_s, encoding, filed_s, progress)

    def clock(instants_s: np.ndarray) -> np.ndarray:
        return (instants_s[row] - origin_s[None]).astype(np.float32)

    return Windows(
        request=Requests(*(None if leaf is None else np.asarray(leaf)[..., row] for leaf in rows.request)),
        arrival_s=clock(rows.arrival_s),
        length=length,
        node=np.where(valid, rows.node[row], -1).astype(np.int32),
        fate=Fate(rows.status[row] != REJECTED, clock(rows.start_s), clock(rows.finish_s), rows.status[row]),
        carried=carried,
        row=np.where(valid, row, -1),
        origin_s=origin_s,
        num_overflow=num_overflow,
        level=levels_at(rows, rows.arrival_s[row[0]], encoding, filed_s),
        age_s=np.maximum(origin_s - encoding.trained_until_s, 0.0).astype(np.float32),
        last_end_s=last_ends_s(rows, row[0], origin_s, encoding, begin_s),
        filed_s=None if encoding.cluster.cold is None else filed_s[row].astype(np.float32),
        repeats=None if (found := encoding.cluster.repeats) is None else _repeats(rows, found)[row],
        think_s=_think_s(rows, usable)[place] if encoding.cluster.awaits else None,
        driven_out=overtaken_rows(rows, encoding.cluster)[row] if encoding.cluster.is_ranked else None,
        work_s=None if progress is None else _work_s(rows, progress)[row].astype(np.float32),
    )


def _think_s(rows: EncodedRows, usable: np.ndarray) -> np.ndarray:
    """[usable] from each row's end until the next of its agent."""
    return think_times_s(
        *(leaf[usable] for leaf in (rows.arrival_s, rows.finish_s, rows.status, rows.request.agent))
    ).astype(np.float32)


def _repeats(rows: EncodedRows, found: Repeats) -> np.ndarray:
    """[rows] bool: whether each repeats a failed request."""
    request = rows.request
    return is_repeat(found, rows.arrival_s, rows.finish_s, rows.status, request.agent, request.service)


def _work_s(rows: EncodedRows, progress: WorkProgress) -> np.ndarray:
    """[rows] the work done of every run by its end, or by the last arrival; 0 of what did not run."""
    begun = np.isfinite(rows.start_s) & (rows.status != DROPPED)
    ends_s = np.where(np.isfinite(rows.finish_s), rows.finish_s, rows.arrival_s[-1])
    found, some = np.zeros(rows.num_rows), np.flatnonzero(begun & (ends_s > rows.start_s))
    found[some] = progress.work_s(some, rows.start_s[some], ends_s[some])
    return np.maximum(np.nan_to_num(found), 0.0)


def _begin_s(rows: EncodedRows, wanted: np.ndarray) -> float:
    """The first wanted arrival: earlier rows are only those still in flight then."""
    return float(rows.arrival_s[np.argmax(wanted)])


def _carried(
    rows: EncodedRows,
    first_row: np.ndarray,
    origin_s: np.ndarray,
    encoding: Encoding,
    filed_s: np.ndarray,
    progress: WorkProgress | None,
) -> tuple[Carried, int]:
    """What was in flight at the first arrival of every window, and how much of it found no slot.

    A request whose finish is not known is taken to end when its expected run time is over; one that has not been seen
    to start begins its expected run time before its finish, though not before the window; a dropped one never starts.
    Where starts are logged, one without start and finish waited until nothing more is known, and then begins. Where
    nodes sleep, what ended last on a node that holds nothing is carried as ended.
    """
    held, num_overflow = _held(rows, first_row, encoding.problem.depth)
    if encoding.cluster.wakes is not None:
        held = with_last_ends(held, rows, first_row, encoding.cluster.num_nodes)
    availability = LEAST_ROOM
    while availability < max(len(row) for row, _ in held):
        availability *= 4
    shape = (availability, len(first_row))
    row, slot = np.full(shape, -1), np.zeros(shape, np.int32)
    for window, (those, slots) in enumerate(held):
        row[: len(those), window], slot[: len(those), window] = those, slots
    holds = row >= 0
    now, status = rows.arrival_s[first_row], rows.status[row]
    start_s, finish_s = rows.start_s[row], rows.finish_s[row]
    expected = filed_s[row]
    latest = rows.arrival_s[-1] if np.isfinite(rows.start_s).any() else now
    assumed = np.maximum(np.where(np.isfinite(start_s), start_s, latest) + expected, now + 1.0)
    finish_s = np.where(np.isfinite(finish_s), finish_s, assumed)
    begun = np.where(np.isfinite(start_s), start_s, np.maximum(finish_s - expected, now))
    begun = np.where(status == DROPPED, np.inf, begun)
    has_ended = holds & (finish_s <= now)

    def number(values: np.ndarray, nothing: float) -> np.ndarray:
        """float32 [..., room, W]"""
        return np.where(holds, values, nothing).astype(np.float32)

    def code(values: np.ndarray, nothing: int) -> np.ndarray:
        """int32 [room, W]"""
        return np.where(holds, values, nothing).astype(np.int32)

    request = InFlight(
        decision=code(np.full(shape, CARRIED), EMPTY),
        arrival_s=number(rows.arrival_s[row] - origin_s, 0.0),
        start_s=number(np.where(start_s <= now, start_s - origin_s, np.inf), np.inf),
        finish_s=number(np.where(has_ended, finish_s - origin_s, np.inf), np.inf),
        status=code(np.where(has_ended, status, UNKNOWN), UNKNOWN),
        expected_run_s=number(np.where(has_ended, 0.0, expected), 0.0),
        mean_run_s=number(table_run_s(rows, encoding, filed_s)[row], 0.0),
        service=code(rows.request.service[row], 0),
        demand=number(rows.request.demand[:, row], 0.0),
        rank=None
        if (ranks := ranks_of_rows(rows, row, origin_s, encoding.cluster)) is None
        else holds * ranks,
    )
    ended = code(np.where(status == UNKNOWN, COMPLETED, status), UNKNOWN)
    fate = Fate(
        np.ones(shape, bool), number(begun - origin_s, np.inf), number(finish_s - origin_s, np.inf), ended
    )
    left_s = None
    if progress is not None:
        from_s = np.maximum(begun, now)
        done = progress.work_s(
            np.where(holds, row, 0), np.where(holds, from_s, 0.0), np.where(holds, finish_s, 0.0)
        )
        left_s = number(np.maximum(np.where(np.isfinite(done), done, finish_s - from_s), 0.0), 0.0)
    return Carried(code(rows.node[row], -1), slot, request, fate, left_s), num_overflow


def _held(
    rows: EncodedRows, first_row: np.ndarray, depth: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
    """For every window the rows that are in flight and their slots, node by node, and how many found no slot."""
    found, num_overflow, seen, held = [], 0, 0, np.zeros(0, np.int64)
    may_hold = np.flatnonzero((rows.node >= 0) & (rows.status != REJECTED) & ~rows.silent)
    for first in first_row:
        until = int(np.searchsorted(may_hold, first))
        held = np.concatenate([held, may_hold[seen:until]])
        # A finished request is in no later window either
        held = held[rows.finish_s[held] > rows.arrival_s[first]]
        seen, here = until, held[np.argsort(rows.node[held], kind="stable")]
        _, count = np.unique(rows.node[here], return_counts=True)
        kept = np.minimum(count, depth)  # the latest of every node
        slot = np.arange(len(here)) - np.repeat(np.cumsum(count) - kept, count)
        num_overflow += int((count - kept).sum())
        found.append((here[slot >= 0], slot[slot >= 0]))
    return found, num_overflow
