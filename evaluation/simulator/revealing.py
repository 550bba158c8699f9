"""The hidden state of a simulated system as an input of references: problem and response that carry it along.

The state becomes a pair of the bookkeeping, as for any policy, and the hidden state of the response at that time: when
cores become free given all that is already drawn, current speeds of nodes, pressure on them, and the agent's acceptance
probability. What has not been drawn yet (the next run's variation) stays hidden.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from evaluation.simulator.answers import CoreQueues
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.crowd import willingness
from evaluation.simulator.mechanics import Unfolding
from evaluation.simulator.modulation import HiddenChanges, value_at
from evaluation.simulator.names import Names
from evaluation.simulator.stations import SERVED, WAITING
from evaluation.simulator.unfolding import in_order_of
from evaluation.simulator.world import World
from twin.contracts import Array, Outcome, Problem, PyTree, Records, Response, Streams


class Revealed(NamedTuple):
    """What is hidden, at the moment of a decision; nodes in the order of the vocabulary."""

    wait_s: Array  # [nodes, *streams] until a core is free for a request that arrives now
    speed: Array  # [nodes, *streams] current factor of the node's speed
    work: Array  # [*streams] factor of the work of requests that arrive now
    willing: Array  # [*streams] factor of the requesting agent's probability to accept
    left_s: Array  # [nodes, slots or 1, *streams] remaining run of requests in service, on a whole core
    pressure: Array  # [nodes, *streams] on a further run


class Known(NamedTuple):
    """A bookkeeping state, and the hidden state."""

    books: PyTree
    hidden: Revealed


Reveal = Callable[[PyTree, Outcome], Revealed]
"""(private state of the response, its latest outcome) -> hidden state."""


def reveal_in(world: World, today: DayConditions, names: Names) -> Reveal:
    """The function that reads the hidden state of a day's true response (`truth.truth_response`)."""
    ordered = in_order_of(today, names.world_node)

    def reveal(private: PyTree, outcome: Outcome) -> Revealed:
        clock_s = outcome.observed_events.clock_s
        if isinstance(private, Unfolding):
            return _unfolding(world, ordered, private, clock_s, outcome.observed_events.request.agent[0])
        return _drawn(names, private.memory, clock_s)

    return reveal


def _drawn(names: Names, queues: CoreQueues, clock_s: Array) -> Revealed:
    free_s = jnp.min(queues.free_s, axis=0)[names.world_node]
    wait_s = jnp.maximum(free_s - clock_s[None], 0.0)
    nothing, one = jnp.zeros_like(wait_s), jnp.ones_like(wait_s)
    speed = _speed(queues.hidden, clock_s, one, names.world_node)
    return Revealed(
        wait_s, speed, _work(queues.hidden, clock_s), jnp.ones_like(clock_s), nothing[:, None], nothing
    )


def _unfolding(
    world: World, today: DayConditions, system: Unfolding, clock_s: Array, agent: Array
) -> Revealed:
    jobs, trailing = system.jobs, (1,) * clock_s.ndim
    served, waiting = jobs.phase == SERVED, jobs.phase == WAITING
    one = jnp.ones((len(world.nodes), *clock_s.shape), jnp.float32)
    num_served, num_waiting = (jnp.sum(flag, axis=1, dtype=jnp.float32) for flag in (served, waiting))
    limit = jnp.asarray(today.limit).reshape((-1, *trailing)) * one
    speed = _speed(system.hidden, clock_s, one, slice(None))
    left_s = jobs.left_s
    if jobs.killed_after_s is not None:  # no run lasts longer
        began_s = jnp.where(served, jobs.start_s, clock_s[None, None])
        left_s = jnp.minimum(left_s, (began_s + jobs.killed_after_s - clock_s[None, None]) * speed[:, None])
    next_end_s = jnp.min(jnp.where(served, left_s, jnp.inf), axis=1)
    if system.hidden.taken_s is not None:
        rest_s = system.hidden.taken_s - clock_s[None, None]
        limit = limit - jnp.sum(rest_s > 0.0, axis=0)
        next_end_s = jnp.minimum(next_end_s, jnp.min(jnp.where(rest_s > 0.0, rest_s, jnp.inf), axis=0))
    queue_s = jnp.sum(jnp.where(waiting, left_s, 0.0), axis=1) / jnp.maximum(limit, 1.0)
    next_end_s = jnp.where(jnp.isfinite(next_end_s), next_end_s, 0.0)
    is_full = num_served + num_waiting >= limit
    left_s = jnp.where(served | waiting, left_s, 0.0)
    shares = jnp.asarray(today.shares).reshape((-1, 1, *trailing))
    pressure = jnp.zeros_like(one)
    if jobs.pressure is not None:
        pressure = jnp.sum(jnp.where(served, jobs.pressure, 0.0), axis=1)
    willing = jnp.ones_like(clock_s)
    if world.reactions.any:
        willing = willingness(world.reactions, system.crowd, agent)
    return Revealed(
        jnp.where(is_full, (next_end_s + queue_s) / speed, 0.0),
        speed,
        _work(system.hidden, clock_s),
        willing,
        jnp.where(shares, left_s, 0.0),
        pressure,
    )


def _speed(hidden: HiddenChanges, clock_s: Array, one: Array, order: np.ndarray | slice) -> Array:
    if hidden.speed is None:
        return one
    return value_at(hidden.speed, clock_s[None] * one)[order]


def _work(hidden: HiddenChanges, clock_s: Array) -> Array:
    return jnp.ones_like(clock_s) if hidden.work is None else value_at(hidden.work, clock_s[None])[0]


class _RevealedEvents(NamedTuple):
    """The observed events, and the hidden state at that time."""

    events: PyTree
    hidden: Revealed


def revealing(problem: Problem, response: Response, reveal: Reveal) -> tuple[Problem, Response]:
    """The same system with states `Known`. The problem's own functions get the bookkeeping only; replacements of
    `observe` and `observe_global` get the whole state.
    """

    def bare(outcome: Outcome) -> Outcome:
        return outcome._replace(observed_events=outcome.observed_events.events)

    def with_hidden(private: PyTree, outcome: Outcome) -> tuple[PyTree, Outcome]:
        return private, outcome._replace(
            observed_events=_RevealedEvents(outcome.observed_events, reveal(private, outcome))
        )

    def start(outcome: Outcome) -> Known:
        return Known(problem.start(bare(outcome)), outcome.observed_events.hidden)

    def apply(state: Known, action: PyTree, outcome: Outcome, decision: Array) -> tuple[Known, Records]:
        books, left = problem.apply(state.books, action, bare(outcome), decision)
        return Known(books, outcome.observed_events.hidden), left

    def init(key: Array, streams: Streams) -> tuple[PyTree, Outcome]:
        return with_hidden(*response.init(key, streams))

    def advance(key: Array, private: PyTree, state: Known, action: PyTree) -> tuple[PyTree, Outcome]:
        return with_hidden(*response.advance(key, private, state.books, action))

    def resolve_pending(private: PyTree, state: Known) -> Known:
        return state._replace(books=response.resolve_pending(private, state.books))

    shown = problem._replace(
        start=start,
        observe=lambda state: problem.observe(state.books),
        observe_global=lambda state: problem.observe_global(state.books),
        legal=lambda state: problem.legal(state.books),
        active=lambda state: problem.active(state.books),
        apply=apply,
        remaining=lambda state: problem.remaining(state.books),
        decision_info=lambda state, action: problem.decision_info(state.books, action),
    )
    return shown, Response(init, advance, resolve_pending)
