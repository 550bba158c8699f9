"""Nodes that sleep when idle, and take a while to wake: read off a log, due where a node has nothing for long.

    delay of a request on a node that holds nothing = wake time of the node, if it has been idle for at least so long

A power-saving batch system or an autoscaled group of machines suspends nodes that have nothing to do; the next request
for one starts it, and begins when it is there, as do those that come meanwhile. Of every node, the requests that found
nothing there are cut in two at the idle time that tells their waits apart best (one split of a regression tree). Nodes
of one class are cut together first: one that hardly ever slept, or is new, wakes as its class does. A cut counts where
both sides have enough requests, explains most of the waits' variance and is clear of chance, so that nothing changes
where no node sleeps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twin.placement.service_times import rows_by_group, rows_of_each

FEWEST = 8
"""Requests on either side of a cut, at least."""
LEAST_EXPLAINED = 0.5
"""Of the variance of waits on nodes that hold nothing, by a cut."""
CLEAR = 4.0
"""Standard errors that waits of the two sides differ by, at least."""


@dataclass(frozen=True)
class Wakes:
    """When nodes sleep.

    Attributes:
        after_s: [nodes] idle time after which one sleeps; of one that never does any.
        wake_s: [nodes] how long it takes to wake; 0 of one that never sleeps.
    """

    after_s: np.ndarray
    wake_s: np.ndarray


def wakes_of(content: Mapping[str, Any] | None) -> Wakes | None:
    """What an encoding's JSON holds."""
    if content is None:
        return None
    return Wakes(np.array(content["after_s"], float), np.array(content["wake_s"], float))


def fit_wakes(
    arrival_s: np.ndarray,
    start_s: np.ndarray,
    finish_s: np.ndarray,
    node: np.ndarray,
    stretch: np.ndarray,
    class_of_node: Sequence[object],
) -> Wakes | None:
    """The sleep of a log's nodes.

    Args:
        arrival_s: [rows] in order within a stretch.
        start_s, finish_s: [rows] inf where it is not known that the request began or ended.
        node: [rows] index, -1 where no node took the request.
        stretch: [rows] index, ascending, of the part of the log that a row is from.
        class_of_node: [nodes] what is alike.

    Returns:
        None where no node is seen to sleep.
    """
    num_nodes = len(class_of_node)
    of_node = rows_of_each(node, num_nodes)
    seen = [_idle_and_wait(arrival_s, start_s, finish_s, stretch, here) for here in of_node]
    wakes = Wakes(np.ones(num_nodes), np.zeros(num_nodes))
    for kind in dict.fromkeys(class_of_node):
        alike = [index for index, one in enumerate(class_of_node) if one == kind]
        together = _cut(*(np.concatenate([seen[index][part] for index in alike]) for part in (0, 1)))
        for index in alike:
            found = _cut(*seen[index]) or together
            if found is not None:
                wakes.after_s[index], wakes.wake_s[index] = found
    return wakes if wakes.wake_s.any() else None


def _idle_and_wait(
    arrival_s: np.ndarray, start_s: np.ndarray, finish_s: np.ndarray, stretch: np.ndarray, here: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of requests that found nothing on a node: how long it had been idle, and how long they waited."""
    arrival_s, start_s, finish_s, stretch = (each[here] for each in (arrival_s, start_s, finish_s, stretch))
    idle_s, wait_s = [], []
    for rows in rows_by_group(stretch):
        ended_s = np.maximum.accumulate(finish_s[rows])[:-1]
        idle, wait = arrival_s[rows][1:] - ended_s, (start_s[rows] - arrival_s[rows])[1:]
        usable = (idle >= 0.0) & np.isfinite(wait)
        idle_s.append(idle[usable])
        wait_s.append(wait[usable])
    nothing = np.zeros(0)
    return np.concatenate([nothing, *idle_s]), np.concatenate([nothing, *wait_s])


def _cut(idle_s: np.ndarray, wait_s: np.ndarray) -> tuple[float, float] | None:
    """The idle time at which waits change, and by how much; None where they do not."""
    num = len(idle_s)
    if num < 2 * FEWEST:
        return None
    order = np.argsort(idle_s, kind="stable")
    idle, wait = idle_s[order], wait_s[order]
    below = np.arange(FEWEST, num - FEWEST + 1)
    sums = np.cumsum(wait)
    before, after = sums[below - 1] / below, (sums[-1] - sums[below - 1]) / (num - below)
    between = below * (num - below) / num * (after - before) ** 2
    between[idle[below - 1] >= idle[np.minimum(below, num - 1)]] = 0.0  # no cut between equal idle times
    best = int(np.argmax(between))
    whole, cut = float(np.sum((wait - wait.mean()) ** 2)), int(below[best])
    step = float(after[best] - before[best])
    scatter = np.sqrt(max(whole - float(between[best]), 0.0) / num * (1.0 / cut + 1.0 / (num - cut)))
    if step <= CLEAR * scatter or between[best] < LEAST_EXPLAINED * whole:
        return None
    return float(np.sqrt(max(idle[cut - 1], 1e-3) * idle[cut])), step


def wake_left_s(
    wakes: Wakes, clock_s: Any, holds: Any, arrival_s: Any, start_s: Any, finish_s: Any, np: Any = np
) -> Any:
    """[nodes, *streams] how long nodes take until they are awake, by what is known of those on them.

    A node that nothing is known to have ended on is taken to be awake.

    Args:
        wakes: When nodes sleep.
        clock_s: [*streams] now.
        holds: [nodes, depth, *streams] bool: the slot holds a request, also one that has ended.
        arrival_s, start_s, finish_s: The same shape; inf where it has not begun or ended. Of a start in the future it
            is known when the node is awake.
        np: `jax.numpy` inside programs.
    """
    shape = (-1,) + (1,) * (clock_s.ndim)
    wake_s, after_s = (np.asarray(one, clock_s.dtype).reshape(shape) for one in (wakes.wake_s, wakes.after_s))
    now = clock_s[None, None]
    here = holds & (finish_s > now)
    runs = np.any(here & (start_s <= now), axis=1)
    waits = np.any(here, axis=1) & ~runs
    known_s = np.min(np.where(here, start_s, np.inf), axis=1) - clock_s[None]
    asked_s = np.min(np.where(here, arrival_s, np.inf), axis=1)
    guess_s = np.maximum(wake_s - (clock_s[None] - asked_s), 0.0)
    ended_s = np.max(np.where(holds & ~here, finish_s, -np.inf), axis=1)
    idle_s = np.where(np.isfinite(ended_s), clock_s[None] - ended_s, 0.0)
    waking_s = np.where(np.isfinite(known_s), known_s, guess_s)
    left_s = np.where(runs, 0.0, np.where(waits, waking_s, np.where(idle_s >= after_s, wake_s, 0.0)))
    return np.where(wake_s > 0.0, left_s, 0.0)
