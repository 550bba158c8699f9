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

from evaluation.simulator.answers import Queues, answer, empty_queues
from evaluation.simulator.arrivals import next_request
from evaluation.simulator.asked import Asked
from evaluation.simulator.behaviour import Behaviour, View
from evaluation.simulator.conditions import Conditions, conditions
from evaluation.simulator.names import Names, own_names
from evaluation.simulator.world import World
from twin.contracts import Array
from twin.placement.types import Fate, Requests

TABLE_DEPTH = 96
"""Requests in a node's hands that a behaviour can count; beyond it the load looks smaller than it is."""
CHUNK_STEPS = 2_000
ANY_WEEKDAY = 0
"""The week is no part of the mechanics; whoever reads the log finds it in the dates."""


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


class _Table(NamedTuple):
    """Requests in the nodes' hands; leaves [nodes, depth]."""

    finish_s: Array
    expected_run_s: Array


class _System(NamedTuple):
    clock_s: Array
    request: Requests
    live: Array
    queues: Queues
    table: _Table


def play(
    world: World,
    behaviour: Behaviour,
    days: Sequence[float],
    seed: int,
    *,
    asked: Callable[[float], Asked] | None = None,
    chunk_steps: int = CHUNK_STEPS,
    progress: Callable[[int], None] = lambda num_requests: None,
) -> History:
    """Simulates whole days under a behaviour.

    Args:
        world: A validated world.
        behaviour: Who decides.
        days: Days since day 0, one stream each; the same day twice gives the same history twice.
        seed: Seed of the histories.
        asked: The requests of a day, all days' lists equally long; None if the world draws them.
        chunk_steps: Steps of a compiled scan.
        progress: Told after each chunk how many requests were simulated so far.

    Returns:
        The history, leaves [steps, days, ...].
    """
    numbers = [conditions(world, day) for day in days]
    if asked is not None:
        numbers = [today._replace(asked=asked(day)) for today, day in zip(numbers, days, strict=True)]
    today = _stack(numbers)
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), int(day)) for day in days])
    return play_streams(world, behaviour, today, keys, chunk_steps=chunk_steps, progress=progress)


def play_streams(
    world: World,
    behaviour: Behaviour,
    today: Conditions,
    keys: Array,
    *,
    chunk_steps: int = CHUNK_STEPS,
    progress: Callable[[int], None] = lambda num_requests: None,
) -> History:
    """As `play`, with the streams' conditions (leaves [streams, ...]) and keys [streams] given."""
    begin, advance = _programs(world, behaviour, chunk_steps)
    chunks: list[History] = []
    system, num_requests = begin(today, keys), 0
    while bool(jnp.any(system.live)):
        system, rows = advance(today, keys, system, len(chunks))
        chunks.append(jax.tree.map(lambda leaf: np.swapaxes(np.asarray(leaf), 0, 1), rows))
        num_requests += int(chunks[-1].live.sum())
        progress(num_requests)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *chunks)


@lru_cache(maxsize=16)
def _programs(world: World, behaviour: Behaviour, chunk_steps: int) -> tuple[Callable, Callable]:
    """The compiled beginning of days and the compiled chunk, kept for the next batch of days."""
    names = own_names(world)
    advance = jax.vmap(partial(_advance, world, names, behaviour, chunk_steps), in_axes=(0, 0, 0, None))
    return jax.jit(jax.vmap(partial(_begin, world, names))), jax.jit(advance)


def _begin(world: World, names: Names, today: Conditions, key: Array) -> _System:
    midnight = jnp.float32(0.0)
    clock_s, request, live = next_request(
        jax.random.fold_in(key, 0), world, today, names, midnight, midnight, ANY_WEEKDAY
    )
    shape = (today.speed.shape[0], TABLE_DEPTH)
    table = _Table(jnp.zeros(shape), jnp.zeros(shape))
    return _System(clock_s, request, live, empty_queues(today, ()), table)


def _advance(
    world: World,
    names: Names,
    behaviour: Behaviour,
    num_steps: int,
    today: Conditions,
    key: Array,
    system: _System,
    chunk: Array,
) -> tuple[_System, History]:
    def one(system: _System, step: Array) -> tuple[_System, History]:
        key_node, key_answer, key_next = jax.random.split(jax.random.fold_in(key, step), 3)
        probabilities = behaviour.probabilities(today, _view(system))
        node = _draw(probabilities, jax.random.uniform(key_node))
        queues, fate = answer(
            key_answer, world, today, names, system.queues, system.request, system.clock_s, node
        )
        row = History(system.live, system.clock_s, system.request, node, probabilities[node], fate)
        table = _file(system, node, fate)
        clock_s, request, live = next_request(
            key_next, world, today, names, jnp.float32(0.0), system.clock_s, ANY_WEEKDAY
        )
        return _System(clock_s, request, live & system.live, queues, table), row

    steps = 1 + chunk * num_steps + jnp.arange(num_steps)
    return jax.lax.scan(one, system, steps)


def _view(system: _System) -> View:
    held = system.table.finish_s > system.clock_s
    work_s = jnp.where(held, system.table.expected_run_s, 0.0)
    return View(system.request, jnp.sum(held, axis=1, dtype=jnp.float32), jnp.sum(work_s, axis=1))


def _draw(probabilities: Array, uniform: Array) -> Array:
    """Draws a node by inverse distribution function; never one of probability zero."""
    below = jnp.sum(uniform * jnp.sum(probabilities) >= jnp.cumsum(probabilities), dtype=jnp.int32)
    last = jnp.max(jnp.where(probabilities > 0.0, jnp.arange(probabilities.shape[0], dtype=jnp.int32), 0))
    return jnp.minimum(below, last)


def _file(system: _System, node: Array, fate: Fate) -> _Table:
    slot = jnp.argmin(system.table.finish_s[node])
    entry = (fate.finish_s, system.request.expected_run_s)
    put = [
        jnp.where(fate.accepted, leaf.at[node, slot].set(value), leaf)
        for leaf, value in zip(system.table, entry, strict=True)
    ]
    return _Table(*put)


def _stack(days: list[Conditions]) -> Conditions:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *days)
