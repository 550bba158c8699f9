"""Resources beside cores that requests wait for, read off a log: GPUs, memory.

A request waits where any resource is short. Policies see what is free of each, and the request's share of a node's
cores; what it takes of the others depends on the node. Where the log shows that requests wait for one of the others,
*scarce*, though cores are free, the share that a request needs of a node is

    share of the cores + the least of 0 and (free r - share of r) - (free cores - share of the cores), negated

so that free cores less the share needed is what would be left of whatever is shortest there. Elsewhere, and of requests
that ask for nothing scarce, it is the share of the cores.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from twin.placement.columns import amount, instant_s
from twin.placement.types import RESOURCES

FEWEST = 20
"""Requests that found nobody waiting and cores free, but too little of a resource, without which nothing is told."""
MOST_AT_ONCE = 0.5
"""Share of them that began at once all the same, at most, where they wait for it."""
_TOLERANCE = 1e-6


def scarce_resources(
    rows: pa.Table, node: np.ndarray, finish_s: np.ndarray, capacity: np.ndarray, limited: Sequence[int]
) -> tuple[int, ...]:
    """The resources (indices) beside cores that requests wait for.

    Args:
        rows: `requests` in order of arrival.
        node: [rows] index of the node that took each, -1 where none did.
        finish_s: [rows] seconds since 1970, inf where it is not known to have ended.
        capacity: [resources, nodes], inf where no limit is known.
        limited: Resources that some node has a limit of.
    """
    others = [resource for resource in limited if resource > 0]
    if not others:
        return ()
    arrival_s, start_s = instant_s(rows, "arrival"), instant_s(rows, "start")
    demand = [amount(rows, name, float(r == 0)) for r, name in enumerate(RESOURCES)]
    known = (node >= 0) & np.isfinite(arrival_s) & np.isfinite(start_s)
    # Of each: how many lacked it alone, and how many of them began at once
    found = np.zeros((len(RESOURCES), 2))
    for index in np.unique(node[known]):
        here = known & (node == index)
        times = arrival_s[here], start_s[here], finish_s[here]
        begins_at_once = times[1] <= times[0]
        ahead = np.arange(len(times[0])) - (_until(times[0], times[1]) - begins_at_once)
        short = {r: _is_short(times, demand[r][here], capacity[r, index]) for r in (0, *others)}
        for r in others:
            alone = (ahead <= 0) & short[r] & ~np.any([short[one] for one in short if one != r], axis=0)
            found[r] += alone.sum(), (alone & begins_at_once).sum()
    return tuple(r for r in others if found[r, 0] >= FEWEST and found[r, 1] <= MOST_AT_ONCE * found[r, 0])


def _until(now_s: np.ndarray, instants_s: np.ndarray, amounts: np.ndarray | None = None) -> np.ndarray:
    """[now] how many of the instants, or how much of their amounts, were not later than each `now_s`."""
    order = np.argsort(instants_s, kind="stable")
    weights = np.ones(len(order)) if amounts is None else amounts[order]
    return np.concatenate([[0.0], np.cumsum(weights)])[np.searchsorted(instants_s[order], now_s, "right")]


def _is_short(
    times: tuple[np.ndarray, np.ndarray, np.ndarray], demand: np.ndarray, capacity: float
) -> np.ndarray:
    """[rows] bool: less is free when a request arrives than it asks for."""
    arrival_s, start_s, finish_s = times
    own = np.where(start_s <= arrival_s, demand, 0.0)
    used = _until(arrival_s, start_s, demand) - own - _until(arrival_s, finish_s, demand)
    return np.asarray((demand > 0.0) & (used + demand > capacity * (1.0 + _TOLERANCE)))


def needed_shares(
    needed: Any, free: Sequence[Any], shares: Sequence[tuple[int, Any]], np: Any = np
) -> tuple[Any, Any]:
    """The share needed of a node, and the largest share asked for of anything; arrays of any shape, alike.

    Args:
        needed: Share asked for of the cores.
        free: Of every resource, the share that is free.
        shares: The scarce resources, and of each the share asked for.
        np: `jax.numpy` inside programs.
    """
    room, largest = free[0] - needed, needed
    for resource, share in shares:
        room = np.where(share > 0.0, np.minimum(room, free[resource] - share), room)
        largest = np.maximum(largest, share)
    return free[0] - room, largest
