"""Answers from history, and the explicit rule for decisions that history did not take.

Where a decision agrees with the log, the logged outcome is the answer, to the second. Where it does not, the log has
no answer. The rule: the outcome is borrowed from a *donor*, the logged request nearest in arrival time that
ran on the chosen node and was for the same service (any service where there is none). Acceptance, wait and status
are the donor's. The run time is the donor's too, unless the request states a run time of its own (batch jobs: the work
belongs to the job), then its own logged run time is kept. A node without a run in these days has no donor: the
outcome stays unknown and the decision is never settled.

What this rule cannot give: what the donor's queue would have looked like after the policy's *other* decisions. Replay
is exact about the logged policy and blind to the crowding a new policy causes or cures.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree, Streams
from twin.placement.responses import Answers
from twin.placement.types import REJECTED, UNKNOWN, Fate, PlacementState
from twin.placement.windows import Windows, choose_windows, take


class ReplayTable(NamedTuple):
    """The answer to every possible decision: fates [nodes, T, W] and where they come from."""

    fate: Fate
    logged: np.ndarray  # [nodes, T, W] bool: the log itself has this answer
    known: np.ndarray  # [nodes, T, W] bool: the log or a donor has it


def nearest_donor(arrival_s: np.ndarray, donor_arrival_s: np.ndarray) -> np.ndarray:
    """Index of the donor nearest in time for every request; of two equally near ones the earlier.

    Args:
        arrival_s: [requests] arrival times.
        donor_arrival_s: [donors] sorted arrival times, at least one.

    Returns:
        [requests] indices into the donors.
    """
    after = np.clip(np.searchsorted(donor_arrival_s, arrival_s), 1, max(len(donor_arrival_s) - 1, 1))
    after = np.minimum(after, len(donor_arrival_s) - 1)
    before = np.maximum(after - 1, 0)
    nearer_before = arrival_s - donor_arrival_s[before] <= donor_arrival_s[after] - arrival_s
    return np.where(nearer_before, before, after)


class _DonorRows(NamedTuple):
    """The requests of all windows, each once, sorted by arrival; arrays [requests]."""

    arrival_s: np.ndarray  # absolute
    node: np.ndarray
    service: np.ndarray
    wait_s: np.ndarray
    run_s: np.ndarray
    stay_s: np.ndarray  # from arrival to finish, also of requests dropped before they ran
    status: np.ndarray
    usable: np.ndarray  # as a donor: the fate is known


def _rows(windows: Windows) -> tuple[_DonorRows, np.ndarray]:
    """Flattened rows, sorted by arrival, and for every entry [T, W] of the windows the position of its row."""
    valid = windows.valid()
    _, first, inverse = np.unique(windows.row[valid], return_index=True, return_inverse=True)
    arrival = windows.arrival_s[valid][first] + np.broadcast_to(windows.origin_s, valid.shape)[valid][first]
    order = np.argsort(arrival, kind="stable")

    def pick(values: np.ndarray) -> np.ndarray:
        return np.asarray(values)[valid][first][order]

    fate = jax.tree.map(pick, windows.fate)
    arrival_s = pick(windows.arrival_s)
    usable = np.isfinite(fate.finish_s) & (pick(windows.node) >= 0) | (fate.status == REJECTED)
    start_s = np.where(np.isfinite(fate.start_s), fate.start_s, np.nan)
    wait_s, run_s = start_s - arrival_s, fate.finish_s - start_s
    stay_s = fate.finish_s - arrival_s
    position = np.full(windows.arrival_s.shape, -1)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    position[valid] = rank[inverse.reshape(-1)]
    rows = _DonorRows(
        arrival[order],
        pick(windows.node),
        pick(windows.request.service),
        wait_s,
        run_s,
        stay_s,
        fate.status,
        usable,
    )
    return rows, position


def _donors(rows: _DonorRows, workload: np.ndarray, node: int) -> np.ndarray:
    """[workload] the donor on `node` of every request (indices into the rows), -1 where no request ran there."""
    donor = np.full(len(workload), -1)
    on_node = np.flatnonzero(rows.usable & (rows.node == node))
    if len(on_node) == 0:
        return donor
    arrival_s, wanted = rows.arrival_s[workload], rows.service[workload]
    donor = on_node[nearest_donor(arrival_s, rows.arrival_s[on_node])]
    for service in np.unique(rows.service[on_node]):
        same = on_node[rows.service[on_node] == service]
        same_service = np.flatnonzero(wanted == service)
        donor[same_service] = same[nearest_donor(arrival_s[same_service], rows.arrival_s[same])]
    return donor


def times_lent(windows: Windows) -> Callable[[np.ndarray], np.ndarray]:
    """How often decisions lean on one outcome: a function of decisions [T, W] that gives for each the number of them
    that borrow from the same donor; 0 where the outcome is the log's own, where there is no donor, and for padding.
    """
    rows, position = _rows(windows)
    valid = windows.valid()

    def lent(node: np.ndarray) -> np.ndarray:
        chosen, donor = node[valid], np.full(int(valid.sum()), -1)
        for one in np.unique(chosen):
            here = (chosen == one) & (windows.node[valid] != one)
            donor[here] = _donors(rows, position[valid][here], int(one))
        times = np.bincount(donor[donor >= 0], minlength=len(rows.arrival_s))
        found = np.zeros(valid.shape, np.int64)
        found[valid] = np.where(donor >= 0, times[donor], 0)
        return found

    return lent


def replay_table(
    windows: Windows, num_nodes: int, *, own_run: bool, donors: Windows | None = None
) -> ReplayTable:
    """The answers of history to every decision in every window, by the rule of this module.

    Args:
        windows: The logged windows.
        num_nodes: Number of nodes a decision can name.
        own_run: Keep a request's own logged run time on other nodes (batch jobs).
        donors: Windows that donors are looked for in, where `windows` are only some of them: the table takes memory by
            the windows and nodes, so that of many windows is made part by part.

    Returns:
        Fates on each window's clock, inf where they are unknown.
    """
    rows, position = _rows(windows if donors is None else donors)
    valid = windows.valid()
    if donors is not None:
        position = _position_among(windows, donors, position)
    workload, place = np.unique(position[valid], return_inverse=True)
    entry = np.zeros(valid.shape, np.int64)
    entry[valid] = place.reshape(-1)
    shape = (num_nodes, *valid.shape)
    start, finish = np.full(shape, np.inf, np.float32), np.full(shape, np.inf, np.float32)
    status, accepted = np.full(shape, UNKNOWN, np.int32), np.ones(shape, bool)
    known = np.zeros(shape, bool)
    for node in range(num_nodes):
        lender = _donors(rows, workload, node)[entry]
        found = valid & (lender >= 0)
        run_s = rows.run_s[lender]
        if own_run:
            own = rows.run_s[position]
            run_s = np.where(np.isfinite(own), own, run_s)
        start[node] = np.where(found, windows.arrival_s + rows.wait_s[lender], np.inf)
        ends = np.where(np.isfinite(rows.wait_s[lender]), rows.wait_s[lender] + run_s, rows.stay_s[lender])
        finish[node] = np.where(found, windows.arrival_s + ends, np.inf)
        status[node] = np.where(found, rows.status[lender], UNKNOWN)
        accepted[node] = np.where(found, rows.status[lender] != REJECTED, True)
        known[node] = found
    logged = (windows.node[None] == np.arange(num_nodes)[:, None, None]) & valid[None]
    own_fate = windows.fate

    def settle(own: np.ndarray, borrowed: np.ndarray) -> np.ndarray:
        return np.where(logged, own[None], borrowed)

    fate = Fate(
        settle(own_fate.accepted, accepted),
        settle(own_fate.start_s, np.where(np.isnan(start), np.inf, start)),
        settle(own_fate.finish_s, np.where(np.isnan(finish), np.inf, finish)),
        settle(own_fate.status, status),
    )
    own_known = np.isfinite(own_fate.finish_s) | (own_fate.status == REJECTED)
    return ReplayTable(fate, logged, np.where(logged, own_known[None], known))


def _position_among(windows: Windows, donors: Windows, position: np.ndarray) -> np.ndarray:
    """[T, W] for every entry of some windows the position of its row, from those of the windows they are among."""
    known, first = np.unique(donors.row[donors.valid()], return_index=True)
    at = np.searchsorted(known, windows.row).clip(max=len(known) - 1)
    return position[donors.valid()][first][at]


def replayed_answers(windows: Windows, table: ReplayTable) -> Answers:
    """Answers from `table`, walking through the windows in step with `replayed_arrivals(windows)`.

    Only for as many streams as windows, each its own: arrivals and answers must be of the same window.
    """

    def init(key: Array, streams: Streams) -> tuple[Array, Fate]:
        window = choose_windows(key, windows.num_windows, (windows.num_windows,))
        if streams != (windows.num_windows,):
            raise ConfigError(
                f"{streams} streams cannot replay {windows.num_windows} windows",
                where="replayed_answers",
                allowed=f"one stream axis of {windows.num_windows}, a stream for each window",
            )
        return jnp.int32(0), take(table.fate, window)

    def answer(
        _key: Array, memory: tuple[Array, Fate], _state: PlacementState, node: Array, _decision_info: PyTree
    ) -> tuple[tuple[Array, Fate], Fate]:
        step, fates = memory
        inside = jnp.minimum(step, windows.num_steps - 1)
        choices = jnp.arange(fates.start_s.shape[0])[:, None]
        chosen = choices == node[0][None]

        def of_choice(leaf: Array) -> Array:
            now = jax.lax.dynamic_index_in_dim(leaf, inside, 1, False)
            picked = jnp.sum(jnp.where(chosen, now, jnp.zeros((), now.dtype)), axis=0, dtype=now.dtype)
            return picked[None]

        return (step + 1, fates), jax.tree.map(of_choice, fates)

    return Answers(init, answer)


def with_logged_luck(answers: Answers, windows: Windows, follows: Array | bool = True) -> Answers:
    """`answers` whose luck is the log's wherever a decision is the logged one: acceptance, run time and status
    are as logged, its work where runs slow each other; waits alone are answered anew.

    Logged decisions were reactions to runs that happened. Beside runs drawn afresh they would be blind ones, and the
    queues of the very system that wrote the log would grow; beside the logged runs they are what they were.

    Args:
        answers: Of any system.
        windows: Of the log, walked through in step with `replayed_arrivals(windows)`, each by a stream of its own.
        follows: Whether the luck is the log's at all; may be traced.

    Returns:
        The answers; where the log has no end, the system's own.
    """

    def init(key: Array, streams: Streams) -> tuple[Array, PyTree]:
        if streams != (windows.num_windows,):
            raise ConfigError(
                f"{streams} streams cannot follow the luck of {windows.num_windows} windows",
                where="with_logged_luck",
                allowed=f"one stream axis of {windows.num_windows}, a stream for each window",
            )
        return jnp.int32(0), answers.init(key, streams)

    def answer(
        key: Array, memory: tuple[Array, PyTree], state: PlacementState, node: Array, response_aux: PyTree
    ) -> tuple[tuple[Array, PyTree], Fate]:
        step, own = memory
        own, drawn = answers.answer(key, own, state, node, response_aux)
        inside = jnp.minimum(step, windows.num_steps - 1)
        logged, logged_node = jax.tree.map(
            lambda leaf: jax.lax.dynamic_index_in_dim(jnp.asarray(leaf), inside, 0, True),
            (windows.fate, windows.node),
        )
        ran = jnp.isfinite(logged.start_s) & jnp.isfinite(logged.finish_s)
        known = jnp.isfinite(logged.finish_s) | (logged.status == REJECTED)
        start_s = jnp.where(jnp.isfinite(drawn.start_s), drawn.start_s, logged.start_s)
        run_s = logged.finish_s - logged.start_s
        if windows.work_s is not None:
            run_s = jax.lax.dynamic_index_in_dim(jnp.asarray(windows.work_s), inside, 0, True)
        lucky = Fate(
            logged.accepted,
            jnp.where(ran, start_s, logged.start_s),
            jnp.where(ran, start_s + run_s, logged.finish_s),
            logged.status,
        )
        same = known & (node == logged_node) & follows
        return (step + 1, own), jax.tree.map(lambda one, other: jnp.where(same, one, other), lucky, drawn)

    return answers._replace(init=init, answer=answer)
