"""Days of history: a world, a behaviour that decides, and a record of everything that came of it.

Every day is a stream of its own that begins empty at midnight, with its own conditions and its own key: the
same seed and day give the same history, whatever other days are simulated beside it (bit for bit if they are
equally many; a compiler may round otherwise for another number). The scan runs in chunks of steps.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.behaviour import Behaviour, BehaviourView
from evaluation.simulator.conditions import DayConditions, conditions
from evaluation.simulator.failures import is_up
from evaluation.simulator.hosting import allowed_nodes
from evaluation.simulator.mechanics import Completions, Mechanics, hidden_of, mechanics_of
from evaluation.simulator.names import Names, own_names
from evaluation.simulator.request_lists import DayRequests
from evaluation.simulator.world import World
from twin.contracts import Array, PyTree
from twin.placement.types import Fate, Requests

CHUNK_STEPS = 2_000


class History(NamedTuple):
    """What happened, one row per request in order of arrival; times in seconds since midnight of its day.

    As yielded by `play` the leaves are NumPy arrays [steps, days]; indices are the world's own.
    """

    live: Array  # bool: False pads days that have ended
    arrival_s: Array
    request: Requests  # leaves as above, demand [steps, days, resources]
    node: Array  # int32
    propensity: Array  # probability with which the behaviour chose the node
    fate: Fate
    session: Array | None = None  # int32, of the agent and the day, where agents react
    left: Array | None = None  # bool: the agent left for good after this request


class _System(NamedTuple):
    clock_s: Array
    request: Requests
    live: Array
    mechanics: PyTree


def play(
    world: World,
    behaviour: Behaviour,
    days: Sequence[float],
    seed: int,
    *,
    requests: Callable[[float], DayRequests] | None = None,
    chunk_steps: int = CHUNK_STEPS,
    progress: Callable[[int], None] = lambda num_requests: None,
) -> History:
    """Simulates whole days under a behaviour.

    Args:
        world: A validated world.
        behaviour: The deciding policy.
        days: Days since day 0, one stream each; the same day twice gives the same history twice.
        seed: Seed of the histories.
        requests: The requests of a day, all days' lists equally long; None if the world draws them.
        chunk_steps: Steps of a compiled scan.
        progress: Called after each chunk with the number of requests simulated so far.

    Returns:
        The history, leaves [steps, days, ...].
    """
    numbers = [conditions(world, day) for day in days]
    if requests is not None:
        numbers = [today._replace(requests=requests(day)) for today, day in zip(numbers, days, strict=True)]
    today = jax.tree.map(lambda *leaves: np.stack(leaves), *numbers)
    keys = jnp.stack([_day_key(seed, day) for day in days])
    return play_streams(world, behaviour, today, keys, chunk_steps=chunk_steps, progress=progress)


def play_streams(
    world: World,
    behaviour: Behaviour,
    today: DayConditions,
    keys: Array,
    *,
    mechanics: Callable[[World, Names], Mechanics] = mechanics_of,
    chunk_steps: int = CHUNK_STEPS,
    progress: Callable[[int], None] = lambda num_requests: None,
) -> History:
    """As `play`, with the streams' conditions (leaves [streams, ...]), keys [streams] and mechanics given."""
    begin, advance, finish = _programs(world, behaviour, mechanics, chunk_steps)
    chunks: list[History] = []
    completions: list[Completions | None] = []
    system, num_requests = begin(today, keys), 0
    while bool(jnp.any(system.live)):
        system, (rows, late) = advance(today, keys, system, len(chunks))
        chunks.append(jax.tree.map(_time_first, rows))
        completions.append(jax.tree.map(_time_first, late))
        num_requests += int(chunks[-1].live.sum())
        progress(num_requests)
    completions.append(jax.tree.map(_time_first, finish(today, system)))
    history = jax.tree.map(lambda *leaves: np.concatenate(leaves), *chunks)
    return history._replace(fate=_completed(history.fate, completions))


def _time_first(leaf: Array) -> np.ndarray:
    return np.swapaxes(np.asarray(leaf), 0, 1)


