"""What a request waits for beside room on its node, read off a log: those ahead of it, permits, and places.

*In order*: a node starts its requests as they came, so that one which waits, for many cores, a GPU or a permit, holds
up whoever is behind it, though there is room. A log shows it by what does not happen: hardly any request starts before
an earlier one that waits on its node.

*Permits*: of a service no more than so many run at once, on all nodes together: licences, connections to a database. A
log shows it by requests that found nobody waiting on their node, and cores free: where so many of the service run they
wait, and where fewer do they begin at once.

*Concurrency*: the same of a service on one node: workers of a function, replicas, places of a queue. Who waits for one
is in nobody else's way. Where a service has such a limit on some node, most of its others are not met in a log that
spreads requests well, but would be by whoever prefers a node: there the most that ran at once counts as one.

All count where they forecast waits better than without, beyond chance and by a share of the variance, so that nothing
changes elsewhere. Answers go by them. Policies observe concurrency alone, which differs between nodes: how long a
request takes on a node has in it what those of its service leave to wait for there, where all places are taken.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from twin.placement.columns import amount, label_index, outcomes
from twin.placement.cross_validation import LEAST_GAIN, MIN_RUNS, clear_gain, stretches
from twin.placement.disciplines import fit_disciplines
from twin.placement.pace import Pace
from twin.placement.patience import Patience, fit_patience
from twin.placement.places import fit_places
from twin.placement.priorities import MOST_ROWS, UNIT_S, Priorities, QueuedRuns, first_enough, held_before
from twin.placement.scarcity import scarce_resources
from twin.placement.shared_waits import fit_shared_waits
from twin.placement.types import DROPPED, RESOURCES, Cluster
from twin.records import at_rows

FEWEST_MET = 100
"""Requests that found others waiting on their node, without which nothing is said of the order."""
MOST_PASSED = 0.02
"""Share of them that start before one of those, at most, where they start in order."""
FEWEST_AT_LIMIT, FEWEST_OF_PAIR, FEWEST_PAIRS = 20, 8, 2
"""Requests that found room and nobody waiting, but as many of their service running as ever do, without which that is
no limit; those of a service on a node; and pairs of both without which a log has no limits of pairs."""
MOST_AT_ONCE = 0.1
"""Share of them that wait no longer, at most, than nearly all of those that found fewer running."""
TAKEN = 0.5
"""Share of the time until a request begins from which on it counts as having its permit: starts that answers draw
scatter about the instant at which one is given back, and nobody else is to take it in between."""
_AT_LIMIT, _NEARLY_ALL = 0.995, 0.9
_DEVIATIONS = 2.0
"""Standard errors by which forecasts are better; that nobody passes, or that nobody begins, is evidence by itself."""


class WaitedFor(NamedTuple):
    """What requests wait for beside room.

    Attributes:
        in_order: Whether nodes start requests in order.
        permits: [services] how many run at once, 0 without a limit; empty where none has any.
        concurrency: [services, nodes] the same on a node.
    """

    in_order: bool = False
    permits: tuple[int, ...] = ()
    concurrency: tuple[tuple[int, ...], ...] = ()


class _Found(NamedTuple):
    """What every request found on its node; leaves [rows]."""

    room_s: np.ndarray  # until so many have left that there are cores
    started_s: np.ndarray  # until the last of them began
    has_room: np.ndarray  # bool: nobody waits, and there are cores
    met: np.ndarray  # bool: some wait
    passed: np.ndarray  # bool: it starts before one of those


def fit_waits(
    rows: pa.Table,
    held: QueuedRuns,
    asked: tuple[np.ndarray, np.ndarray],
    cluster: Cluster,
    found: tuple[Priorities | None, Pace | None],
    *,
    by_class: bool,
) -> dict[str, Any]:
    """What requests of a log wait for beside cores, as fields of `Cluster`.

    Args:
        rows: `requests` in order of arrival.
        held: The same.
        asked: [rows] each, index of the service, and run time that is expected.
        cluster: For capacities.
        found: Queues that go before others, and how fast runs go: of nodes that share their cores places are told, of
            others, where no queue goes first, disciplines.
        by_class: Whether nodes stand for classes of machines; of these only scarce resources are told, and patience.
    """
    (service, expected_s), (priorities, pace) = asked, found
    scarce = scarce_resources(rows, held.node, held.finish_s, cluster.capacity, cluster.limited)
    fields = {"scarce": scarce, **_patience(rows, held, service, cluster)._asdict()}
    if by_class:
        return fields
    waits = fit_waiting(held, service, cluster.capacity[0], len(cluster.services), scarce=bool(scarce))
    is_plain = pace is None and not any(waits)
    fields["shared_waits"] = _shared_waits(rows, held, cluster) if is_plain else ""
    places: tuple[int, ...] = ()
    demand = np.stack([amount(rows, name, float(r == 0)) for r, name in enumerate(RESOURCES)])
    if pace is not None and pace.shares:
        places = fit_places(held, demand, cluster.capacity)
    if is_plain and priorities is None and not fields["shared_waits"]:
        deadline_s = amount(rows, "deadline_s", np.inf)
        orders = fit_disciplines(held, demand, expected_s, deadline_s, cluster.num_nodes)
        fields["disciplines"], fields["unordered"] = orders
    return {**fields, **waits._asdict(), "places": places}


def _shared_waits(rows: pa.Table, held: QueuedRuns, cluster: Cluster) -> str:
    """Whose waits requests of the log wait for."""
    known = np.flatnonzero((held.node >= 0) & (held.start_s <= held.finish_s))[:MOST_ROWS]
    if len(known) < MIN_RUNS:
        return ""
    held = at_rows(held, known)
    at_home = label_index(rows, "site", cluster.sites)[known] == cluster.site_of_node[held.node]
    return fit_shared_waits(
        held,
        _found(held, cluster.capacity[0]).room_s <= 0.0,
        2 * held.node + at_home,
        amount(rows, "input_mib", 0.0)[known],
        cluster.site_of_node,
    )


def _patience(rows: pa.Table, held: QueuedRuns, service: np.ndarray, cluster: Cluster) -> Patience:
    """When the requests of a log are given up."""
    ended_s, status = outcomes(rows, np.inf)
    dropped = (status == DROPPED) & (held.node >= 0)
    waited_s = np.where(dropped, ended_s, held.start_s) - held.arrival_s
    return fit_patience(service, waited_s, dropped, amount(rows, "deadline_s", np.inf), len(cluster.services))


def fit_waiting(
    held: QueuedRuns,
    service: np.ndarray,
    cores_of_node: np.ndarray,
    num_services: int,
    *,
    scarce: bool = False,
) -> WaitedFor:
    """What requests of a log wait for.

    Args:
        held: Of the training days.
        service: [rows] 0 is unknown.
        cores_of_node: [nodes] inf where not known.
        num_services: Of the vocabulary.
        scarce: Whether requests wait for other resources than cores, too; then waits beside free cores show no limits.
    """
    rows = np.flatnonzero((held.node >= 0) & (held.start_s <= held.finish_s))[:MOST_ROWS]
    if len(rows) < MIN_RUNS:
        return WaitedFor()
    held, service = at_rows(held, rows), service[rows]
    found, wait_s = _found(held, cores_of_node), held.start_s - held.arrival_s
    until_s = np.maximum(found.room_s, found.started_s)
    num_met, num_passed = int(found.met.sum()), int(found.passed.sum())
    in_order = num_met >= FEWEST_MET and num_passed <= MOST_PASSED * num_met
    in_order = in_order and _is_better(wait_s, found.room_s, until_s)
    if scarce:
        return WaitedFor(in_order)
    forecast_s, permits = until_s if in_order else found.room_s, [0] * num_services
    for number in range(1, num_services):
        own = np.flatnonzero(service == number)
        runs, room_s = at_rows(held, own), forecast_s[own]
        limit, _ = _limit(runs, found.has_room[own], FEWEST_AT_LIMIT)
        if limit and _is_better(wait_s[own], room_s, _until_one_leaves(runs, room_s, limit)):
            permits[number] = limit
    concurrency = () if in_order else _concurrency(held, service, found, (num_services, len(cores_of_node)))
    return WaitedFor(in_order, tuple(permits) if any(permits) else (), concurrency)


def _found(held: QueuedRuns, cores_of_node: np.ndarray) -> _Found:
    found = _Found(*np.zeros((2, len(held.node))), *np.zeros((3, len(held.node)), bool))
    for row, there in held_before(held):
        now_s, start_s = held.arrival_s[row], held.start_s[there]
        waits = start_s > now_s
        left = cores_of_node[held.node[row]] - held.cores[row]
        found.room_s[row] = first_enough(held.finish_s[there] - now_s, held.cores[there], left)
        found.started_s[row] = max(float(np.max(start_s, initial=now_s)) - now_s, 0.0)
        found.has_room[row] = not waits.any() and found.room_s[row] <= 0.0
        found.met[row] = waits.any()
        found.passed[row] = np.any(start_s[waits] > held.start_s[row])
    return found


def _limit(own: QueuedRuns, has_room: np.ndarray, fewest: int) -> tuple[int, int]:
    """How many run at once, 0 where the log does not show that there is a limit; and how many did at most."""
    if not len(has_room):
        return 0, 0
    starts, ends = np.sort(own.start_s), np.sort(own.finish_s)
    begun = np.searchsorted(starts, own.start_s, "right") - np.searchsorted(ends, own.start_s, "right")
    limit = int(np.quantile(begun, _AT_LIMIT, method="lower"))
    running = np.searchsorted(starts, own.arrival_s) - np.searchsorted(ends, own.arrival_s, "right")
    wait_s = own.start_s - own.arrival_s
    at_limit, below = has_room & (running >= limit), has_room & (running < limit)
    if limit < 1 or at_limit.sum() < fewest or not below.any():
        return 0, int(begun.max())
    at_once = np.mean(wait_s[at_limit] <= np.quantile(wait_s[below], _NEARLY_ALL))
    return (limit if at_once <= MOST_AT_ONCE else 0), int(begun.max())


def _until_one_leaves(own: QueuedRuns, room_s: np.ndarray, limit: int) -> np.ndarray:
    """[rows] seconds until fewer than so many of those before run, from when there is room."""
    until_s = room_s.copy()
    for row, now_s in enumerate(own.arrival_s):
        there = np.flatnonzero(own.finish_s[:row] > now_s)
        taken_in_s, leaves_in_s = TAKEN * (own.start_s[there] - now_s), own.finish_s[there] - now_s
        while True:
            running = leaves_in_s[(taken_in_s <= until_s[row]) & (leaves_in_s > until_s[row])]
            if len(running) < limit:
                break
            until_s[row] = running.min()
    return until_s


def _concurrency(
    held: QueuedRuns, service: np.ndarray, found: _Found, shape: tuple[int, int]
) -> tuple[tuple[int, ...], ...]:
    """`WaitedFor.concurrency`."""
    limits, most, until_s = np.zeros(shape, int), np.zeros(shape, int), np.zeros(len(service))
    for number in range(1, shape[0]):
        for node in range(shape[1]):
            own = np.flatnonzero((service == number) & (held.node == node))
            runs, at = at_rows(held, own), (number, node)
            limits[at], most[at] = _limit(runs, found.has_room[own], FEWEST_OF_PAIR)
            if limits[at]:
                until_s[own] = _until_one_leaves(runs, until_s[own], int(limits[at]))
    own = np.flatnonzero(limits[service, held.node])
    wait_s = (held.start_s - held.arrival_s)[own]
    if np.count_nonzero(limits) < FEWEST_PAIRS or not _is_better(wait_s, found.room_s[own], until_s[own]):
        return ()
    some = limits.any(axis=1, keepdims=True)
    return tuple(map(tuple, np.where(some, np.where(limits > 0, limits, most), 0).tolist()))


def _is_better(wait_s: np.ndarray, plain_s: np.ndarray, found_s: np.ndarray) -> bool:
    """Whether waits [rows] are forecast better by `found_s` than by `plain_s`."""
    if len(wait_s) < MIN_RUNS:
        return False
    wait, plain, found = (np.log(UNIT_S + np.maximum(each, 0.0)) for each in (wait_s, plain_s, found_s))
    gains = (plain - wait) ** 2 - (found - wait) ** 2
    return clear_gain(gains, stretches(len(wait)), _DEVIATIONS) > LEAST_GAIN * float(np.var(wait))
