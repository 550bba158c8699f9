"""What a policy observes of a placement state, and what every number means.

One function computes the features of a rollout, of a log and of a bundle, so they mean the same everywhere. All are
of order one without any fitted normalisation: shares of capacity, flags, and durations `d` as `log1p(d / time_unit_s)`.
A site observes its own cluster in full and every other site as the mean of its nodes (KaiS, section III), unless the
problem's configuration shows it everything.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.placement.hazards import survival
from twin.placement.run_levels import startups_s, usual_levels
from twin.placement.scarcity import needed_shares
from twin.placement.slots import fold_slots, num_filled
from twin.placement.types import EMPTY, RESOURCES, Cluster, InFlight, Observation, PlacementState, Requests
from twin.placement.wakes import Wakes, wake_left_s

TWO_PI = 2.0 * np.pi
_TINY = 1e-6
MOST_SLACK = np.e**2
"""Of what is left of a deadline, over the run; its inverse is the least: late is late, and enough is enough."""


class Feature(NamedTuple):
    """One feature: name, unit of the number itself, and its meaning."""

    name: str
    unit: str
    description: str


NODE_FEATURES = (
    Feature("fits", "flag", "the request could ever run here"),
    Feature("same_site", "flag", "the node belongs to the site that decides"),
    Feature("is_cloud", "flag", "the node is in the cloud tier"),
    *(Feature(f"free_{name}", "share", f"free {name} now, as a share of capacity") for name in RESOURCES),
    Feature("needed_share", "share", "cores asked for, as a share of the node's capacity"),
    Feature(
        "waiting_share", "log1p(share)", "cores asked for by requests waiting here, as a share of capacity"
    ),
    Feature("num_running", "log1p(count)", "requests running here"),
    Feature("num_waiting", "log1p(count)", "requests waiting here"),
    Feature("backlog", "log1p(time units)", "expected work left here, in time to finish it on all cores"),
    Feature("oldest_wait", "log1p(time units)", "how long the longest waiting request has waited"),
    Feature("recent_wait", "log1p(time units)", "decayed mean of waits observed here"),
    Feature("recent_starts", "log1p(count)", "decayed number of starts observed here"),
    Feature("usual_run", "log1p(time units)", "expected run time here, by how the service usually runs here"),
    Feature("core_time", "log1p(time units)", "the usual run here, times the share of the cores asked for"),
    Feature(
        "slack",
        "1",
        "logarithm of what the backlog leaves of the deadline, over the usual run here, from -2 to 2; "
        "0 without a deadline",
    ),
    Feature(
        "acceptance", "share", "probability that the requesting agent accepts an offer here, by past answers"
    ),
)
"""Features of a node, in the order of axis 0 of `Observation.node`. Of nodes of other sites the load is summarised."""
_NOT_LOAD = {"fits", "same_site", "is_cloud", "needed_share", "usual_run", "core_time", "slack", "acceptance"}
LOAD_FEATURES = tuple(feature.name for feature in NODE_FEATURES if feature.name not in _NOT_LOAD)
"""Those that describe what is in flight on a node; the others follow from the request in hand."""

NUMERIC_REQUEST_FEATURES = (
    *(Feature(f"asked_{name}", "log1p", f"{name} asked for") for name in RESOURCES),
    Feature("asked_num_nodes", "log1p(count)", "nodes the request must be spread over, less one"),
    Feature("expected_run", "log1p(time units)", "requested run time, or an estimate from training days"),
    Feature("deadline", "log1p(time units)", "largest useful time to finish; 0 without a deadline"),
    Feature("has_deadline", "flag", "the request has a deadline"),
    Feature("input", "log1p(MiB)", "input to be sent to the node"),
    Feature("day_sine", "1", "sine of the time of day"),
    Feature("day_cosine", "1", "cosine of the time of day"),
    Feature("week_sine", "1", "sine of the time of week; 0 where the days of training miss a weekday"),
    Feature("week_cosine", "1", "cosine of the time of week; 0 where the days of training miss a weekday"),
)


def request_features(cluster: Cluster) -> tuple[Feature, ...]:
    """Features of a request, in the order of axis 0 of `Observation.request`: numbers, then one-hot vocabularies."""
    vocabularies = (
        ("site", cluster.sites),
        ("scenario", cluster.scenarios),
        ("service", cluster.services),
        ("queue", cluster.queues),
    )
    flags = tuple(
        Feature(f"{kind}={name}", "flag", f"the request's {kind} is {name}")
        for kind, names in vocabularies
        for name in names
    )
    return NUMERIC_REQUEST_FEATURES + flags


def one_hot(index: Array, size: int) -> Array:
    """[size, *batch] bool: which of `size` choices `index` [*batch] names; all False where it names none."""
    return jnp.arange(size, dtype=jnp.int32).reshape((-1,) + (1,) * index.ndim) == index[None]


def fits(cluster: Cluster, request: Requests) -> Array:
    """[nodes, *batch] bool: could the request ever run there? By the largest machine's capacity and candidate set."""
    batch = request.site.ndim
    rules = one_hot(request.rule, cluster.rules.shape[0]).astype(jnp.float32)
    allowed = jnp.tensordot(jnp.asarray(cluster.rules.T, jnp.float32), rules, axes=1) > 0.5
    for resource in range(len(RESOURCES)):
        unit = jnp.asarray(cluster.unit_capacity[resource], jnp.float32).reshape((-1,) + (1,) * batch)
        total = jnp.asarray(cluster.capacity[resource], jnp.float32).reshape((-1,) + (1,) * batch)
        demand = request.demand[resource][None]
        allowed &= (demand / request.num_nodes[None] <= unit * 1.000001) & (demand <= total * 1.000001)
    return allowed


