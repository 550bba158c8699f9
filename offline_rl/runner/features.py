"""The NumPy copy of `twin.placement.features`: what a placement policy observes, one decision at a time.

The names are declared here once more, so that a bundle with other features is refused instead of misread; tests hold
names, numbers and whole episodes against the array code of training.
"""

import math
from operator import le
from typing import NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S, MONDAY_S, WEEK_S
from offline_rl.runner.setting import RESOURCES
from offline_rl.runner.timeouts import KnownTimeouts

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
    *(f"used_{name}" for name in RESOURCES),
    "waiting_cores",
    "num_running",
    "num_waiting",
    "core_seconds_left",
    "oldest_wait_s",
    "recent_wait_s",
    "recent_starts",
)
"""Rows of a load [rows, nodes]: what is in flight on every node."""
RECENT_WAIT, RECENT_STARTS = LOAD.index("recent_wait_s"), LOAD.index("recent_starts")
SLACK = 1.000001
"""A demand may exceed a capacity by this factor; rounding must not decide."""
MOST_SLACK = math.e**2
"""Of what is left of a deadline, over the run; its inverse is the least."""
_TINY = 1e-6
_FREE = len(RESOURCES)
_NEEDED, _MEAN_RUN = NODE_FEATURES.index("needed_share"), NODE_FEATURES.index("usual_run")
_LOAD = slice(NODE_FEATURES.index("free_cpu_cores"), _MEAN_RUN)
"""Features that show a load, and the share that the request needs among them."""
_WAITING_AND_BACKLOG = slice(
    NODE_FEATURES.index("waiting_share"),
    NODE_FEATURES.index("backlog") + 1,
    NODE_FEATURES.index("backlog") - NODE_FEATURES.index("waiting_share"),
)
"""These two features, as a view."""


class NodeFacts(NamedTuple):
    """What is fixed of the nodes of a table, ready for a decision."""

    site: np.ndarray  # [nodes] int64 index of the node's site
    same_site: np.ndarray  # [sites, nodes] bool: the node stands there
    # [sites, nodes] int64, index into `RequestNumbers.accepts` of an offer of the node by that site
    kind: np.ndarray
    is_cloud: np.ndarray  # [nodes] float32
    cores: np.ndarray  # [nodes] at least 1e-9, inf where no limit is known
    # [2 * resources, nodes] float32, as in training: of the largest machine, then of the node
    limits: np.ndarray
    least: tuple[float, ...]  # [2 * resources] the least of each of those
    # [load rows, nodes] what a load is multiplied by to become a feature (before the logarithm)
    scale: np.ndarray
    whole: np.ndarray  # [resources, nodes] 1 where there is any capacity, else 0
    run_units: np.ndarray  # [services, nodes] time units that a service runs there, per second expected of it
    time_unit_s: float
    # [nodes, sites] float32, takes a row to its means over the nodes of every site; None: no need
    to_site: np.ndarray | None
    # resources beside cores that requests wait for, and [nodes] what a demand for each is multiplied by to be a share
    scarce: tuple[tuple[int, np.ndarray], ...] = ()
    # [nodes] losses per time unit of running; None: nodes keep what runs on them
    hazard: np.ndarray | None = None
    timeouts: KnownTimeouts | None = None  # None: no run is cut off
    # [nodes] time units until a node is awake and has a place; None: no node sleeps or has limits
    delay_units: np.ndarray | None = None


