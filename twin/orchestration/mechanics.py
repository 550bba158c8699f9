"""The mechanics of slot mode as a Response: it holds the queues, draws what is by chance, and returns what is observed.

A step leads from one slot boundary to the next: requests in hand are sent, the nodes work through the slot, changes of
the deployment that are due are made, requests that arrived meanwhile enter their queues, the late are dropped, and
every access point takes the next request in hand.

What is by chance comes from a `Chance`; everything else is computed here, so that twin and truth keep the same books.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Outcome, PyTree, Response, Streams
from twin.orchestration import nodes, queues
from twin.orchestration.chance import Chance
from twin.orchestration.counts import Counts, Events, Sent, counted, nothing_counted
from twin.orchestration.deployment import (
    Deployment,
    Orchestration,
    carry_out,
    first_deployed,
    replicas_at,
    schedule,
)
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.estimates import Estimates, first_estimates, learn, response_aux
from twin.orchestration.nodes import Capacity, HeldRequests
from twin.orchestration.queues import Queues
from twin.orchestration.slots import SlotEvents, SlotState, View
from twin.placement.bookkeeping import choose_slots
from twin.placement.types import UNKNOWN, PlacementEvents, Requests

Orchestrator = Callable[[Array, SlotState], Orchestration]
"""(key, state) -> what to change; asked at the beginning of every frame."""


class Private(NamedTuple):
    """The hidden state."""

    slot: Array  # [] int32: slots since the beginning
    queues: Queues
    place: Array  # [sites, *streams] int32: the place of the request in hand
    held: HeldRequests
    estimates: Estimates | None


def slot_response(
    case: EdgeCloud,
    chance: Chance,
    orchestrator: Orchestrator | None = None,
    deployed: Callable[[Streams], Deployment] | None = None,
) -> Response:
    """The mechanics of a cluster by slots.

    Args:
        case: The cluster.
        chance: What is by chance, with the time of day at which episodes begin, with empty queues.
        orchestrator: What changes the deployment; by default it stays.
        deployed: What is deployed when episodes begin; the cluster's first deployment by default.

    Returns:
        The response to `slot_problem(case)`. Episodes are truncated at the end of the day.
    """
    config = case.config

    def init(key: Array, streams: Streams) -> tuple[Private, Outcome]:
        waiting = queues.empty_queues(case, chance.first_s(key, streams))
        held = nodes.nothing_held(case.num_nodes, config.node_places, streams)
        none = jnp.full(waiting.next_s.shape, config.queue_places, jnp.int32)
        private = Private(jnp.int32(0), waiting, none, held, first_estimates(case, streams))
        clock_s = jnp.zeros(streams, jnp.float32)
        deployment = first_deployed(case, streams) if deployed is None else deployed(streams)
        view = _view(case, private, deployment, nothing_counted(streams), clock_s)
        observed_events = _events(case, chance, private, view, clock_s, chance.available(None, None, clock_s))
        no = clock_s > 0.0
        return private, Outcome(clock_s, no, no, observed_events)

    def advance(key: Array, private: Private, state: SlotState, node: Array) -> tuple[Private, Outcome]:
        slot = private.slot + 1
        from_s = state.placement.clock_s
        until_s = jnp.full_like(from_s, slot.astype(jnp.float32) * config.slot_s)
        key_drawn, key_orchestrator = jax.random.split(key)
        numbers = chance.numbers(key_drawn, from_s.shape)
        deployment, pulled_mib = state.view.deployment, jnp.zeros_like(from_s)
        if orchestrator is not None:
            deployment, pulled_mib = _orchestrate(case, orchestrator, key_orchestrator, private.slot, state)
        available = chance.available(numbers, state.placement.available, until_s)
        up = available if chance.fails else None
        held, sent = _send(case, chance, private, state, node, numbers)
        held, served = nodes.serve(held, _capacity(case, from_s), from_s, until_s, config.drop_served, up)
        estimates = private.estimates
        if estimates is not None:
            estimates = response_aux(estimates, held, state.placement.in_flight, from_s, until_s)
        if orchestrator is not None:
            deployment, held = _carry_out(case, deployment, held, until_s)
        waiting = queues.leave(private.queues, private.place, state.placement.active)
        expected_s = None if estimates is None else estimates.eap_s
        waiting, entered = queues.enter(case, chance, waiting, numbers, until_s, expected_s)
        waiting, dropped = queues.drop_late(waiting, until_s)
        if estimates is not None:
            estimates, waiting, held = learn(case, estimates, waiting, held, slot, until_s)
        private = Private(slot, waiting, queues.first_in_line(waiting), held, estimates)
        events = Events(sent, entered, dropped, served, pulled_mib)
        counts = counted(case, state.view.counts, events, held, from_s, until_s)
        view = _view(case, private, deployment, counts, until_s)
        observed_events = _events(case, chance, private, view, until_s, available, sent.accepted)
        done = chance.time_of_day_s(until_s) >= chance.day_s
        return private, Outcome(until_s - from_s, jnp.zeros_like(done), done, observed_events)

    def resolve_pending(private: Private, state: SlotState) -> SlotState:
        """Answers that are on their way back will arrive; nothing else is settled yet."""
        inner = state.placement
        table = inner.in_flight
        finish_s = nodes.finishes(private.held)
        known = jnp.isfinite(finish_s) & jnp.isinf(table.finish_s)
        table = table._replace(
            finish_s=jnp.where(known, finish_s, table.finish_s),
            status=jnp.where(known, private.held.status, table.status),
        )
        return state._replace(placement=inner._replace(in_flight=table))

    return Response(init, advance, resolve_pending)


def _capacity(case: EdgeCloud, like: Array) -> Capacity:
    cores, at_once = (
        jnp.asarray(value).reshape((-1,) + (1,) * like.ndim) for value in (case.cores, case.at_once)
    )
    return Capacity(cores, at_once)


def _send(
    case: EdgeCloud, chance: Chance, private: Private, state: SlotState, node: Array, numbers: PyTree
) -> tuple[HeldRequests, Sent]:
    """Sends the requests in hand to the nodes chosen, [seats, *streams], and files those accepted."""
    inner, held, config = state.placement, private.held, case.config
    request, clock_s = inner.request, inner.clock_s[None]
    answer = chance.answer(numbers, request, node)
    places = choose_slots(inner, node)
    accepted = inner.active & (places < held.end_s.size).reshape(node.shape)
    if config.agents_answer:
        accepted &= answer.accepted
    places = jnp.where(accepted.reshape(places.shape), places, held.end_s.size)
    arrives_s = clock_s + answer.way_there_s
    late_s = state.view.arrived_s + request.deadline_s
    never = jnp.full_like(arrives_s, jnp.inf)
    new = HeldRequests(
        arrives_s=arrives_s,
        late_s=late_s,
        key=config.node_queue.key(arrives_s, late_s, _expected_s(private.estimates, request)),
        service=request.service,
        replicas=replicas_at(state.view.deployment, request.service, node),
        left_s=answer.run_s,
        back_s=answer.way_back_s,
        start_s=never,
        end_s=never,
        status=jnp.full(node.shape, UNKNOWN, jnp.int32),
    )
    home = jnp.asarray(case.cluster.site_of_node, jnp.int32)[node] == request.site
    away_mib = jnp.where(accepted & ~home, request.input_mib, 0.0)
    output_mib = jnp.asarray(case.output_mib)[request.service]
    moved_mib = jnp.where(accepted, request.input_mib + output_mib, 0.0)
    sent = Sent(inner.active, accepted, jnp.sum(away_mib, axis=0), jnp.sum(moved_mib, axis=0))
    return nodes.file(held, places, new), sent


def _expected_s(estimates: Estimates | None, request: Requests) -> Array:
    """[seats, *streams] what the services take at nodes; what requests declare where there are no estimates."""
    return request.expected_run_s if estimates is None else queues.look_up(estimates.node_s, request.service)


def _orchestrate(
    case: EdgeCloud, orchestrator: Orchestrator, key: Array, slot: Array, state: SlotState
) -> tuple[Deployment, Array]:
    deployment, clock_s = state.view.deployment, state.placement.clock_s
    return jax.lax.cond(
        slot % case.config.slots_per_frame == 0,
        lambda: schedule(case, deployment, orchestrator(key, state), clock_s),
        lambda: (deployment, jnp.zeros_like(clock_s)),
    )


def _carry_out(
    case: EdgeCloud, deployment: Deployment, held: HeldRequests, until_s: Array
) -> tuple[Deployment, HeldRequests]:
    return jax.lax.cond(
        jnp.any(deployment.service > 0),
        lambda: carry_out(case, deployment, held, until_s),
        lambda: (deployment, held),
    )


def _view(case: EdgeCloud, private: Private, deployment: Deployment, counts: Counts, clock_s: Array) -> View:
    waiting = private.queues
    queued, oldest_s = queues.oldest_s(waiting, clock_s)
    arrived_s = queues.pick(waiting.arrival_s, private.place)
    return View(private.place < case.config.queue_places, arrived_s, queued, oldest_s, deployment, counts)


def _events(
    case: EdgeCloud,
    chance: Chance,
    private: Private,
    view: View,
    clock_s: Array,
    available: Array,
    accepted: Array | None = None,
) -> SlotEvents:
    request = queues.in_hand(case, chance, private.queues, private.place)
    shown = nodes.revealed(private.held, clock_s)
    none = jnp.zeros_like(view.holding)
    accepted = none if accepted is None else accepted
    return SlotEvents(PlacementEvents(clock_s, accepted, *shown, request, view.holding, available), view)
