"""The NumPy twin of `twin.placement.features`: what a placement policy sees, one decision at a time.

The names are declared here once more, so that a bundle with other features is refused instead of misread; tests hold
names, numbers and whole episodes against the array code of training.
"""

import math
from typing import NamedTuple

import numpy as np

from offline_rl.runner.setting import RESOURCES

NODE_FEATURES = (
    "fits", "same_site", "is_cloud", *(f"free_{name}" for name in RESOURCES), "needed_share", "waiting_share",
    "num_running", "num_waiting", "backlog", "oldest_wait", "recent_wait", "recent_starts",
)  # fmt: skip
NUMERIC_REQUEST_FEATURES = (
    *(f"asked_{name}" for name in RESOURCES), "asked_num_nodes", "expected_run", "deadline", "has_deadline", "input",
    "day_sine", "day_cosine", "week_sine", "week_cosine",
)  # fmt: skip

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
MONDAY_S = 4 * DAY_S
"""1970-01-01 was a Thursday; the first Monday began this many seconds later."""
SLACK = 1.000001
"""A demand may exceed a capacity by this factor; rounding must not decide."""
_FIXED = 3
_FREE = len(RESOURCES)


class NodeFacts(NamedTuple):
    """What is fixed of the nodes of a table; float32 so that comparisons fall as in training."""

    site: np.ndarray  # [nodes] int64 index of the node's site
    is_cloud: np.ndarray  # [nodes] float32
    capacity: np.ndarray  # [resources, nodes] float64, inf where no limit is known
    machine: np.ndarray  # [resources, nodes] float32: of the largest machine, with slack
    total: np.ndarray  # [resources, nodes] float32: of the node, with slack
    num_sites: int
    counted: tuple[bool, ...]  # which resources are accounted for


class Load(NamedTuple):
    """What is in flight on every node of a table."""

    used: np.ndarray  # [resources, nodes]
    waiting_cores: np.ndarray  # [nodes]
    num_running: np.ndarray
    num_waiting: np.ndarray
    core_seconds_left: np.ndarray
    oldest_wait_s: np.ndarray
    recent_wait_s: np.ndarray
    recent_starts: np.ndarray


class Asked(NamedTuple):
    """The request in hand, in numbers."""

    demand: tuple[float, ...]  # in the order of RESOURCES
    num_nodes: float
    site: int  # index of the site that decides, among those of the nodes
    expected_run_s: float
    deadline_s: float  # inf without one
    input_mib: float
    labels: tuple[int, ...]  # positions of the flags that are set, among the request's features
    clock_s: float  # seconds since 1970


def node_facts(
    site: np.ndarray,
    is_cloud: np.ndarray,
    capacity: np.ndarray,
    machine: np.ndarray,
    counted: tuple[bool, ...],
) -> NodeFacts:
    """The facts of a table of nodes: site [nodes], is_cloud [nodes], capacity and machine [resources, nodes]."""
    total, largest = (np.asarray(amount, np.float32) * np.float32(SLACK) for amount in (capacity, machine))
    num_sites = int(site.max(initial=-1)) + 1
    return NodeFacts(site, is_cloud.astype(np.float32), capacity, largest, total, num_sites, counted)


def fits(facts: NodeFacts, asked: Asked) -> np.ndarray:
    """[nodes] bool: could the request ever run there, by the largest machine's capacity."""
    possible = np.ones(len(facts.site), bool)
    for resource, demand in enumerate(asked.demand):
        each = np.float32(demand) / np.float32(asked.num_nodes)
        possible &= (facts.machine[resource] >= each) & (facts.total[resource] >= np.float32(demand))
    return possible


def observe_nodes(
    facts: NodeFacts, load: Load, asked: Asked, possible: np.ndarray, time_unit_s: float
) -> np.ndarray:
    """[nodes, features] float32 of every node, as the deciding site sees it.

    Args:
        facts: What is fixed.
        load: What is in flight.
        asked: The request in hand.
        possible: [nodes] bool: what the policy is told to be possible (the feature `fits`).
        time_unit_s: Unit of durations.

    Returns:
        Features in the order of `NODE_FEATURES`; nodes of other sites show the mean of their site's nodes.
    """
    same_site = facts.site == asked.site
    dynamic = _dynamic(facts, load, time_unit_s)
    if facts.num_sites > 1 and not same_site.all():
        dynamic = np.where(same_site, dynamic, _site_means(facts, dynamic)[:, facts.site])
    seen = np.empty((len(NODE_FEATURES), len(same_site)), np.float32)
    seen[0], seen[1], seen[2] = possible, same_site, facts.is_cloud
    seen[_FIXED : _FIXED + _FREE] = dynamic[:_FREE]
    seen[_FIXED + _FREE] = asked.demand[0] / np.maximum(facts.capacity[0], 1e-9)
    seen[_FIXED + _FREE + 1 :] = dynamic[_FREE:]
    return np.ascontiguousarray(seen.T)


def _dynamic(facts: NodeFacts, load: Load, time_unit_s: float) -> np.ndarray:
    """[dynamic features, nodes]: free shares, then logarithms."""
    capacity = facts.capacity
    cores = np.maximum(capacity[0], 1e-9)
    rows = np.zeros((_FREE + 7, capacity.shape[1]))
    for resource in range(_FREE):
        if facts.counted[resource]:
            rows[resource] = 1.0 - load.used[resource] / np.maximum(capacity[resource], 1e-9)
        else:
            rows[resource] = 1.0
    rows[:_FREE] *= capacity > 0.0
    logs = rows[_FREE:]
    logs[0] = load.waiting_cores / cores
    logs[1] = load.num_running
    logs[2] = load.num_waiting
    logs[3] = load.core_seconds_left / (cores * time_unit_s)
    logs[4] = load.oldest_wait_s / time_unit_s
    logs[5] = load.recent_wait_s / (np.maximum(load.recent_starts, 1e-3) * time_unit_s)
    logs[6] = load.recent_starts
    np.log1p(np.maximum(logs, 0.0, out=logs), out=logs)
    return rows


def _site_means(facts: NodeFacts, dynamic: np.ndarray) -> np.ndarray:
    """[dynamic features, sites]: the mean over every site's nodes; zero for a site without nodes."""
    members = facts.site == np.arange(facts.num_sites)[:, None]
    return dynamic @ members.T / np.maximum(members.sum(axis=1), 1)


def observe_request(asked: Asked, num_features: int, time_unit_s: float) -> np.ndarray:
    """[features] float32 of the request in hand: numbers in the order of `NUMERIC_REQUEST_FEATURES`, then flags."""
    finite = math.isfinite(asked.deadline_s)
    day = math.tau * ((asked.clock_s % DAY_S) / DAY_S)
    week = math.tau * (((asked.clock_s - MONDAY_S) % WEEK_S) / WEEK_S)
    seen = np.zeros(num_features, np.float32)
    seen[: len(NUMERIC_REQUEST_FEATURES)] = (
        *map(math.log1p, asked.demand),
        math.log1p(asked.num_nodes - 1.0),
        math.log1p(asked.expected_run_s / time_unit_s),
        math.log1p(asked.deadline_s / time_unit_s) if finite else 0.0,
        float(finite),
        math.log1p(asked.input_mib),
        math.sin(day), math.cos(day), math.sin(week), math.cos(week),
    )  # fmt: skip
    for label in asked.labels:
        seen[label] = 1.0
    return seen
