"""The NumPy twin of `twin.placement.features`: what a placement policy sees, one decision at a time.

The names are declared here once more, so that a bundle with other features is refused instead of misread; tests hold
names, numbers and whole episodes against the array code of training.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from offline_rl.runner.setting import RESOURCES

NODE_FEATURES = (
    "fits", "same_site", "is_cloud", *(f"free_{name}" for name in RESOURCES), "needed_share", "waiting_share",
    "num_running", "num_waiting", "backlog", "oldest_wait", "recent_wait", "recent_starts",
    "usual_run", "core_time", "slack", "acceptance",
)  # fmt: skip
NUMERIC_REQUEST_FEATURES = (
    *(f"asked_{name}" for name in RESOURCES), "asked_num_nodes", "expected_run", "deadline", "has_deadline", "input",
    "day_sine", "day_cosine", "week_sine", "week_cosine",
)  # fmt: skip

LOAD = (
    *(f"used_{name}" for name in RESOURCES), "waiting_cores", "num_running", "num_waiting", "core_seconds_left",
    "oldest_wait_s", "recent_wait_s", "recent_starts",
)  # fmt: skip
"""Rows of a load [rows, nodes]: what is in flight on every node."""
RECENT_WAIT, RECENT_STARTS = LOAD.index("recent_wait_s"), LOAD.index("recent_starts")

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
MONDAY_S = 4 * DAY_S
"""1970-01-01 was a Thursday; the first Monday began this many seconds later."""
SLACK = 1.000001
"""A demand may exceed a capacity by this factor; rounding must not decide."""
MOST_SLACK = math.e**2
"""Of what is left of a deadline, over the run; its inverse is the least."""
_TINY = 1e-6
_FREE = len(RESOURCES)
_USUAL = NODE_FEATURES.index("usual_run")
_WAITING, _BACKLOG = LOAD.index("waiting_cores"), LOAD.index("core_seconds_left")
_WAITING_AND_BACKLOG = slice(_WAITING, _BACKLOG + 1, _BACKLOG - _WAITING)
"""Of a load: these two rows, as a view."""


class NodeFacts(NamedTuple):
    """What is fixed of the nodes of a table, ready for a decision."""

    site: np.ndarray  # [nodes] int64 index of the node's site
    is_cloud: np.ndarray  # [nodes] float32
    cores: np.ndarray  # [nodes] at least 1e-9, inf where no limit is known
    limits: (
        np.ndarray
    )  # [2 * resources, nodes] float32, as in training: of the largest machine, then of the node
    scale: (
        np.ndarray
    )  # [load rows, nodes] what a load is multiplied by to become a feature (before the logarithm)
    whole: np.ndarray  # [resources, nodes] 1 where there is any capacity, else 0
    run_units: np.ndarray  # [services, nodes] time units that a service runs there, per second expected of it
    kind_away: np.ndarray  # [nodes] int64, index into `Asked.accepts` of an offer from another site
    time_unit_s: float
    # [nodes, sites] takes a row to its means over the nodes of every site; None: no need
    to_site: np.ndarray | None


class Asked(NamedTuple):
    """The request in hand, in numbers."""

    demand: tuple[float, ...]  # in the order of RESOURCES
    num_nodes: float
    site: int  # index of the site that decides, among those of the nodes
    expected_run_s: float
    deadline_s: float  # inf without one
    input_mib: float
    labels: tuple[int, ...]  # positions of the flags that are set, among the request's features
    service: int  # index of the service, 0 where training did not know it
    accepts: Sequence[float]  # how readily an offer at home, at another site and in the cloud is accepted
    clock_s: float  # seconds since 1970


def node_facts(
    site: np.ndarray,
    is_cloud: np.ndarray,
    capacity: np.ndarray,
    machine: np.ndarray,
    run_ratio: np.ndarray,
    counted: tuple[bool, ...],
    time_unit_s: float,
    *,
    sees_all: bool = False,
) -> NodeFacts:
    """The facts of a table of nodes.

    Args:
        site: [nodes] index of the node's site.
        is_cloud: [nodes] bool.
        capacity, machine: [resources, nodes] of the node and of its largest machine; inf where no limit is known.
        run_ratio: [services, nodes] how long a service runs there, over what is expected of it anywhere.
        counted: Which resources are accounted for; of the others all is free.
        time_unit_s: Unit of durations.
        sees_all: Whether nodes of other sites are seen in full.
    """
    cores = np.maximum(capacity[0], 1e-9)
    has_any = capacity > 0.0
    share = np.where(has_any & np.array(counted)[:, None], 1.0 / np.maximum(capacity, 1e-9), 0.0)
    unit = np.full_like(cores, 1.0 / time_unit_s)
    one = np.ones_like(cores)
    scale = np.stack([*share, 1.0 / cores, one, one, unit / cores, unit, unit, one])
    members = site[:, None] == np.arange(int(site.max(initial=-1)) + 1)
    has_summaries = members.shape[1] > 1 and not sees_all
    return NodeFacts(
        site=site,
        is_cloud=is_cloud.astype(np.float32),
        cores=cores,
        limits=np.concatenate([machine, capacity]).astype(np.float32) * np.float32(SLACK),
        scale=scale,
        whole=has_any.astype(float),
        run_units=run_ratio / time_unit_s,
        kind_away=np.where(is_cloud, 2, 1),
        time_unit_s=time_unit_s,
        to_site=members / np.maximum(members.sum(axis=0), 1) if has_summaries else None,
    )


def fits(facts: NodeFacts, asked: Asked) -> np.ndarray:
    """[nodes] bool: could the request ever run there, by the largest machine's capacity."""
    demand = np.array(asked.demand, np.float32)
    wanted = np.concatenate([demand / np.float32(asked.num_nodes), demand])
    return np.logical_and.reduce(facts.limits >= wanted[:, None], axis=0)


