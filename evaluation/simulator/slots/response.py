"""The mechanics of slot mode as a Response: it holds the queues, draws what is by chance, and tells what shows.

A step leads from one slot boundary to the next: requests in hand are sent, the nodes work through the slot, changes of
the deployment that are due are made, requests that arrived meanwhile enter their queues, the late are dropped, and
every access point takes the next request in hand.

The numbers a slot needs are one array of uniforms, in the order of `draw`, so that any other implementation of the
rules can be fed the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.simulator.arrivals import uniforms
from evaluation.simulator.conditions import LOCAL, Conditions
from evaluation.simulator.failures import is_up, on_clock
from evaluation.simulator.slots import nodes, queues
from evaluation.simulator.slots.counts import Counts, Events, Sent, counted, nothing_counted
from evaluation.simulator.slots.deployment import (
    Deployment,
    Orchestration,
    carry_out,
    first_deployed,
    replicas_at,
    schedule,
)
from evaluation.simulator.slots.estimates import Estimates, first_estimates, learn, note
from evaluation.simulator.slots.instance import Instance
from evaluation.simulator.slots.nodes import Capacity, Held
from evaluation.simulator.slots.problem import SlotNews, SlotState, View
from evaluation.simulator.slots.queues import UNIFORMS_PER_ARRIVAL, Queues
from twin.contracts import Array, Outcome, Response, Streams
from twin.placement.bookkeeping import choose_slots
from twin.placement.features import one_hot
from twin.placement.types import UNKNOWN, News, Requests

Orchestrator = Callable[[Array, SlotState], Orchestration]
"""(key, state) -> what to change; asked at the beginning of every frame."""

ACCEPTS, WAY_THERE, RUN, WAY_BACK = range(4)
NUM_DECISION_UNIFORMS = 4
"""The first rows of what is drawn for a slot: for the request that a site sends."""


class Private(NamedTuple):
    """What nobody sees."""

    slot: Array  # [] int32: slots since the beginning
    queues: Queues
    place: Array  # [sites, *streams] int32: the place of the request in hand
    held: Held
    estimates: Estimates | None


def draw(case: Instance, key: Array, streams: Streams) -> Array:
    """[4 + 5 * arrivals_per_slot, sites, *streams] uniform numbers in (0, 1): all the chance of one slot.

    The agent's answer, the way there, the run and the way back of the request sent; then agent, service, size, input
    and gap of every arrival.
    """
    number = NUM_DECISION_UNIFORMS + UNIFORMS_PER_ARRIVAL * case.config.arrivals_per_slot
    return uniforms(key, number, (case.num_seats, *streams))


def slot_response(case: Instance, begin_s: float = 0.0, orchestrator: Orchestrator | None = None) -> Response:
    """The mechanics of an instance.

    Args:
        case: The instance.
        begin_s: Time of day at which episodes begin, with empty queues.
        orchestrator: Who changes the deployment; nobody by default.

    Returns:
        The response to `slot_problem(case)`. Episodes are truncated at the end of the world's day.
    """
    config, failing = case.config, on_clock(case.world, case.by_site, begin_s)

    def init(key: Array, streams: Streams) -> tuple[Private, Outcome]:
        first = uniforms(key, 1, (case.num_seats, *streams))[0]
        waiting = queues.empty_queues(case, first, begin_s, streams)
        held = nodes.nothing_held(case.cluster.num_nodes, config.node_places, streams)
        nobody = jnp.full(first.shape, config.queue_places, jnp.int32)
        private = Private(jnp.int32(0), waiting, nobody, held, first_estimates(case, streams))
        clock_s = jnp.zeros(streams, jnp.float32)
        view = _view(case, private, first_deployed(case, streams), nothing_counted(streams), clock_s)
        news = _news(case, private, view, clock_s, begin_s, _available(case, failing, clock_s))
        no = clock_s > 0.0
        return private, Outcome(clock_s, no, no, news)

    def advance(key: Array, private: Private, state: SlotState, node: Array) -> tuple[Private, Outcome]:
        slot = private.slot + 1
        from_s = state.placement.clock_s
        until_s = jnp.full_like(from_s, slot.astype(jnp.float32) * config.slot_s)
        key_drawn, key_orchestrator = jax.random.split(key)
        numbers = draw(case, key_drawn, from_s.shape)
        deployment, pulled_mib = state.view.deployment, jnp.zeros_like(from_s)
        if orchestrator is not None:
            deployment, pulled_mib = _orchestrate(case, orchestrator, key_orchestrator, private.slot, state)
        up = _available(case, failing, until_s) if case.world.outages else None
        held, sent = _send(case, private, state, node, numbers)
        held, served = nodes.serve(held, _capacity(case, from_s), from_s, until_s, config.drop_served, up)
        estimates = private.estimates
        if estimates is not None:
            estimates = note(estimates, held, state.placement.in_flight, from_s, until_s)
        if orchestrator is not None:
            deployment, held = _carry_out(case, deployment, held, until_s)
        waiting = queues.leave(private.queues, private.place, state.placement.active)
        expected_s = None if estimates is None else estimates.eap_s
        arrivals = numbers[NUM_DECISION_UNIFORMS:]
        waiting, entered = queues.enter(case, waiting, arrivals, until_s, expected_s, begin_s)
        waiting, dropped = queues.drop_late(waiting, until_s)
        if estimates is not None:
            estimates, waiting, held = learn(case, estimates, waiting, held, slot, until_s)
        private = Private(slot, waiting, queues.first_in_line(waiting), held, estimates)
        events = Events(sent, entered, dropped, served, pulled_mib)
        counts = counted(case, state.view.counts, events, held, from_s, until_s)
        view = _view(case, private, deployment, counts, until_s)
        available = _available(case, failing, until_s)
        news = _news(case, private, view, until_s, begin_s, available, sent.accepted)
        done = begin_s + until_s >= case.by_site.day_s
        return private, Outcome(until_s - from_s, jnp.zeros_like(done), done, news)

    def foretell(private: Private, state: SlotState) -> SlotState:
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

    return Response(init, advance, foretell)


def _capacity(case: Instance, like: Array) -> Capacity:
    cores, at_once = (
        jnp.asarray(value).reshape((-1,) + (1,) * like.ndim) for value in (case.cores, case.at_once)
    )
    return Capacity(cores, at_once)


def _send(
    case: Instance, private: Private, state: SlotState, node: Array, numbers: Array
) -> tuple[Held, Sent]:
    """Sends the requests in hand to the nodes chosen, [seats, *streams], and files those accepted."""
    inner, held, config = state.placement, private.held, case.config
    request, clock_s = inner.request, inner.clock_s[None]
    link = jnp.asarray(case.link)[request.site, node]
    places = choose_slots(inner, node)
    accepted = inner.active & (places < held.end_s.size).reshape(node.shape)
    if config.agents_answer:
        accepted &= numbers[ACCEPTS] < jnp.asarray(case.accepts)[link, jnp.maximum(request.agent, 0)]
    places = jnp.where(accepted.reshape(places.shape), places, held.end_s.size)
    way_s = _way_s(case, link, request.input_mib, numbers[WAY_THERE])
    output_mib = jnp.asarray(case.output_mib)[request.service]
    arrives_s = clock_s + way_s
    late_s = state.view.arrived_s + request.deadline_s
    run_s = request.expected_run_s * case.world.run.quantile(numbers[RUN])
    never = jnp.full_like(arrives_s, jnp.inf)
    new = Held(
        arrives_s=arrives_s,
        late_s=late_s,
        key=config.node_queue.key(arrives_s, late_s, _expected_s(private.estimates, request)),
        service=request.service,
        replicas=replicas_at(state.view.deployment, request.service, node),
        left_s=run_s * jnp.asarray(case.run_factor)[request.service, node],
        back_s=jnp.where(output_mib > 0.0, _way_s(case, link, output_mib, numbers[WAY_BACK]), 0.0),
        start_s=never,
        end_s=never,
        status=jnp.full(node.shape, UNKNOWN, jnp.int32),
    )
    away_mib = jnp.where(accepted & (link != LOCAL), request.input_mib, 0.0)
    moved_mib = jnp.where(accepted, request.input_mib + output_mib, 0.0)
    sent = Sent(inner.active, accepted, jnp.sum(away_mib, axis=0), jnp.sum(moved_mib, axis=0))
    return nodes.file(held, places, new), sent


def _expected_s(estimates: Estimates | None, request: Requests) -> Array:
    """[seats, *streams] what the services take at nodes; what requests declare where nobody estimates."""
    return request.expected_run_s if estimates is None else queues.look_up(estimates.node_s, request.service)


def _way_s(case: Instance, link: Array, mib: Array, uniform: Array) -> Array:
    """Latency times its noise plus the transfer, by kind of link; any shape."""
    kinds, today = (case.world.local, case.world.cross_site, case.world.wan), case.by_site
    noise = jnp.stack([kind.noise.quantile(uniform) for kind in kinds])
    drawn = jnp.sum(jnp.where(one_hot(link, len(kinds)), noise, 0.0), axis=0)
    return drawn * jnp.asarray(today.latency_s)[link] + mib * jnp.asarray(today.s_per_mib)[link]


def _orchestrate(
    case: Instance, orchestrator: Orchestrator, key: Array, slot: Array, state: SlotState
) -> tuple[Deployment, Array]:
    deployment, clock_s = state.view.deployment, state.placement.clock_s
    return jax.lax.cond(
        slot % case.config.slots_per_frame == 0,
        lambda: schedule(case, deployment, orchestrator(key, state), clock_s),
        lambda: (deployment, jnp.zeros_like(clock_s)),
    )


def _carry_out(case: Instance, deployment: Deployment, held: Held, until_s: Array) -> tuple[Deployment, Held]:
    return jax.lax.cond(
        jnp.any(deployment.service > 0),
        lambda: carry_out(case, deployment, held, until_s),
        lambda: (deployment, held),
    )


def _available(case: Instance, failing: Conditions, clock_s: Array) -> Array:
    """[nodes, *streams] bool: which nodes are up."""
    return is_up(case.world, failing, clock_s)[case.names.world_node]


def _view(case: Instance, private: Private, deployment: Deployment, counts: Counts, clock_s: Array) -> View:
    waiting = private.queues
    queued, oldest_s = queues.oldest_s(waiting, clock_s)
    arrived_s = queues.pick(waiting.arrival_s, private.place)
    return View(private.place < case.config.queue_places, arrived_s, queued, oldest_s, deployment, counts)


def _news(
    case: Instance,
    private: Private,
    view: View,
    clock_s: Array,
    begin_s: float,
    available: Array,
    accepted: Array | None = None,
) -> SlotNews:
    request = queues.in_hand(case, private.queues, private.place, begin_s)
    shown = nodes.revealed(private.held, clock_s)
    nobody = jnp.zeros_like(view.holding)
    accepted = nobody if accepted is None else accepted
    return SlotNews(News(clock_s, accepted, *shown, request, view.holding, available), view)
