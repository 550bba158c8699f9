"""The two mechanics of a world in a history: outcomes drawn at the decision, or simulated event by event.

`history.play` scans over either. A world whose nodes are first come, first served and whose agents do not react is
drawn (`evaluation.simulator.answers`); any other is simulated by events (`evaluation.simulator.stations`, `.crowd`).
Both follow the same rules where both apply: the tests simulate worlds of the first kind in both ways.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.simulator.answers import CoreQueues, answer, draw_offer, empty_queues
from evaluation.simulator.arrivals import next_request
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.crowd import (
    AgentStates,
    fresh_agents,
    judge,
    next_present,
    of_agent,
    react,
    willingness,
)
from evaluation.simulator.modulation import HiddenChanges, Path, draw_hidden, draw_rate
from evaluation.simulator.names import Names
from evaluation.simulator.stations import GONE, NO_ENTRANTS, StationJobs, hand_over, no_jobs, pass_time
from evaluation.simulator.world import World
from twin.contracts import Array, PyTree
from twin.environment import beside
from twin.placement.slots import place, read, slot_at, write
from twin.placement.types import REJECTED, UNKNOWN, Fate, Requests

TABLE_DEPTH = 96
"""Requests in a node's hands that a behaviour can count; beyond it the load looks smaller than it is."""
NUM_SLOTS = 64
"""Requests that a node can hold in an event simulation; a node that holds as many refuses offers."""
ANY_WEEKDAY = 0
"""Histories have no weekday: readers of the log derive it from the dates."""
NO_COMPLETION = -1
_REACTION, _HIDDEN, _ANOTHER = 2, 3, 1 << 20
"""Folded into a key for draws of worlds with reactions, with hidden changes, and whose agents await answers, only."""


_Found = tuple[Array, Requests, Array]
"""As from `arrivals.next_request`."""


class Completions(NamedTuple):
    """Outcomes of earlier requests, reported now; leaves [rows]."""

    step: Array  # int32: step of the request; NO_COMPLETION: none
    start_s: Array
    finish_s: Array
    status: Array


class OfferAnswer(NamedTuple):
    """The known part of a request's outcome after its offer; leaves []."""

    fate: Fate  # as far as known: inf and UNKNOWN in event simulations
    session: Array | None = None  # int32, where agents react
    left: Array | None = None  # bool
    completions: Completions | None = None  # one row


class Mechanics(NamedTuple):
    """Pure functions of one stream; `state` is their own."""

    # (key, today) -> state, first (arrival, request, whether it comes today)
    begin: Callable[[Array, DayConditions], tuple[PyTree, tuple[Array, Requests, Array]]]
    # (state, clock) -> [nodes] number in the nodes' hands and their declared work
    held: Callable[[PyTree, Array], tuple[Array, Array]]
    # (key, today, state, request, clock, node, step, live) -> state, answer
    offer: Callable[..., tuple[PyTree, OfferAnswer]]
    # (key, today, state, clock, live) -> state, next (arrival, request, whether it comes today)
    following: Callable[..., tuple[PyTree, tuple[Array, Requests, Array]]]
    # (today, state) -> the remaining completions, after the last request; leaves [rows]
    finish: Callable[[DayConditions, PyTree], Completions | None]


def mechanics_of(world: World, names: Names) -> Mechanics:
    """How `world` is played, its requests in the vocabulary `names`."""
    return unfolding(world, names) if world.unfolds else drawn(world, names)


class _Table(NamedTuple):
    """Requests in the nodes' hands; leaves [nodes, depth]."""

    finish_s: Array
    expected_run_s: Array


class _Drawn(NamedTuple):
    queues: CoreQueues
    table: _Table
    rate: Path | None


def drawn(world: World, names: Names) -> Mechanics:
    """Fates are drawn at the decision."""
    midnight = jnp.float32(0.0)

    def begin(key: Array, today: DayConditions) -> tuple[_Drawn, tuple[Array, Requests, Array]]:
        shape = (today.speed.shape[0], TABLE_DEPTH)
        table = _Table(jnp.zeros(shape), jnp.zeros(shape))
        key_hidden = jax.random.fold_in(key, _HIDDEN)
        rate = draw_rate(key_hidden, world, today, ())
        first = next_request(key, world, today, names, midnight, midnight, ANY_WEEKDAY, rate)
        return _Drawn(empty_queues(key_hidden, world, today, ()), table, rate), first

    def held(state: _Drawn, clock_s: Array) -> tuple[Array, Array]:
        inside = state.table.finish_s > clock_s
        work_s = jnp.where(inside, state.table.expected_run_s, 0.0)
        return jnp.sum(inside, axis=1, dtype=jnp.float32), jnp.sum(work_s, axis=1)

    def offer(
        key: Array,
        today: DayConditions,
        state: _Drawn,
        request: Requests,
        clock_s: Array,
        node: Array,
        _step: Array,
        _live: Array,
    ) -> tuple[_Drawn, OfferAnswer]:
        queues, fate = answer(key, world, today, names, state.queues, request, clock_s, node)
        slot = jnp.argmin(state.table.finish_s[node])
        entry = (fate.finish_s, request.expected_run_s)
        put = [
            jnp.where(fate.accepted, leaf.at[node, slot].set(value), leaf)
            for leaf, value in zip(state.table, entry, strict=True)
        ]
        return _Drawn(queues, _Table(*put), state.rate), OfferAnswer(fate)

    def following(
        key: Array, today: DayConditions, state: _Drawn, clock_s: Array, _live: Array
    ) -> tuple[_Drawn, tuple[Array, Requests, Array]]:
        return state, next_request(key, world, today, names, midnight, clock_s, ANY_WEEKDAY, state.rate)

    return Mechanics(begin, held, offer, following, lambda _today, _state: None)


