"""The slot problem: the placement problem with a seat for every access point, and replicas that decide what is legal.

Bookkeeping, outcomes, facts, rewards and metrics are those of `twin.placement`, unchanged; so is what a policy sees of
nodes and requests, in the same order, so that rules and networks for event mode read slot mode as well. Added are what
KaiS and KMPS show beside it: the deployment, and the queue at the access point. A request's arrival is when it
came to the access point, not when it was sent on; deadlines count from there.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Outcome, Problem, Records
from twin.environment import beside
from twin.orchestration.counts import Counts
from twin.orchestration.deployment import Deployment
from twin.orchestration.edge_cloud import EdgeCloud
from twin.placement.bookkeeping import PlacementConfig, placement
from twin.placement.features import NODE_FEATURES, Feature
from twin.placement.slots import fold_slots
from twin.placement.types import EMPTY, Leaf, Observation, PlacementEvents, PlacementState

SLOT_NODE_FEATURES = (
    *NODE_FEATURES,
    Feature("replicas", "log1p(count)", "replicas of the request's service here"),
    Feature("same_service", "log1p(count)", "requests of that service here; elsewhere the mean of the site"),
    Feature("free_replica_memory", "share", "memory that no replica takes"),
)
"""Features of a node in slot mode, in the order of axis 0 of `Observation.node`."""
SLOT_REQUEST_FEATURES = (
    Feature("waited", "log1p(time units)", "how long the request has waited at its access point"),
    Feature("queue", "log1p(count)", "requests at the access point, the one in hand included"),
    Feature("oldest", "log1p(time units)", "how long the longest waiting of them has waited"),
)
"""Features of a request in slot mode, after those of `twin.placement.features.request_features`."""


class View(NamedTuple):
    """What is known beside the placement state."""

    holding: Array  # [seats, *streams] bool: a request is in hand, whether or not it can be sent
    arrived_s: Array  # [seats, *streams] when it came to the access point
    queued: Array  # [seats, *streams] requests at the access point
    oldest_s: Array  # [seats, *streams] how long the longest waiting has waited
    deployment: Deployment
    counts: Counts


class Here(NamedTuple):
    """What the nodes are to the requests in hand."""

    replicas: Array  # [nodes, seats, *streams] of their services
    same_service: Array  # [nodes, seats, *streams] requests of their services there
    held: Array  # [nodes, *streams] requests there


class SlotState(NamedTuple):
    """The state of the slot problem."""

    placement: PlacementState
    view: View
    here: Here


class SlotEvents(NamedTuple):
    """The slot problem's `Outcome.observed_events`."""

    placement: PlacementEvents
    view: View


class SlotDecisionInfo(NamedTuple):
    """A `PlacementDecisionInfo`, and when the slot of the decision began."""

    node: Leaf
    site: Leaf
    agent: Leaf
    off_site: Leaf
    arrival_s: Leaf  # when the request came to the access point
    expected_run_s: Leaf
    deadline_s: Leaf
    demand: Leaf
    clock_s: Leaf


def placement_config(case: EdgeCloud) -> PlacementConfig:
    """The configuration of the placement problem underneath."""
    return PlacementConfig(depth=case.config.node_places, reward="on_time", num_seats=case.num_seats)


