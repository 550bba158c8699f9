"""Whether a log's jobs waited for processors at all, and else for what, as far as the log tells, for the reader.

An order is judged on a machine that has processors alone. Where jobs waited although processors enough for them were
free, they waited for something else (GPUs, memory, whole nodes, limits, reservations, jobs before them), which no
replay plays: what orders are worth there says little of the system.

A job of a well-run queue also waits beside free processors while they are kept for the job that comes first, so only a
large share counts: in KTH's log it is .54 of the waiting time, in Theta's .26, and 1.00 in wagap's classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.problems.ordering.log_gaps import WITH_ROOM
from logs_schema.archive import Archive
from logs_schema.concurrency import most_at_once, use_over_time
from twin.ordering.pools import NODES_OF_JOBS, rows_of_pool
from twin.ordering.types import Jobs, Pool
from twin.records import at_rows

MOST_ROOM = 0.75
"""Share of the waiting time in which processors enough were free, above which jobs are said to wait for more."""
LEAST_WAIT_S = 60.0
"""A mean wait that is worth a word."""
EXPLAINS = 0.5
"""Something else is named where it was free in less than this share of the time for which jobs waited for it."""
SHARED, MANY, PART_OF_NODE = 0.01, 0.1, 0.9
"""Nodes are given whole where at most `SHARED` of the jobs began beside another on their node, though more than `MANY`
of them fill less than `PART_OF_NODE` of theirs."""
CLOCK_S = 1.0
"""Starts and ends are often told in whole seconds."""
SIZES = {"gpus": "GPUs", "memory_gib": "memory"}
"""What jobs may ask for besides: column -> in words."""
IN_SHADOW = "hold an order in shadow beside what runs before it decides"
NUM_INSTANTS = 400
"""Instants of waiting at which room on a node is looked for, evenly over all waiting time."""
EPSILON = 1e-6


class HeldAmounts(NamedTuple):
    """What jobs hold of something while they run; leaves [jobs], s after an origin; without a start nothing."""

    arrival_s: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    amount: np.ndarray


def waits_in_words(archive: Archive, jobs: Jobs, pool: Pool) -> list[str]:
    """One sentence where a log's jobs waited beside processors enough for them, with what it tells of why; else none.

    Args:
        archive: Of the log.
        jobs: Those of the pool, from `twin.ordering.jobs.read_jobs`.
        pool: The pool.

    Raises:
        ArchiveError: A file of the archive is missing or damaged.
    """
    end_s = jobs.logged_start_s + jobs.run_s
    held = HeldAmounts(jobs.arrival_s, jobs.logged_start_s, end_s, jobs.processors)
    held = at_rows(held, jobs.processors <= pool.processors)
    waited_s, with_room_s = waited(held, pool.processors)
    if waited_s < LEAST_WAIT_S * max(len(jobs.arrival_s), 1) or with_room_s < MOST_ROOM * waited_s:
        return []
    mean_s, share = waited_s / len(held.arrival_s), with_room_s / waited_s
    why = _why(archive, jobs, pool, share)
    return [
        f"the log's jobs waited {mean_s:,.0f} s in the mean, and in {share:.0%} of that time {WITH_ROOM}: "
        f"they waited for something that is not in this replay, so what it says of orders may not hold; {why}"
    ]


def waited(held: HeldAmounts, size: float) -> tuple[float, float]:
    """Seconds for which jobs waited, all together, and of these how many the amount of each was free of `size`."""
    held = at_rows(held, np.isfinite(held.start_s) & np.isfinite(held.end_s) & (held.amount > 0.0))
    wait_s = np.maximum(held.start_s - held.arrival_s, 0.0)
    if not len(wait_s):
        return 0.0, 0.0
    times_s, use = use_over_time(held.start_s, held.end_s, held.amount)
    last = np.append(times_s[1:] != times_s[:-1], True)
    times_s, free = times_s[last], size - use[last]
    with_room_s = 0.0
    for amount in np.unique(held.amount[wait_s > 0.0]):
        mine = (held.amount == amount) & (wait_s > 0.0)
        fits = free >= amount - EPSILON * max(size, 1.0)
        before, after = (_room_until(one[mine], times_s, fits) for one in (held.arrival_s, held.start_s))
        with_room_s += float(np.sum(after - before))
    return float(wait_s.sum()), with_room_s


def _room_until(instant_s: np.ndarray, times_s: np.ndarray, fits: np.ndarray) -> np.ndarray:
    """[instants] seconds with room since the first of `times_s`; before it there is room always."""
    room_s = np.append(0.0, np.cumsum(np.diff(times_s) * fits[:-1]))
    place = np.clip(np.searchsorted(times_s, instant_s, side="right") - 1, 0, len(times_s) - 1)
    beyond_s = np.maximum(instant_s - times_s[place], 0.0) * fits[place]
    return np.where(instant_s < times_s[0], instant_s - times_s[0], room_s[place] + beyond_s)


def _why(archive: Archive, jobs: Jobs, pool: Pool, share: float) -> str:
    """What jobs waited for, as far as a log tells."""
    rows, nodes = _rows(archive, jobs, pool), archive.nodes()
    where = _nodes_of(rows)
    if _gives_whole_nodes(where, nodes, jobs):
        return (
            "no two of them were on a node at once, so nodes are given whole: import the log with the number of nodes "
            'for cpu_cores (of Slurm source = "ReqNodes"), and give how many there are (--processors)'
        )
    amounts = {column: _amounts(rows, column) for column in SIZES}
    for column, words in SIZES.items():
        room = _room_of(amounts[column], jobs)
        if room is not None and room < EXPLAINS * share:
            return (
                f"{words} enough were free in {room:.0%} of the time for which jobs waited that ask for any: import "
                f"the log with what is mapped to {column} for cpu_cores, and give how much there is (--processors)"
            )
    room = room_on_a_node([jobs.processors, *amounts.values()], where, jobs)
    if room is not None and room < EXPLAINS * share:
        return (
            f"in {1.0 - room:.0%} of that time no single node had the processors, memory and GPUs that were asked "
            f"for, which this replay takes for one pool; {IN_SHADOW}"
        )
    return (
        "the log does not tell what for (limits of users, reservations, jobs that wait for other jobs, licences); "
        + IN_SHADOW
    )


def _rows(archive: Archive, jobs: Jobs, pool: Pool) -> pa.Table:
    """The rows of the jobs, in their order."""
    rows = archive.read("requests", columns=("request_id", *SIZES, *NODES_OF_JOBS))
    if pool.name is not None:
        rows, _ = rows_of_pool(archive, rows, pool.name)
    return rows.take(pc.index_in(pa.array(jobs.request_id, pa.string()), rows["request_id"].combine_chunks()))


def _amounts(rows: pa.Table, column: str) -> np.ndarray:
    """[rows] 0 where unknown."""
    return np.nan_to_num(np.asarray(rows[column].cast(pa.float64()).to_numpy(zero_copy_only=False), float))


def _nodes_of(rows: pa.Table) -> list[list[str]]:
    """[rows] names of the nodes on which each ran; empty where unknown."""
    several, one = rows["ran_nodes"].to_pylist(), rows["ran_node"].to_pylist()
    return [many or ([] if single is None else [single]) for many, single in zip(several, one, strict=True)]


def _room_of(amount: np.ndarray, jobs: Jobs) -> float | None:
    """Share of the waiting time of jobs that ask for some of it in which there was enough: of the most that was ever
    held at once. None where they are not those that waited."""
    end_s = jobs.logged_start_s + jobs.run_s
    known = np.isfinite(end_s) & (amount > 0.0)
    if not known.any():
        return None
    most = most_at_once(jobs.logged_start_s[known], end_s[known], amount[known])
    waited_s, room_s = waited(HeldAmounts(jobs.arrival_s, jobs.logged_start_s, end_s, amount), most)
    all_s = float(np.nansum(np.maximum(jobs.logged_start_s - jobs.arrival_s, 0.0)))
    return room_s / waited_s if waited_s > EXPLAINS * all_s else None


def room_on_a_node(amounts: Sequence[np.ndarray], where: Sequence[Sequence[str]], jobs: Jobs) -> float | None:
    """Share of the waiting time of jobs on one node in which a node had room for all that they ask for.

    Args:
        amounts: [jobs] each: of processors, memory and the like. A node has what was ever held of it at once.
        where: [jobs] nodes of each.
        jobs: The jobs.

    Returns:
        None where those that waited did not run on one node.
    """
    wait_s = np.nan_to_num(np.maximum(jobs.logged_start_s - jobs.arrival_s, 0.0))
    single = np.array([len(one) == 1 for one in where], bool) & np.isfinite(jobs.logged_start_s)
    all_s, wait_s = wait_s.sum(), np.where(single, wait_s, 0.0)
    if wait_s.sum() <= EXPLAINS * all_s:
        return None
    here = np.flatnonzero(single)
    ran_on = np.array([where[job][0] for job in here.tolist()], str)
    names, node = np.unique(ran_on, return_inverse=True)
    start_s, end_s = jobs.logged_start_s[here], (jobs.logged_start_s + jobs.run_s)[here]
    held = [amount[here] for amount in amounts]
    rows_of = [node == place for place in range(len(names))]
    most = [[most_at_once(start_s[rows], end_s[rows], one[rows]) for rows in rows_of] for one in held]
    upto_s = np.cumsum(wait_s)
    found = 0
    for at_s in (np.arange(NUM_INSTANTS) + 0.5) / NUM_INSTANTS * upto_s[-1]:
        job = int(np.searchsorted(upto_s, at_s))
        clock_s = jobs.logged_start_s[job] - (upto_s[job] - at_s)
        runs = (start_s <= clock_s) & (end_s > clock_s)
        used = [np.bincount(node[runs], one[runs], len(names)) for one in held]
        fits = [
            top - use >= amount[job] - EPSILON * max(amount[job], 1.0)
            for top, use, amount in zip(most, used, amounts, strict=True)
        ]
        found += bool(np.any(np.all(fits, axis=0)))
    return found / NUM_INSTANTS


def _gives_whole_nodes(where: Sequence[Sequence[str]], nodes: pa.Table, jobs: Jobs) -> bool:
    """Whether many jobs leave room on their nodes, but hardly another runs there meanwhile."""
    cores = dict(zip(nodes["node_id"].to_pylist(), nodes["cpu_cores"].to_pylist(), strict=True))
    has_s = np.array([sum(cores.get(name) or 0.0 for name in one) for one in where], float)
    known = np.isfinite(jobs.logged_start_s) & (has_s > 0.0)
    leaves = known & (jobs.processors <= PART_OF_NODE * has_s)
    if leaves.sum() <= MANY * max(known.sum(), 1):
        return False
    order = np.flatnonzero(known)[np.argsort(jobs.logged_start_s[known], kind="stable")]
    free_at: dict[str, float] = {}
    beside = 0
    for job in order.tolist():
        start_s, end_s = float(jobs.logged_start_s[job]), float(jobs.logged_start_s[job] + jobs.run_s[job])
        beside += any(free_at.get(name, -np.inf) > start_s + CLOCK_S for name in where[job])
        free_at |= {name: max(free_at.get(name, -np.inf), end_s) for name in where[job]}
    return beside <= SHARED * len(order)