def _completed(fate: Fate, completions: Sequence[Completions | None]) -> Fate:
    """The fates [steps, days], completed by later reports [rows, days]."""
    start_s, finish_s, status = (np.array(leaf) for leaf in (fate.start_s, fate.finish_s, fate.status))
    for late in completions:
        if late is not None:
            row, day = np.nonzero(late.step >= 0)
            step = late.step[row, day]
            start_s[step, day] = late.start_s[row, day]
            finish_s[step, day] = late.finish_s[row, day]
            status[step, day] = late.status[row, day]
    return Fate(fate.accepted, start_s, finish_s, status)


@lru_cache(maxsize=16)
def _programs(
    world: World, behaviour: Behaviour, make: Callable[[World, Names], Mechanics], chunk_steps: int
) -> tuple[Callable, Callable, Callable]:
    """The compiled beginning of days, chunk and end of days, kept for the next batch of days."""
    mechanics = make(world, own_names(world))
    advance = partial(_advance, world, mechanics, behaviour, chunk_steps)

    def end(today: DayConditions, system: _System) -> Completions | None:
        return mechanics.finish(today, system.mechanics)

    return (
        jax.jit(jax.vmap(partial(_begin, mechanics))),
        jax.jit(jax.vmap(advance, in_axes=(0, 0, 0, None))),
        jax.jit(jax.vmap(end)),
    )


def with_hidden(world: World, today: DayConditions, seed: int) -> DayConditions:
    """The day with the hidden changes that it has in the histories of this seed: they do not depend on decisions."""
    key = _begin_key(_day_key(seed, int(today.day)))
    return today._replace(hidden=hidden_of(key, world, today))


def _day_key(seed: int, day: float) -> Array:
    return jax.random.fold_in(jax.random.key(seed), int(day))


def _begin_key(key: Array) -> Array:
    return jax.random.fold_in(key, 0)


def _begin(mechanics: Mechanics, today: DayConditions, key: Array) -> _System:
    state, (clock_s, request, live) = mechanics.begin(_begin_key(key), today)
    return _System(clock_s, request, live, state)


def _advance(
    world: World,
    mechanics: Mechanics,
    behaviour: Behaviour,
    num_steps: int,
    today: DayConditions,
    key: Array,
    system: _System,
    chunk: Array,
) -> tuple[_System, tuple[History, Completions | None]]:
    def one(system: _System, step: Array) -> tuple[_System, tuple[History, Completions | None]]:
        key_node, key_answer, key_next = jax.random.split(jax.random.fold_in(key, step), 3)
        clock_s, request, live, state = system
        probabilities = behaviour.probabilities(today, _view(world, mechanics, today, system))
        node = _draw(probabilities, jax.random.uniform(key_node))
        state, answered = mechanics.offer(key_answer, today, state, request, clock_s, node, step - 1, live)
        row = History(
            live, clock_s, request, node, probabilities[node], answered.fate, answered.session, answered.left
        )
        state, (clock_s, request, more) = mechanics.following(key_next, today, state, clock_s, live)
        return _System(clock_s, request, more & live, state), (row, answered.completions)

    steps = 1 + chunk * num_steps + jnp.arange(num_steps)
    return jax.lax.scan(one, system, steps)


def _view(world: World, mechanics: Mechanics, today: DayConditions, system: _System) -> BehaviourView:
    num_held, work_s = mechanics.held(system.mechanics, system.clock_s)
    up = is_up(world, today, system.clock_s)
    return BehaviourView(
        system.request, num_held, work_s, allowed_nodes(world, today, system.request.service, up)
    )


def _draw(probabilities: Array, uniform: Array) -> Array:
    """Draws a node by inverse distribution function; never one of probability zero."""
    below = jnp.sum(uniform * jnp.sum(probabilities) >= jnp.cumsum(probabilities), dtype=jnp.int32)
    last = jnp.max(jnp.where(probabilities > 0.0, jnp.arange(probabilities.shape[0], dtype=jnp.int32), 0))
    return jnp.minimum(below, last)