class RequestNumbers(NamedTuple):
    """The request in hand, in numbers."""

    demand: tuple[float, ...]  # in the order of RESOURCES
    num_nodes: float
    site: int  # index of the site that decides, among those of the nodes
    expected_run_s: float
    run_limit_s: float  # inf where its run is not cut off
    deadline_s: float  # inf without one
    input_mib: float
    labels: tuple[int, ...]  # positions of the flags that are set, among the request's features
    service: int  # index of the service, 0 where training did not know it
    accepts: np.ndarray  # [3] how readily an offer at home, at another site and in the cloud is accepted
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
    num_sites: int,
    sees_all: bool = False,
    scarce: tuple[int, ...] = (),
    hazard: np.ndarray | None = None,
    timeouts: KnownTimeouts | None = None,
) -> NodeFacts:
    """The facts of a table of nodes.

    Args:
        site: [nodes] index of the node's site.
        is_cloud: [nodes] bool.
        capacity, machine: [resources, nodes] of the node and of its largest machine; inf where no limit is known.
        run_ratio: [services, nodes] how long a service runs there, over what is expected of it anywhere.
        counted: Which resources are accounted for; of the others all is free.
        time_unit_s: Unit of durations.
        num_sites: Sites that may decide.
        sees_all: Whether nodes of other sites are seen in full.
        scarce: Resources (indices) beside cores that requests wait for.
        hazard: [nodes] losses per second of running; None: nodes keep what runs on them.
        timeouts: After which time runs are cut off; None: none is.
    """
    cores = np.maximum(capacity[0], 1e-9)
    has_any = capacity > 0.0
    share = np.where(has_any & np.array(counted)[:, None], 1.0 / np.maximum(capacity, 1e-9), 0.0)
    unit = np.full_like(cores, 1.0 / time_unit_s)
    one = np.ones_like(cores)
    scale = np.stack([*share, 1.0 / cores, one, one, unit / cores, unit, unit, one])
    same_site = site == np.arange(num_sites)[:, None]
    limits = np.concatenate([machine, capacity]).astype(np.float32) * np.float32(SLACK)
    to_site = (same_site / np.maximum(same_site.sum(axis=1, keepdims=True), 1)).T
    return NodeFacts(
        site=site,
        same_site=same_site,
        kind=np.where(same_site, 0, np.where(is_cloud, 2, 1)),
        is_cloud=is_cloud.astype(np.float32),
        cores=cores,
        limits=limits,
        least=tuple(limits.min(axis=1, initial=np.inf).tolist()),
        scale=scale,
        whole=has_any.astype(float),
        run_units=run_ratio / time_unit_s,
        time_unit_s=time_unit_s,
        to_site=None if sees_all or num_sites == 1 else to_site.astype(np.float32),
        scarce=tuple(
            (resource, np.where(has_any[resource], 1.0 / np.maximum(capacity[resource], 1e-9), 0.0))
            for resource in scarce
        ),
        hazard=None if hazard is None else hazard * time_unit_s,
        timeouts=timeouts,
    )


def fits(facts: NodeFacts, request: RequestNumbers) -> np.ndarray:
    """[nodes] bool: could the request ever run there, by the largest machine's capacity."""
    wanted = (*(each / request.num_nodes for each in request.demand), *request.demand)
    if all(map(le, wanted, facts.least)):
        return np.ones(len(facts.site), bool)
    return np.logical_and.reduce(facts.limits >= np.array(wanted, np.float32)[:, None], axis=0)


def observe_nodes(
    facts: NodeFacts, load: np.ndarray, request: RequestNumbers, possible: np.ndarray
) -> np.ndarray:
    """[nodes, features] float32 of every node, as the deciding site observes it.

    Args:
        facts: What is fixed.
        load: [load rows, nodes] what is in flight, in the order of `LOAD`.
        request: The request in hand.
        possible: [nodes] bool: what is possible by the policy's input (the feature `fits`).

    Returns:
        Features in the order of `NODE_FEATURES`; nodes of other sites show the mean of their site's nodes, unless all
        are seen in full.
    """
    scaled = load * facts.scale
    free = scaled[:_FREE]
    np.subtract(facts.whole, free, out=free)
    scaled[RECENT_WAIT] /= np.maximum(load[RECENT_STARTS], 1e-3)
    needed = request.demand[0] / facts.cores
    run = facts.run_units[request.service] * request.expected_run_s
    acceptance = _acceptance(facts, request, run)
    if facts.delay_units is not None:
        run = run + facts.delay_units
    same_site = facts.same_site[request.site]
    seen = np.empty((len(NODE_FEATURES), len(run)), np.float32)
    seen[0], seen[1], seen[2] = possible, same_site, facts.is_cloud
    seen[_LOAD.start : _NEEDED] = free
    seen[_NEEDED + 1 : _LOAD.stop] = scaled[_FREE:]
    seen[_NEEDED], seen[_MEAN_RUN], seen[_MEAN_RUN + 1] = (
        needed,
        run,
        run * _largest_share(facts, request, needed),
    )
    logs = seen[_NEEDED + 1 : _MEAN_RUN + 2]
    np.log1p(np.maximum(logs, 0.0, out=logs), out=logs)
    if facts.to_site is not None:
        shown = seen[_LOAD]
        means = (shown @ facts.to_site).take(facts.site, axis=1)
        means[_NEEDED - _LOAD.start] = needed
        np.copyto(shown, means, where=~same_site)
    if facts.scarce:
        needed = seen[_NEEDED] = _needed_share(seen, facts, request, needed)
    seen[_MEAN_RUN + 2] = _slack(seen, run, needed, request.deadline_s / facts.time_unit_s)
    seen[-1] = acceptance
    return np.ascontiguousarray(seen.T)