class NodeLoad(NamedTuple):
    """What is in flight on every node; leaves [nodes, *streams], `used` [resources, nodes, *streams]."""

    used: Array
    waiting_cores: Array
    num_running: Array
    num_waiting: Array
    core_seconds_left: Array
    oldest_wait_s: Array


def node_load(in_flight: InFlight, clock_s: Array, limited: tuple[int, ...]) -> NodeLoad:
    """Adds up the table of requests in flight, by node.

    A request uses its demand from its observed start to its observed finish; before that it is waiting. The work left
    is by expected run times: what a waiting request needs in full, what a running one has left of it, at least 0.

    Args:
        in_flight: The table.
        clock_s: [*streams].
        limited: The resources (indices) that some node has a finite amount of; the use of others is not counted.

    Returns:
        The load; `used` is 0 where not counted.
    """
    clock = clock_s[None]

    def per_slot(leaves: tuple[Array, ...], _: Array) -> tuple[Array, ...]:
        decision, arrival_s, start_s, finish_s, expected_run_s, *demand = leaves
        held = (decision != EMPTY) & (finish_s > clock)
        running = held & (start_s <= clock)
        waiting = held & ~running
        elapsed_s = jnp.where(running, clock - start_s, 0.0)
        left_s = jnp.where(held, jnp.maximum(expected_run_s - elapsed_s, 0.0), 0.0)
        return (
            *(jnp.where(running, demand[resource], 0.0) for resource in limited),
            jnp.where(waiting, demand[0], 0.0),
            running.astype(jnp.float32),
            waiting.astype(jnp.float32),
            left_s * demand[0],
            jnp.where(waiting, clock - arrival_s, 0.0),
        )

    def combine(one: tuple[Array, ...], other: tuple[Array, ...]) -> tuple[Array, ...]:
        sums = (a + b for a, b in zip(one[:-1], other[:-1], strict=True))
        return (*sums, jnp.maximum(one[-1], other[-1]))

    table = in_flight
    leaves = (
        table.decision,
        table.arrival_s,
        table.start_s,
        table.finish_s,
        table.expected_run_s,
        *table.demand,
    )
    folded = fold_slots(per_slot, combine, leaves, num_filled(table.decision))
    *used, waiting_cores, running, waiting, left, oldest = folded
    counted = dict(zip(limited, used, strict=True))
    all_used = [counted.get(resource, jnp.zeros_like(running)) for resource in range(len(RESOURCES))]
    return NodeLoad(jnp.stack(all_used), waiting_cores, running, waiting, left, oldest)


def _dynamic_features(cluster: Cluster, state: PlacementState, time_unit_s: float) -> Array:
    """[load features, nodes, *streams]: what is in flight on every node, in the order of `LOAD_FEATURES`."""
    load = node_load(state.in_flight, state.clock_s, cluster.limited)
    trailing = (1,) * state.clock_s.ndim
    capacity = jnp.asarray(cluster.capacity, jnp.float32).reshape((*cluster.capacity.shape, *trailing))
    free = 1.0 - load.used / jnp.maximum(capacity, 1e-9)
    cores = jnp.maximum(capacity[0], 1e-9)

    def squash(duration_s: Array) -> Array:
        return jnp.log1p(jnp.maximum(duration_s, 0.0) / time_unit_s)

    rows = [
        *jnp.where(capacity > 0.0, free, 0.0),
        jnp.log1p(load.waiting_cores / cores),
        jnp.log1p(load.num_running),
        jnp.log1p(load.num_waiting),
        squash(load.core_seconds_left / cores),
        squash(load.oldest_wait_s),
        squash(state.recent_wait_s / jnp.maximum(state.recent_starts, 1e-3)),
        jnp.log1p(state.recent_starts),
    ]
    return jnp.stack(rows)


