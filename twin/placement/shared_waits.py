"""Whether requests wait for what waits on other nodes: inputs that share a link, say, or a dispatcher that all share.

A node that has room, also for those that wait on it, begins at once what it takes; what is left of such waits is the
way there. Where that is longer the more requests wait on other nodes, of its site or of all sites, and this forecasts
what is left out of the fit better, beyond chance and by a share of the variance, answers see how many these are.

So waits grow with the load that a policy puts on what is shared, as far as the number under way as a request comes
tells. Of what comes later answers know no more than the log's mean.
"""

from typing import Any

import numpy as np

from twin.placement.cross_validation import MIN_RUNS, clear_gain, halves_in_turn, stretches
from twin.placement.priorities import UNIT_S, QueuedRuns

SITE, ALL = "site", "all"
"""Whose nodes what waits on is in the way of a request: those of the site of its node, or all."""
LEAST_GAIN = 0.05
"""Share of what else leaves of the variance of waits on nodes with room that those that wait elsewhere must explain."""


def beside(waits: Any, by: str, site_of_node: np.ndarray) -> Any:
    """[nodes, *batch] how many wait where it matters for a node, of those that wait on each [nodes, *batch]."""
    sites = site_of_node if by == SITE else np.zeros_like(site_of_node)
    alike = (sites[:, None] == sites[None]).astype(np.float32)
    return (alike @ waits.reshape(len(sites), -1)).reshape(waits.shape)


def fit_shared_waits(
    held: QueuedRuns, has_room: np.ndarray, kind: np.ndarray, input_mib: np.ndarray, site_of_node: np.ndarray
) -> str:
    """Whose waits requests of a log wait for.

    Args:
        held: Of the training days.
        has_room: [rows] bool: there are cores, also for those that wait on the node already.
        kind: [rows] what else waits go by: the node, and whether it is of the request's site.
        input_mib: [rows] input to be sent.
        site_of_node: [nodes].

    Returns:
        `SITE`, `ALL`, or "" where the log shows nothing of it.
    """
    free = np.flatnonzero(has_room)
    if len(free) < MIN_RUNS:
        return ""
    counts = _waiting_on(held, len(site_of_node))[:, free]
    wait = np.log(UNIT_S + held.start_s - held.arrival_s)[free]
    by_kind = np.eye(int(kind.max()) + 1)[kind[free]]
    moved = by_kind * np.log1p(input_mib[free])[:, None]
    plain = np.hstack([by_kind, moved])
    error = _errors(wait, plain)
    best, found = LEAST_GAIN * float(error.mean()), ""
    for by in (SITE, ALL):
        number = np.log1p(beside(counts, by, site_of_node)[held.node[free], np.arange(len(free))])
        fuller = _errors(wait, np.hstack([plain, by_kind * number[:, None]]))
        gain = clear_gain(error - fuller, stretches(len(wait)))
        if gain > best:
            best, found = gain, by
    return found


def _waiting_on(held: QueuedRuns, num_nodes: int) -> np.ndarray:
    """[nodes, rows] how many requests wait on each node as a row arrives."""
    found = np.zeros((num_nodes, len(held.node)), np.float32)
    for node in range(num_nodes):
        here = held.node == node
        come = np.searchsorted(np.sort(held.arrival_s[here]), held.arrival_s)
        found[node] = come - np.searchsorted(np.sort(held.start_s[here]), held.arrival_s, side="right")
    return np.maximum(found, 0.0)


def _errors(wait: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[rows] squared errors of waits that are left out of a fit by columns [rows, columns]."""
    found = np.zeros(len(wait))
    for fitted, left_out in halves_in_turn(stretches(len(wait))):
        gram = columns[fitted].T @ columns[fitted] + np.eye(columns.shape[1])
        slopes = np.linalg.solve(gram, columns[fitted].T @ wait[fitted])
        found[left_out] = (wait[left_out] - columns[left_out] @ slopes) ** 2
    return found
