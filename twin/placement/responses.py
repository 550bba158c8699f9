"""Responses to placements, put together from the workload (`Arrivals`) and how offers are answered (`Answers`).

Replayed arrivals with replayed answers are history; with learned answers they are the hybrid twin of Xiong et al.,
section 3.1.2; generated arrivals with learned answers are the full twin; a mechanistic pair is the truth. All of them
draw the fate of an offer when it is made and keep it private, slot by slot, until it falls due.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Outcome, PyTree, Response, Streams
from twin.environment import beside
from twin.placement.bookkeeping import choose_slots, tables_of
from twin.placement.run_filter import NodeLevel
from twin.placement.slots import write
from twin.placement.types import (
    UNKNOWN,
    Carried,
    Cluster,
    Fate,
    InFlight,
    PlacementEvents,
    PlacementState,
    Requests,
)


class First(NamedTuple):
    """How an episode begins."""

    clock_s: Array  # [*streams]: arrival of the first request
    request: Requests  # leaves [seats, *streams]
    active: Array  # [seats, *streams] bool
    done: Array  # [*streams] bool
    carried: Carried | None = None  # requests already in the system; their fates stay private
    level: NodeLevel | None = None  # of every node, by the runs that ended before
    age_s: Array | None = None  # [*streams]: from the end of training to the clock's zero
    last_end_s: Array | None = None  # [services, nodes, *streams]: when the last runs should have ended


class Next(NamedTuple):
    """The next request, and when it arrives."""

    clock_s: Array  # [*streams]
    request: Requests  # leaves [seats, *streams]
    active: Array  # [seats, *streams] bool
    done: Array  # [*streams] bool
    # int32 [*streams]: its place in the window, where the order is not that of the log
    place: Array | None = None


class Pending(NamedTuple):
    """Where the requests in hand are filed, and how all fates have moved with them."""

    slot: Array  # [seats, streams] as `choose_slots`; beyond the table where an offer was refused
    finish_s: Array | None  # [nodes, depth, *streams]; None where fates do not move


class Arrivals(NamedTuple):
    """Arriving requests: pure functions of a private state."""

    init: Callable[[Array, Streams], tuple[PyTree, First]]  # (key, streams)
    next: Callable[[Array, PyTree, PlacementState, Fate, Pending], tuple[PyTree, Next]]
    # (key, private, state, fate, pending)


class Answers(NamedTuple):
    """How an offer is answered: pure functions of a private memory."""

    init: Callable[[Array, Streams], PyTree]  # (key, streams) -> memory
    answer: Callable[[Array, PyTree, PlacementState, Array, PyTree], tuple[PyTree, Fate]]
    # (key, memory, state, node [seats, *streams], note) -> memory, fate on the episode's clock
    response_aux: Callable[[PlacementState, Array], PyTree] = lambda _state, _node: None
    # (state, node) -> what an answer depends on and no policy observes; kept in the trajectory. The state it is made
    # from has the fates that are drawn already filled in, because the response has drawn them itself.
    moved_fates: Callable[[PlacementState, Array, Array, Array, Array], tuple[Array, Array]] | None = None
    # (state, node, slots, start_s, finish_s) -> start_s, finish_s of all in flight, as `driving_out.moved_fates`
    planned_fates: Callable[[InFlight, Array, Array, Array], tuple[Array, Array]] | None = None
    # (table, clock_s, start_s, finish_s) -> start_s, finish_s of what is in flight as an episode begins, from what is
    # left of its work (`paced_fates.planned_fates`)


class _Hidden(NamedTuple):
    """Fates drawn and not yet revealed, under the slots of the table in flight; leaves [nodes, depth, *streams]."""

    start_s: Array
    finish_s: Array
    status: Array


class _Private(NamedTuple):
    arrivals: PyTree
    memory: PyTree
    hidden: _Hidden


def _nothing_hidden(num_nodes: int, depth: int, streams: Streams) -> _Hidden:
    never = jnp.full((num_nodes, depth, *streams), jnp.inf, jnp.float32)
    return _Hidden(never, never, jnp.full(never.shape, UNKNOWN, jnp.int32))


def _hide(hidden: _Hidden, slots: Array, fate: Fate) -> _Hidden:
    """Files every seat's fate under its slot."""
    for seat in range(slots.shape[0]):
        hidden = _Hidden(
            *(
                write(old, slots[seat], new[seat])
                for new, old in zip((fate.start_s, fate.finish_s, fate.status), hidden, strict=True)
            )
        )
    return hidden