def as_trained(
    choices: np.ndarray, facts: NodeFacts, request: RequestNumbers, trained_units: np.ndarray | None
) -> np.ndarray:
    """The features of nodes [nodes, features] as they were without what the ledger has learned since training.

    Args:
        choices: As the policy gets them.
        facts: What is fixed, with what was learned.
        request: The request in hand.
        trained_units: [services, nodes] `facts.run_units` of training; None: nothing was learned.
    """
    is_as_trained = trained_units is None or np.array_equal(
        trained_units[request.service], facts.run_units[request.service]
    )
    if trained_units is None or (is_as_trained and facts.delay_units is None):
        return choices
    seen = choices.T.copy()
    run, needed = trained_units[request.service] * request.expected_run_s, request.demand[0] / facts.cores
    seen[_MEAN_RUN], seen[_MEAN_RUN + 1] = (
        np.log1p(run),
        np.log1p(run * _largest_share(facts, request, needed)),
    )
    seen[_MEAN_RUN + 2] = _slack(
        seen, run, seen[_NEEDED] if facts.scarce else needed, request.deadline_s / facts.time_unit_s
    )
    seen[-1] = _acceptance(facts, request, run)
    return seen.T


def _acceptance(facts: NodeFacts, request: RequestNumbers, run: np.ndarray) -> np.ndarray:
    """[nodes] how likely an offer is accepted and the run comes to its end, of runs [nodes] in time units."""
    accepts = request.accepts.take(facts.kind[request.site])
    if facts.hazard is not None:
        accepts = accepts * np.exp(-facts.hazard * run)
    if facts.timeouts is not None:
        accepts = accepts * facts.timeouts.chance(request.run_limit_s, run * facts.time_unit_s)
    return np.asarray(accepts)


def _largest_share(facts: NodeFacts, request: RequestNumbers, needed: np.ndarray) -> np.ndarray:
    """[nodes] the largest share asked for, of the cores and of what is scarce beside them."""
    for resource, per_unit in facts.scarce:
        needed = np.maximum(needed, request.demand[resource] * per_unit)
    return needed


def _needed_share(
    seen: np.ndarray, facts: NodeFacts, request: RequestNumbers, needed: np.ndarray
) -> np.ndarray:
    """[nodes] the share needed, by which free cores [features, nodes] less it are what is left of whatever is shortest;
    see `twin.placement.scarcity`."""
    free = seen[_LOAD.start : _NEEDED]
    room = free[0] - needed
    for resource, per_unit in facts.scarce:
        share = request.demand[resource] * per_unit
        room = np.where(share > 0.0, np.minimum(room, free[resource] - share), room)
    return np.asarray(free[0] - room)


def _slack(seen: np.ndarray, run: np.ndarray, needed: np.ndarray, deadline: float) -> np.ndarray | float:
    """[nodes] by the load as it is shown [features, nodes]; durations in time units."""
    if math.isinf(deadline):
        return 0.0
    waiting, backlog = np.expm1(seen[_WAITING_AND_BACKLOG])
    backlog *= seen[_LOAD.start] - waiting < needed - 1e-3
    share = (deadline - backlog) / np.maximum(run, _TINY)
    np.minimum(np.maximum(share, 1.0 / MOST_SLACK, out=share), MOST_SLACK, out=share)
    return np.log(share, out=share)


def observe_request(
    request: RequestNumbers, num_features: int, time_unit_s: float, *, knows_week: bool = True
) -> np.ndarray:
    """[features] float32 of the request in hand: numbers in the order of `NUMERIC_REQUEST_FEATURES`, then flags.

    Without `knows_week` the time of week is 0, as in training on days that miss a weekday.
    """
    finite = math.isfinite(request.deadline_s)
    day = math.tau * ((request.clock_s % DAY_S) / DAY_S)
    week = math.tau * (((request.clock_s - MONDAY_S) % WEEK_S) / WEEK_S)
    seen = np.zeros(num_features, np.float32)
    seen[: len(NUMERIC_REQUEST_FEATURES)] = (
        *map(math.log1p, request.demand),
        math.log1p(request.num_nodes - 1.0),
        math.log1p(request.expected_run_s / time_unit_s),
        math.log1p(request.deadline_s / time_unit_s) if finite else 0.0,
        float(finite),
        math.log1p(request.input_mib),
        math.sin(day),
        math.cos(day),
        math.sin(week) * knows_week,
        math.cos(week) * knows_week,
    )
    for label in request.labels:
        seen[label] = 1.0
    return seen