def hidden_of(key: Array, world: World, today: DayConditions) -> HiddenChanges:
    """The hidden changes of a day that mechanics begin with this key."""
    key_hidden = jax.random.fold_in(key, _HIDDEN)
    return draw_hidden(key_hidden, world, today, ())._replace(rate=draw_rate(key_hidden, world, today, ()))


class Unfolding(NamedTuple):
    """The state of an event simulation, with the agents that send requests; leaves with any stream axes."""

    now_s: Array  # [*streams]
    jobs: StationJobs
    crowd: AgentStates
    hidden: HiddenChanges
    rate: Path | None


def begin_unfolding(
    key: Array, world: World, today: DayConditions, num_slots: int, clock_s: Array
) -> Unfolding:
    """An empty system at `clock_s` [*streams], with `num_slots` places a node."""
    streams, key_hidden = clock_s.shape, jax.random.fold_in(key, _HIDDEN)
    jobs = no_jobs(world, num_slots, streams)
    crowd = fresh_agents(world.num_agents if world.reactions.any else 0, streams)
    hidden = draw_hidden(key_hidden, world, today, streams)
    return Unfolding(clock_s, jobs, crowd, hidden, draw_rate(key_hidden, world, today, streams))


def offer_unfolding(
    key: Array,
    world: World,
    today: DayConditions,
    names: Names,
    state: Unfolding,
    request: Requests,
    node: Array,
    slot: Array,
    has_request: Array,
) -> tuple[Unfolding, Array, Array]:
    """Offers the current requests to nodes.

    Args:
        key: PRNG key.
        world: For its laws and options.
        today: The day's numbers, failures on the clock of `state`.
        names: Vocabulary that the request and `node` refer to.
        state: The state before.
        request: Leaves [*streams].
        node: int32 [*streams], the offer.
        slot: [streams] the slot that each would take (`twin.placement.slots.place`), its node in the vocabulary
            of the cluster; out of range where the table is full. A node that holds `NUM_SLOTS` requests refuses;
            where the table is smaller, what it has no slot for is accepted and gone.
        has_request: [*streams] bool: there is a request.

    Returns:
        The state afterwards, whether the offers were accepted, and whether the agent leaves for good [*streams] bool.
    """
    reacts = world.reactions.any
    willing = willingness(world.reactions, state.crowd, request.agent) if reacts else None
    drawn = draw_offer(key, world, today, names, request, state.now_s, node, willing, state.hidden)
    is_full = slot_at(state.jobs.phase.shape, slot) >= NUM_SLOTS
    accepted = drawn.accepted & ~is_full & has_request
    owner = request.agent if reacts else jnp.full_like(request.agent, NO_ENTRANTS)
    position = jnp.where(accepted.reshape(-1), slot, state.jobs.phase.size)
    jobs = hand_over(today, state.jobs, drawn, state.now_s, position, owner, accepted)
    if not reacts:
        return state._replace(jobs=jobs), accepted, jnp.zeros_like(accepted)
    key_react = jax.random.fold_in(key, _REACTION)
    crowd, leaves = react(
        key_react, world.reactions, state.crowd, request, state.now_s, accepted, has_request
    )
    return state._replace(jobs=jobs, crowd=crowd), accepted, leaves


def follow_unfolding(
    key: Array,
    world: World,
    today: DayConditions,
    names: Names,
    state: Unfolding,
    offset_s: Array,
    weekday: int | Array,
    has_request: Array,
) -> tuple[Unfolding, tuple[Array, Requests, Array]]:
    """Simulates up to the next request; streams without one (`has_request` False) are not advanced.

    Returns:
        The state then, and the next request as from `arrivals.next_request`.
    """

    def candidate(key: Array, state: Unfolding) -> tuple[Unfolding, _Found]:
        found = next_present(
            key, world, today, names, offset_s, state.now_s, weekday, state.crowd, state.rate
        )
        until_s = jnp.where(has_request, found[0], state.now_s)
        jobs, end_s = pass_time(
            world, today, state.jobs, state.crowd.end_s, state.now_s, until_s, state.hidden
        )
        return state._replace(now_s=until_s, jobs=jobs, crowd=state.crowd._replace(end_s=end_s)), found

    state, found = candidate(key, state)
    if world.reactions.one_at_a_time:
        state, found = _of_idle_agent(key, candidate, state, found, has_request)
    if world.reactions.any:
        state = state._replace(crowd=judge(world.reactions, state.crowd, found[1].agent, state.now_s))
    return state, found