def _at_full_pace(carried: Carried, clock_s: Array) -> Carried:
    """The same, if all that is left of the works of what has not ended were done at full pace."""
    start_s, finish_s = carried.fate.start_s, carried.fate.finish_s
    alone_s = jnp.maximum(start_s, clock_s[None]) + carried.work_s
    goes_on = (finish_s > clock_s[None]) & jnp.isfinite(start_s)
    return carried._replace(fate=carried.fate._replace(finish_s=jnp.where(goes_on, alone_s, finish_s)))


def _revealed(hidden: _Hidden, clock_s: Array) -> _Hidden:
    """What of the hidden fates has become observable by `clock_s`; inf where it has not."""
    clock = beside(clock_s, hidden.start_s)
    return _Hidden(
        jnp.where(hidden.start_s <= clock, hidden.start_s, jnp.inf),
        jnp.where(hidden.finish_s <= clock, hidden.finish_s, jnp.inf),
        hidden.status,
    )


def drawn_response(cluster: Cluster, depth: int, arrivals: Arrivals, answers: Answers) -> Response:
    """A response that draws the fate of every offer at once and reveals it when it falls due.

    Args:
        cluster: For the number of nodes.
        depth: Slots per node, as in the problem's configuration.
        arrivals: Of requests.
        answers: How offers are answered.

    Returns:
        The response. Nothing it reveals lies after the clock of the decision it is revealed for.
    """
    num_nodes = cluster.num_nodes

    def available(streams: Streams) -> Array:
        return jnp.ones((num_nodes, *streams), bool)

    def init(key: Array, streams: Streams) -> tuple[_Private, Outcome]:
        key_arrivals, key_answers = jax.random.split(key)
        private, first = arrivals.init(key_arrivals, streams)
        hidden = _nothing_hidden(num_nodes, depth, streams)
        table = None
        if first.carried is not None:
            carried = first.carried
            if answers.planned_fates is not None and carried.work_s is not None:
                carried = _at_full_pace(carried, first.clock_s)
            table, fate = tables_of(carried, num_nodes, depth)
            if answers.planned_fates is not None:
                start_s, finish_s = answers.planned_fates(table, first.clock_s, fate.start_s, fate.finish_s)
                fate = fate._replace(start_s=start_s, finish_s=finish_s)
            hidden = _Hidden(fate.start_s, fate.finish_s, fate.status)
        shown = _revealed(hidden, first.clock_s)
        observed_events = PlacementEvents(
            first.clock_s, jnp.zeros_like(first.active), *shown, first.request, first.active,
            available(streams), table, first.level, first.age_s, first.last_end_s,
        )  # fmt: skip
        no = jnp.zeros_like(first.done)  # requests go on beyond the window
        outcome = Outcome(jnp.zeros(streams, jnp.float32), no, first.done, observed_events)
        return _Private(private, answers.init(key_answers, streams), hidden), outcome

    def advance(
        key: Array, private: _Private, state: PlacementState, node: Array
    ) -> tuple[_Private, Outcome]:
        key_arrivals, key_answers = jax.random.split(key)
        response_aux = answers.response_aux(resolve_pending(private, state), node)
        memory, fate = answers.answer(key_answers, private.memory, state, node, response_aux)
        slots = choose_slots(state, node)
        slots = jnp.where(fate.accepted.reshape(slots.shape), slots, private.hidden.start_s.size)
        hidden = _hide(private.hidden, slots, fate)
        if answers.moved_fates is not None:
            start_s, finish_s = answers.moved_fates(state, node, slots, hidden.start_s, hidden.finish_s)
            hidden = hidden._replace(start_s=start_s, finish_s=finish_s)
        pending = Pending(slots, None if answers.moved_fates is None else hidden.finish_s)
        arrivals_state, following = arrivals.next(key_arrivals, private.arrivals, state, fate, pending)
        shown = _revealed(hidden, following.clock_s)
        observed_events = PlacementEvents(
            following.clock_s,
            fate.accepted & state.active,
            *shown,
            following.request,
            following.active,
            available(state.clock_s.shape),
            place=following.place,
        )
        no = jnp.zeros_like(following.done)
        outcome = Outcome(
            following.clock_s - state.clock_s, no, following.done, observed_events, response_aux
        )
        return _Private(arrivals_state, memory, hidden), outcome

    def resolve_pending(private: _Private, state: PlacementState) -> PlacementState:
        table = state.in_flight
        start_s = jnp.minimum(table.start_s, private.hidden.start_s)
        finish_s = jnp.minimum(table.finish_s, private.hidden.finish_s)
        known = jnp.isfinite(finish_s)
        status = jnp.where(known, private.hidden.status, table.status)
        return state._replace(in_flight=table._replace(start_s=start_s, finish_s=finish_s, status=status))

    return Response(init, advance, resolve_pending)