def observe_nodes(
    cluster: Cluster, state: PlacementState, time_unit_s: float, *, in_full: bool, for_answers: bool = False
) -> Array:
    """[node features, nodes, seats, *streams]: every node as each seat's site observes it, or in full."""
    request, seats = state.request, state.request.site.shape[0]
    trailing = (1,) * (1 + state.clock_s.ndim)
    site = jnp.asarray(cluster.site_of_node, jnp.int32).reshape((-1, *trailing))
    cores = jnp.asarray(cluster.capacity[0], jnp.float32).reshape((-1, *trailing))
    cloud = jnp.asarray(cluster.is_cloud, jnp.float32).reshape((-1, *trailing))
    same_site = site == request.site[None]
    dynamic = _dynamic_features(cluster, state, time_unit_s)
    shown = jnp.broadcast_to(dynamic[:, :, None], (*dynamic.shape[:2], seats, *dynamic.shape[2:]))
    if len(cluster.sites) > 1 and not in_full:
        together = cluster.site_of_node[:, None] == cluster.site_of_node[None]
        mean_over_site = jnp.asarray(together / together.sum(1, keepdims=True), jnp.float32)
        summary = jnp.moveaxis(jnp.tensordot(mean_over_site, dynamic, axes=((1,), (1,))), 0, 1)
        shown = jnp.where(same_site[None], shown, summary[:, :, None])
    needed = largest = request.demand[0][None] / jnp.maximum(cores, 1e-9)
    if cluster.scarce:
        needed, largest = needed_shares(
            needed, list(shown[: len(RESOURCES)]), _scarce_shares(cluster, request), jnp
        )
    fixed = [
        fits(cluster, request).astype(jnp.float32),
        same_site.astype(jnp.float32),
        jnp.broadcast_to(cloud, needed.shape),
    ]
    num_free = len(RESOURCES)
    run_s = _mean_run_s(cluster, state, by_tables=for_answers and _shares_cores(cluster))
    away = jnp.where(cloud > 0.0, request.accepts_cloud[None], request.accepts_elsewhere[None])
    acceptance = jnp.where(same_site, request.accepts_home[None], away)
    if cluster.hazard and not for_answers:
        acceptance *= survival(jnp.asarray(cluster.hazard, jnp.float32).reshape((-1, *trailing)), run_s, jnp)
    if cluster.timeouts is not None and request.run_limit_s is not None and not for_answers:
        acceptance *= cluster.timeouts.chance(request.run_limit_s[None], run_s, jnp)
    if cluster.wakes is not None and not for_answers:
        run_s += wakes_left_s(cluster.wakes, state)[:, None]
    if cluster.concurrency and not for_answers:
        run_s += places_left_s(cluster, state)
    expected = _expected(state.request, run_s, shown, (needed, largest), time_unit_s)
    by_request = jnp.stack([*expected, acceptance])
    return jnp.concatenate([jnp.stack(fixed), shown[:num_free], needed[None], shown[num_free:], by_request])


def wakes_left_s(wakes: Wakes, state: PlacementState) -> Array:
    """[nodes, *streams] how long nodes take until they are awake, by the table in flight."""
    table = state.in_flight
    holds = table.decision != EMPTY
    return wake_left_s(wakes, state.clock_s, holds, table.arrival_s, table.start_s, table.finish_s, jnp)


def places_left_s(cluster: Cluster, state: PlacementState) -> Array:
    """[nodes, seats, *streams] how long a request waits for a place of its service on each node: what those of it that
    are there leave to do, by expectation, over their places, where these are taken; 0 elsewhere."""
    table, service = state.in_flight, state.request.service
    clock = state.clock_s[None, None]
    ratio = jnp.moveaxis(jnp.asarray(cluster.run_ratio, jnp.float32)[service], -1, 0)
    places = jnp.moveaxis(jnp.asarray(cluster.concurrency, jnp.int32)[service], -1, 0)
    held = (table.decision != EMPTY) & (table.finish_s > clock)
    elapsed_s = jnp.where(table.start_s <= clock, clock - table.start_s, 0.0)
    own = held[:, :, None] & (table.service[:, :, None] == service[None, None])
    left_s = jnp.maximum(table.expected_run_s[:, :, None] * ratio[:, None] - elapsed_s[:, :, None], 0.0)
    work_s = jnp.sum(jnp.where(own, left_s, 0.0), axis=1)
    is_full = (places > 0) & (jnp.sum(own, axis=1) >= places)
    return jnp.where(is_full, work_s / jnp.maximum(places, 1), 0.0)


