"""How many requests run at once on a node that shares its cores, read off a log.

Where cores are shared nobody waits for one, and yet a node takes no more requests than it has *places*: as many as its
memory surely holds, workers of a server, a limit of containers. Who comes later waits until one leaves. A log that
spreads requests well hardly shows it, as its nodes are seldom full; under whoever fills them it decides everything.

What shows it, by few cases, is that requests begin as others leave:

    beside       = runs on the node that began before a request does, and have not left by then
    at the limit = so many that one more would be beyond it, of those that leave within a moment counted as well

No request ever begins beside as many as there are places, and those that begin at the limit do so within a moment of an
end, after longer waits than others. (An end may be logged a moment after the place is free, as outputs travel.) If
nobody waited for a place they would do so by chance alone: within a moment of an end as often, and after waits as long,
as those that begin below the limit. The evidence is minus the logarithm of that chance (R. A. Fisher's way to combine
chances, Statistical Methods for Research Workers, 1932, section 21.1).

Limits of different nodes are told together, for most nodes are never met at theirs: places of one size, of memory,
cores or GPUs, as many as a node has of it, or equally many on all nodes. Only where each node's own limit tells clearly
more are these taken; then nodes that show none have none. All that lacked a declared resource does not count.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from twin.placement.priorities import QueuedRuns
from twin.placement.types import CORES, GPUS, MEMORY

MOMENTS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)
"""Of the median run time, that are tried."""
CLEAR = 12.0
"""Evidence without which there is no limit: a chance of 6e-6, where some thirty moments and laws are tried."""
FEWEST = 2
"""Requests at the limit, at least."""
_TOLERANCE = 1e-6


class _Begun(NamedTuple):
    """What requests find as they begin; leaves [rows], of one node after another."""

    node: np.ndarray
    beside: np.ndarray  # runs that do not leave within a moment
    with_leaving: np.ndarray  # and those that do
    wait_s: np.ndarray  # since they came
    # bool: nothing that the node declares is short, those that leave among what it holds
    has_room: np.ndarray


def fit_places(held: QueuedRuns, demand: np.ndarray, capacity: np.ndarray) -> tuple[int, ...]:
    """How many requests run at once on every node of a log whose nodes share their cores.

    Args:
        held: Requests in order of arrival.
        demand: [resources, rows] that each asks for.
        capacity: [resources, nodes] inf where not known.

    Returns:
        [nodes] ints, 0 without a limit; empty where the log shows none.
    """
    rows = np.flatnonzero((held.node >= 0) & (held.start_s <= held.finish_s))
    run_s = held.finish_s[rows] - held.start_s[rows]
    best, found = CLEAR, np.zeros(0, int)
    for moment_s in np.median(run_s) * np.array(MOMENTS) if len(rows) else ():
        longer = rows[run_s > moment_s]  # what is over within a moment is never beside anything
        if not len(longer):
            continue
        begun = _begun(held, demand, capacity, longer, moment_s)
        most = np.zeros(capacity.shape[1])
        np.maximum.at(most, begun.node, begun.beside + 1.0)
        for limit in _laws(most, capacity):
            if (evidence := _evidence(begun, limit)) > best:
                best, found = evidence, limit
        own = np.array([_evidence(begun, most, node) for node in range(len(most))])
        own = np.where(own > CLEAR, own, 0.0)
        if own.sum() > best + CLEAR:
            best, found = float(own.sum()), np.where(own > 0.0, most, 0.0)
    return tuple(found.astype(int).tolist())


def _begun(
    held: QueuedRuns, demand: np.ndarray, capacity: np.ndarray, rows: np.ndarray, moment_s: float
) -> _Begun:
    parts = []
    for node in np.unique(held.node[rows]):
        own = rows[held.node[rows] == node]
        own = own[np.argsort(held.start_s[own], kind="stable")]
        start_s, finish_s, before = held.start_s[own], held.finish_s[own], np.arange(len(own))
        by_end = np.argsort(finish_s, kind="stable")
        gone = np.searchsorted(finish_s[by_end], start_s - moment_s, "left")
        leaving = np.searchsorted(finish_s[by_end], start_s + moment_s, "right")
        has_room = np.ones(len(own), bool)
        for resource in (MEMORY, GPUS):
            if np.isfinite(most := capacity[resource, node]) and most > 0.0:
                asked = demand[resource, own]
                until = np.concatenate([[0.0], np.cumsum(asked[by_end])])[gone]
                has_room &= np.cumsum(asked) - until <= most * (1.0 + _TOLERANCE)
        wait_s = start_s - held.arrival_s[own]
        parts.append((np.full(len(own), node), before - leaving, before - gone, wait_s, has_room))
    return _Begun(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _laws(most: np.ndarray, capacity: np.ndarray) -> Iterator[np.ndarray]:
    """[nodes] the least limits under which no request began without a place, for each kind of them.

    Args:
        most: [nodes] that are seen to run at once, 0 where nothing ran.
        capacity: [resources, nodes].
    """
    seen = most > 0.0
    for resource in (MEMORY, CORES, GPUS):
        amount = capacity[resource]
        if np.all(np.isfinite(amount) & (amount > 0.0)):
            yield np.floor(amount / np.min(amount[seen] / most[seen]) + _TOLERANCE)
    yield np.full(len(most), most.max())


def _evidence(begun: _Begun, limit: np.ndarray, node: int | None = None) -> float:
    """That such limits [nodes] hold, of one node or of all."""
    at_limit = begun.has_room & (begun.with_leaving >= limit[begun.node])
    below = begun.with_leaving < limit[begun.node]
    beside_some = below & (begun.with_leaving > 0)
    by_chance = beside_some & (begun.with_leaving > begun.beside)
    chance = (1.0 + by_chance.sum()) / (1.0 + beside_some.sum())
    rows = np.flatnonzero(at_limit if node is None else at_limit & (begun.node == node))
    if len(rows) < FEWEST:
        return 0.0
    as_long = np.empty(len(rows))
    for one in np.unique(begun.node[rows]):
        own = begun.node[rows] == one
        others_s = np.sort(begun.wait_s[below & (begun.node == one)])
        longer = len(others_s) - np.searchsorted(others_s, begun.wait_s[rows[own]], "left")
        as_long[own] = (1.0 + longer) / (1.0 + len(others_s))
    each = _of_product(len(rows), -float(np.log(as_long).sum())), -len(rows) * float(np.log(chance))
    return _of_product(2, sum(each))


def _of_product(number: int, evidence: float) -> float:
    """Minus the logarithm of the chance that so many chances without meaning have a product as small as exp(-evidence).

    By the tail of a gamma distribution, exp(-x) times the sum of x ** i / i! over i below the number.
    """
    if evidence <= 0.0:
        return 0.0
    power = np.arange(number)
    terms = power * np.log(evidence) - np.concatenate([[0.0], np.cumsum(np.log(power[1:]))])
    return max(evidence - float(np.logaddexp.reduce(terms)), 0.0)
