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
from twin.placement.service_times import rows_by_group

SITE, ALL = "site", "all"
"""Whose nodes what waits on is in the way of a request: those of the site of its node, or all."""
LEAST_GAIN = 0.05
"""Share of what else leaves of the variance of waits on nodes with room that those that wait elsewhere must explain."""


def beside(waits: Any, by: str, site_of_node: np.ndarray) -> Any:
    """[nodes, *batch] how many wait where it matters for a node, of those that wait on each [nodes, *batch]."""
    group = _together(by, site_of_node)
    alike = (group[:, None] == group[None]).astype(np.float32)
    return (alike @ waits.reshape(len(group), -1)).reshape(waits.shape)


def _together(by: str, site_of_node: np.ndarray) -> np.ndarray:
    """[nodes] the group of every node: what waits on the nodes of one is in the way on each of them."""
    return site_of_node if by == SITE else np.zeros_like(site_of_node)


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
    wait = np.log(UNIT_S + held.start_s - held.arrival_s)[free]
    kind, plain = kind[free], np.stack([np.ones(len(free)), np.log1p(input_mib[free])])
    error = _errors(wait, plain, kind)
    best, found = LEAST_GAIN * float(error.mean()), ""
    for by in (SITE, ALL):
        number = np.log1p(_waiting(held, _together(by, site_of_node)[held.node])[free])
        fuller = _errors(wait, np.vstack([plain, number]), kind)
        gain = clear_gain(error - fuller, stretches(len(wait)))
        if gain > best:
            best, found = gain, by
    return found


def _waiting(held: QueuedRuns, group: np.ndarray) -> np.ndarray:
    """[rows] how many requests of its own group [rows] wait as a row arrives."""
    found = np.zeros(len(group))
    for here in rows_by_group(group):
        arrival_s, start_s = held.arrival_s[here], held.start_s[here]
        waits = start_s > arrival_s
        come = np.searchsorted(np.sort(arrival_s[waits]), arrival_s)
        found[here] = come - np.searchsorted(np.sort(start_s[waits]), arrival_s, side="right")
    return found


def _errors(wait: np.ndarray, columns: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """[rows] squared errors of waits that are left out of a fit of each kind [rows] by columns [columns, rows]."""
    found, num_kinds = np.zeros(len(wait)), int(kind.max()) + 1
    for fitted, left_out in halves_in_turn(stretches(len(wait))):
        own, of_kind = columns[:, fitted], kind[fitted]
        gram = np.array([[np.bincount(of_kind, one * other, num_kinds) for other in own] for one in own])
        right = np.array([[np.bincount(of_kind, one * wait[fitted], num_kinds)] for one in own])
        slopes = np.linalg.solve(gram.transpose(2, 0, 1) + np.eye(len(columns)), right.transpose(2, 0, 1))
        error = wait - np.sum(columns.T * slopes[kind, :, 0], axis=1)
        found[left_out] = error[left_out] ** 2
    return found