def slot_problem(case: EdgeCloud) -> Problem:
    """The slot problem of an instance.

    Legal is every node that is up, hosts a replica of the request's service and has a place for it; with
    `SlotConfig.only_where_room` also a replica and a core that nothing there will take first (KaiS, eq. 4). A seat
    whose request has no legal node is inactive; the request stays in its queue.

    Returns:
        The problem; actions are int32 node indices [seats, *streams].
    """
    base = placement(case.cluster, placement_config(case))

    def joined(inner: PlacementState, view: View) -> SlotState:
        here = _here(inner, view.deployment)
        able = view.holding & jnp.any(_legal(case, here, inner.available), axis=0)
        return SlotState(inner._replace(active=able), view, here)

    def start(outcome: Outcome) -> SlotState:
        return joined(
            base.start(outcome._replace(observed_events=outcome.observed_events.placement)),
            outcome.observed_events.view,
        )

    def apply(state: SlotState, node: Array, outcome: Outcome, decision: Array) -> tuple[SlotState, Records]:
        going = decision[0] >= 0
        inner, left = base.apply(
            state.placement,
            node,
            outcome._replace(observed_events=outcome.observed_events.placement),
            decision,
        )
        view = jax.tree.map(
            lambda new, old: jnp.where(beside(going, new), new, old), outcome.observed_events.view, state.view
        )
        return joined(inner, view), left

    def decision_info(state: SlotState, node: Array) -> SlotDecisionInfo:
        known = base.decision_info(state.placement, node)  # there a request arrives when it is placed
        of_request = known._replace(arrival_s=state.view.arrived_s)
        return SlotDecisionInfo(**of_request._asdict(), clock_s=known.arrival_s)

    def observation(state: SlotState, seen: Observation, in_full: bool) -> Observation:
        node = jnp.concatenate([seen.node, _node_features(case, state, in_full)])
        return Observation(node, jnp.concatenate([seen.request, _request_features(state)]))

    return base._replace(
        start=start,
        observe=lambda state: observation(state, base.observe(state.placement), False),
        observe_global=lambda state: observation(state, base.observe_global(state.placement), True),
        legal=lambda state: _legal(case, state.here, state.placement.available),
        active=lambda state: state.placement.active,
        apply=apply,
        remaining=lambda state: base.remaining(state.placement),
        decision_info=decision_info,
    )


def _legal(case: EdgeCloud, here: Here, available: Array) -> Array:
    """[nodes, seats, *streams] bool."""
    legal = (here.replicas > 0.0) & (available & (here.held < case.config.node_places))[:, None]
    if case.config.only_where_room:
        cores = jnp.asarray(case.cores).reshape((-1,) + (1,) * (here.held.ndim - 1))
        legal &= (here.same_service < here.replicas) & (here.held < cores)[:, None]
    return legal


def _here(state: PlacementState, deployment: Deployment) -> Here:
    """Looks up replicas of, and counts requests of, the services in hand on every node."""
    service, clock = state.request.service, state.clock_s[None]

    def per_slot(leaves: tuple[Array, ...], _: Array) -> tuple[Array, Array]:
        decision, finish_s, whose = leaves
        held = (decision != EMPTY) & (finish_s > clock)
        same = held[:, None] & (whose[:, None] == service[None])
        return same.astype(jnp.float32), held.astype(jnp.float32)

    table = state.in_flight
    same, held = fold_slots(
        per_slot, lambda a, b: (a[0] + b[0], a[1] + b[1]), (table.decision, table.finish_s, table.service)
    )
    index = jnp.broadcast_to(service[None], (deployment.replicas.shape[1], *service.shape))
    replicas = jnp.stack(
        [
            jnp.take_along_axis(deployment.replicas, index[None, :, seat], axis=0)[0]
            for seat in range(service.shape[0])
        ],
        axis=1,
    )
    return Here(replicas, same, held)


def _node_features(case: EdgeCloud, state: SlotState, in_full: bool) -> Array:
    """[3, nodes, seats, *streams]."""
    here, deployment = state.here, state.view.deployment
    site = case.cluster.site_of_node
    same_service = here.same_service
    if not in_full:
        # [nodes, sites]
        of_site = jnp.asarray(site[:, None] == np.arange(len(case.cluster.sites)), jnp.float32)
        mean = jnp.tensordot(
            (of_site / jnp.maximum(of_site.sum(axis=0, keepdims=True), 1.0)).T, same_service, axes=1
        )
        own = jnp.asarray(site).reshape((-1,) + (1,) * (same_service.ndim - 1))
        own = own == state.placement.request.site[None]
        same_service = jnp.where(own, same_service, jnp.tensordot(of_site, mean, axes=1))
    memory_gib = np.maximum(case.memory_gib, 1e-9).reshape((-1,) + (1,) * (here.held.ndim - 1))
    free = 1.0 - deployment.used_gib / memory_gib
    return jnp.stack(
        [
            jnp.log1p(here.replicas),
            jnp.log1p(same_service),
            jnp.broadcast_to(free[:, None], same_service.shape),
        ]
    )


def _request_features(state: SlotState) -> Array:
    """[3, seats, *streams]."""
    view, clock = state.view, state.placement.clock_s[None]
    waited_s = jnp.where(view.holding, jnp.maximum(clock - view.arrived_s, 0.0), 0.0)
    return jnp.stack([jnp.log1p(waited_s), jnp.log1p(view.queued), jnp.log1p(view.oldest_s)])