def observe_nodes(facts: NodeFacts, load: np.ndarray, asked: Asked, possible: np.ndarray) -> np.ndarray:
    """[nodes, features] float32 of every node, as the deciding site sees it.

    Args:
        facts: What is fixed.
        load: [load rows, nodes] what is in flight, in the order of `LOAD`.
        asked: The request in hand.
        possible: [nodes] bool: what the policy is told to be possible (the feature `fits`).

    Returns:
        Features in the order of `NODE_FEATURES`; nodes of other sites show the mean of their site's nodes, unless all
        are seen in full.
    """
    dynamic = load * facts.scale
    np.subtract(facts.whole, dynamic[:_FREE], out=dynamic[:_FREE])
    dynamic[RECENT_WAIT] /= np.maximum(load[RECENT_STARTS], 1e-3)
    logs = dynamic[_FREE:]
    np.log1p(np.maximum(logs, 0.0, out=logs), out=logs)
    same_site = facts.site == asked.site
    if facts.to_site is not None:
        dynamic = np.where(same_site, dynamic, (dynamic @ facts.to_site)[:, facts.site])
    seen = np.empty((len(NODE_FEATURES), len(same_site)), np.float32)
    seen[0], seen[1], seen[2] = possible, same_site, facts.is_cloud
    seen[3 : 3 + _FREE] = dynamic[:_FREE]
    seen[3 + _FREE] = needed = asked.demand[0] / facts.cores
    seen[4 + _FREE : _USUAL] = dynamic[_FREE:]
    units = facts.run_units[asked.service] * asked.expected_run_s
    seen[_USUAL : _USUAL + 2] = np.log1p((units, units * needed))
    seen[_USUAL + 2] = _slack(dynamic, units, needed, asked.deadline_s / facts.time_unit_s)
    seen[-1] = np.array(asked.accepts)[np.where(same_site, 0, facts.kind_away)]
    return np.ascontiguousarray(seen.T)


def _slack(dynamic: np.ndarray, run: np.ndarray, needed: np.ndarray, deadline: float) -> np.ndarray | float:
    """[nodes] by the load as it is shown [load rows, nodes]; durations in time units."""
    if math.isinf(deadline):
        return 0.0
    waiting, backlog = np.expm1(dynamic[_WAITING_AND_BACKLOG])
    left = deadline - backlog * (dynamic[0] - waiting < needed - 1e-3)
    share = left / np.maximum(run, _TINY)
    return np.asarray(np.log(np.minimum(np.maximum(share, 1.0 / MOST_SLACK), MOST_SLACK)))


def observe_request(
    asked: Asked, num_features: int, time_unit_s: float, *, knows_week: bool = True
) -> np.ndarray:
    """[features] float32 of the request in hand: numbers in the order of `NUMERIC_REQUEST_FEATURES`, then flags.

    Without `knows_week` the time of week is 0, as in training on days that miss a weekday.
    """
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
        math.sin(day), math.cos(day), math.sin(week) * knows_week, math.cos(week) * knows_week,
    )  # fmt: skip
    for label in asked.labels:
        seen[label] = 1.0
    return seen