def _of_idle_agent(
    key: Array,
    candidate: Callable[[Array, Unfolding], tuple[Unfolding, _Found]],
    state: Unfolding,
    found: _Found,
    has_request: Array,
) -> tuple[Unfolding, _Found]:
    """Goes on to the first candidate whose agent has no request in the system."""

    def is_void(state: Unfolding, found: _Found) -> Array:
        _, request, more = found
        own = state.jobs.owner == beside(request.agent, state.jobs.owner)
        waits = own & ~(state.jobs.finish_s <= beside(state.now_s, state.jobs.finish_s))
        return has_request & more & jnp.any(waits, axis=(0, 1))

    def again(carry: tuple[Array, Unfolding, _Found]) -> tuple[Array, Unfolding, _Found]:
        number, state, found = carry
        void = is_void(state, found)
        later = candidate(jax.random.fold_in(key, number), state)
        kept = jax.tree.map(lambda new, old: jnp.where(void, new, old), later, (state, found))
        return number + 1, *kept

    first = jnp.int32(_ANOTHER), state, found
    _, state, found = jax.lax.while_loop(lambda carry: jnp.any(is_void(*carry[1:])), again, first)
    return state, found


class _Books(NamedTuple):
    """Records of a history beside the jobs; leaves [nodes, depth]."""

    step: Array  # int32: step of the request in the slot
    expected_run_s: Array


class _Live(NamedTuple):
    system: Unfolding
    books: _Books


def unfolding(world: World, names: Names) -> Mechanics:
    """Event simulation; outcomes are reported when another request takes the slot, or at the end."""
    midnight = jnp.float32(0.0)

    def begin(key: Array, today: DayConditions) -> tuple[_Live, tuple[Array, Requests, Array]]:
        system = begin_unfolding(key, world, today, NUM_SLOTS, midnight)
        shape = (today.speed.shape[0], NUM_SLOTS)
        books = _Books(jnp.full(shape, NO_COMPLETION, jnp.int32), jnp.zeros(shape))
        has_request = jnp.bool_(True)
        system, first = follow_unfolding(key, world, today, names, system, midnight, ANY_WEEKDAY, has_request)
        return _Live(system, books), first

    def inside(jobs: StationJobs, clock_s: Array) -> Array:
        returning = jnp.isfinite(jobs.finish_s) & (jobs.finish_s > clock_s)
        return (jobs.phase != GONE) | returning

    def held(state: _Live, clock_s: Array) -> tuple[Array, Array]:
        here = inside(state.system.jobs, clock_s)
        work_s = jnp.where(here, state.books.expected_run_s, 0.0)
        return jnp.sum(here, axis=1, dtype=jnp.float32), jnp.sum(work_s, axis=1)

    def offer(
        key: Array,
        today: DayConditions,
        state: _Live,
        request: Requests,
        clock_s: Array,
        node: Array,
        step: Array,
        live: Array,
    ) -> tuple[_Live, OfferAnswer]:
        jobs, agent = state.system.jobs, request.agent
        free = ~inside(jobs, clock_s)[node]
        slot = place(jobs.phase.shape, node, jnp.argmax(free), jnp.any(free))
        session = of_agent(state.system.crowd.session, agent) if world.reactions.any else None
        system, accepted, leaves = offer_unfolding(
            key, world, today, names, state.system, request, node, slot, live
        )
        slot = jnp.where(accepted, slot, jobs.phase.size)
        completions = Completions(
            read(state.books.step, slot, NO_COMPLETION),
            *(read(leaf, slot, 0) for leaf in (jobs.start_s, jobs.finish_s, jobs.status)),
        )
        books = _Books(
            write(state.books.step, slot, step),
            write(state.books.expected_run_s, slot, request.expected_run_s),
        )
        never = jnp.float32(jnp.inf)
        fate = Fate(accepted, never, never, jnp.where(accepted, UNKNOWN, REJECTED).astype(jnp.int32))
        left = leaves if world.reactions.any else None
        return _Live(system, books), OfferAnswer(fate, session, left, completions)

    def following(
        key: Array, today: DayConditions, state: _Live, _clock_s: Array, live: Array
    ) -> tuple[_Live, tuple[Array, Requests, Array]]:
        system, found = follow_unfolding(key, world, today, names, state.system, midnight, ANY_WEEKDAY, live)
        return state._replace(system=system), found

    def finish(today: DayConditions, state: _Live) -> Completions:
        system = state.system
        never = jnp.full_like(system.now_s, jnp.inf)
        jobs, _ = pass_time(world, today, system.jobs, system.crowd.end_s, system.now_s, never, system.hidden)
        leaves = (state.books.step, jobs.start_s, jobs.finish_s, jobs.status)
        return Completions(*(leaf.reshape(-1) for leaf in leaves))

    return Mechanics(begin, held, offer, following, finish)