def _scarce_shares(cluster: Cluster, request: Requests) -> list[tuple[int, Array]]:
    """The scarce resources, and [nodes, seats, *streams] the share of each that is asked for."""
    trailing = (1,) * request.site.ndim
    shares = []
    for resource in cluster.scarce:
        capacity = jnp.asarray(cluster.capacity[resource], jnp.float32).reshape((-1, *trailing))
        per_unit = jnp.where(capacity > 0.0, 1.0 / jnp.maximum(capacity, 1e-9), 0.0)
        shares.append((resource, request.demand[resource][None] * per_unit))
    return shares


def _shares_cores(cluster: Cluster) -> bool:
    return cluster.pace is not None and cluster.pace.shares


def _mean_run_s(cluster: Cluster, state: PlacementState, *, by_tables: bool) -> Array:
    """[nodes, seats, *streams] how long the requested service usually runs there, by the log and by what was seen (but
    if `by_tables`), with the start-up that is due."""
    request = state.request
    service = one_hot(request.service, len(cluster.services)).astype(jnp.float32)
    run_s = jnp.tensordot(jnp.asarray(cluster.run_ratio.T, jnp.float32), service, axes=1)
    run_s *= request.expected_run_s[None]
    startup_s = startups_s(cluster, state)
    if startup_s is not None:
        run_s += startup_s
    levels = None if by_tables else usual_levels(state)
    return run_s if levels is None else run_s * jnp.exp(levels)


def _expected(
    request: Requests, run_s: Array, shown: Array, shares: tuple[Array, Array], time_unit_s: float
) -> list[Array]:
    """Three times [nodes, seats, *streams]: usual run, core time, slack; the wait by the backlog as it is shown.

    `run_s` is how long the request should take there; `shares` are the share needed and the largest share asked for.
    """
    needed, largest = shares
    load = dict(zip(LOAD_FEATURES, shown, strict=True))
    is_free = load["free_cpu_cores"] - jnp.expm1(load["waiting_share"]) >= needed - 1e-3
    wait_s = jnp.where(is_free, 0.0, jnp.expm1(load["backlog"]) * time_unit_s)
    has_deadline = jnp.isfinite(request.deadline_s)[None]
    left_s = jnp.where(has_deadline, request.deadline_s[None], 0.0) - wait_s
    units = jnp.maximum(run_s / time_unit_s, _TINY)
    share = jnp.clip(left_s / time_unit_s / units, 1.0 / MOST_SLACK, MOST_SLACK)
    return [
        jnp.log1p(run_s / time_unit_s),
        jnp.log1p(run_s * largest / time_unit_s),
        jnp.where(has_deadline, jnp.log(share), 0.0),
    ]


def observe_request(cluster: Cluster, request: Requests, time_unit_s: float) -> Array:
    """[request features, *batch]: the request in hand, as in `request_features`."""
    has_deadline = jnp.isfinite(request.deadline_s)
    numbers = [
        *jnp.log1p(request.demand),
        jnp.log1p(request.num_nodes - 1.0),
        jnp.log1p(request.expected_run_s / time_unit_s),
        jnp.log1p(jnp.where(has_deadline, request.deadline_s, 0.0) / time_unit_s),
        has_deadline.astype(jnp.float32),
        jnp.log1p(request.input_mib),
        jnp.sin(TWO_PI * request.day_fraction),
        jnp.cos(TWO_PI * request.day_fraction),
        jnp.sin(TWO_PI * request.week_fraction) * cluster.knows_week,
        jnp.cos(TWO_PI * request.week_fraction) * cluster.knows_week,
    ]
    flags = [
        one_hot(index, len(names)).astype(jnp.float32)
        for index, names in (
            (request.site, cluster.sites),
            (request.scenario, cluster.scenarios),
            (request.service, cluster.services),
            (request.queue, cluster.queues),
        )
    ]
    return jnp.concatenate([jnp.stack(numbers), *flags])


def observe(
    cluster: Cluster,
    state: PlacementState,
    time_unit_s: float,
    *,
    in_full: bool = False,
    for_answers: bool = False,
) -> Observation:
    """The observation of every seat; `in_full` shows all sites' nodes without summary. What answers are drawn from
    (`for_answers`) is without wakes and losses: they know when a node has room, and draw how runs end. Where nodes
    share their cores they draw works, which levels of run times say too much of: these rise as nodes fill."""
    return Observation(
        observe_nodes(cluster, state, time_unit_s, in_full=in_full, for_answers=for_answers),
        observe_request(cluster, state.request, time_unit_s),
    )
