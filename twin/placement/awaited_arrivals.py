"""Arrivals from history of agents that await their answers: each thinks, from the end of its last request, as logged.

A request that its agent sent after the last one had ended comes so long after that has ended *in the episode* as it
did in the log; one that overlapped the last comes so long after that came. An agent's first of a window comes at its
logged time. So the requests, their order for every agent, and think times are those of the log; their times and the
order among agents are the episode's (`twin.placement.think_times`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree, Streams
from twin.placement.repeated_arrivals import asked, at
from twin.placement.responses import Arrivals, First, Next, Pending
from twin.placement.types import REJECTED, Fate, PlacementState, Requests
from twin.placement.windows import Windows, choose_windows, take


class _Log(NamedTuple):
    """A stream's window; leaves [T, *streams]."""

    request: Requests  # leaves [..., T, *streams]
    following: Array  # int32: the next request of the agent; T where there is none
    by_end: Array  # bool: it came after its agent's last one had ended
    think_s: Array  # how long after that, or after that had come


class _Way(NamedTuple):
    """A stream's way through its window; what is known of a request from when its agent's last one came on."""

    log: _Log
    current: Array  # [*streams] int32: the request in hand
    due_s: Array  # [T, *streams] when it comes; inf where it has come, and where that is not known yet
    end_s: Array  # [T, *streams] when what it awaits ends; inf where it awaits nothing
    slot: Array  # [T, *streams] int32: where that is kept


def awaited_arrivals(windows: Windows, *, in_place: Array | bool = False) -> Arrivals:
    """The arrivals of some windows (`Windows.behind`) in episodes of a twin.

    Args:
        windows: The logged requests.
        in_place: [] bool: all come at their logged times, as under logged decisions with logged answers.
    """

    def init(key: Array, streams: Streams) -> tuple[_Way, First]:
        window = choose_windows(key, windows.num_windows, streams)
        is_free, following, by_end, think_s = take(_links(windows), window)
        arrival_s, length = take((windows.arrival_s, windows.length), window)
        num_steps = arrival_s.shape[0]
        valid = _steps(arrival_s) < length[None]
        due_s = jnp.where(valid & (is_free | in_place), arrival_s, jnp.inf).at[0].set(jnp.inf)
        following = jnp.where(in_place, num_steps, following)
        log = _Log(take(windows.request, window), following, by_end, think_s)
        nothing, nowhere = jnp.full_like(due_s, jnp.inf), jnp.full(due_s.shape, -1, jnp.int32)
        current = jnp.zeros(streams, jnp.int32)
        first = First(
            arrival_s[0],
            asked(log.request, current),
            jnp.ones((1, *streams), bool),
            jnp.zeros(streams, bool),
            take(windows.carried, window),
            take(windows.level, window),
            take(windows.age_s, window),
            take(windows.last_end_s, window),
        )
        return _Way(log, current, due_s, nothing, nowhere), first

    def following(
        _key: Array, way: _Way, state: PlacementState, fate: Fate, pending: Pending
    ) -> tuple[_Way, Next]:
        way = _awaiting(_moved(way, state, pending), state, fate, pending)
        due_s = jnp.min(way.due_s, axis=0)
        done = jnp.isinf(due_s)
        current = jnp.where(done, way.current, jnp.argmin(way.due_s, axis=0).astype(jnp.int32))
        clock_s = jnp.where(done, state.clock_s, jnp.maximum(due_s, state.clock_s))
        has_come = _steps(way.due_s) == current[None]
        way = way._replace(current=current, due_s=jnp.where(has_come, jnp.inf, way.due_s))
        return way, Next(clock_s, asked(way.log.request, current), ~done[None], done, current)

    return Arrivals(init, following)


def in_logged_order(windows: Windows, agent: Array) -> Array:
    """[T, W] int32 the step of an episode at which every logged request came, each window being a stream.

    Args:
        windows: As the episode's.
        agent: [T, W] of the requests in the order in which they came.
    """
    num_steps = windows.arrival_s.shape[0]
    valid = jnp.arange(num_steps)[:, None] < jnp.asarray(windows.length)[None]
    logged, played = (
        jnp.argsort(jnp.where(valid, leaf, jnp.iinfo(jnp.int32).max), axis=0, stable=True)
        for leaf in (jnp.asarray(windows.request.agent), agent)
    )
    column = jnp.broadcast_to(jnp.arange(logged.shape[1])[None], logged.shape)
    return jnp.zeros_like(logged).at[logged, column].set(played).astype(jnp.int32)


def reordered(tree: PyTree, order: Array) -> PyTree:
    """Leaves [T, ..., W] with the steps in this order, [T, W]."""

    def of(leaf: Array) -> Array:
        where = order.reshape(order.shape[0], *(1,) * (leaf.ndim - 2), order.shape[1])
        return jnp.take_along_axis(leaf, jnp.broadcast_to(where, leaf.shape), axis=0)

    return jax.tree.map(of, tree)


def _links(windows: Windows) -> tuple[Array, Array, Array, Array]:
    """[T, W] whether a request follows none in its window, which one follows it (T: none), whether it came after the
    end of the one it follows, and how long after that, or after that had come."""
    arrival_s, status = jnp.asarray(windows.arrival_s), jnp.asarray(windows.fate.status)
    num_steps = arrival_s.shape[0]
    step = _steps(arrival_s)
    last = step - jnp.asarray(windows.behind)
    follows = (step < jnp.asarray(windows.length)[None]) & (last < step) & (last >= 0)
    column = jnp.broadcast_to(jnp.arange(last.shape[1])[None], last.shape)
    following = jnp.full((num_steps + 1, last.shape[1]), num_steps, jnp.int32)
    following = following.at[jnp.where(follows, last, num_steps), column].set(
        jnp.broadcast_to(step, last.shape)
    )
    end_s = jnp.where(status == REJECTED, arrival_s, jnp.asarray(windows.fate.finish_s))
    came_s, ended_s = (jnp.take_along_axis(leaf, jnp.maximum(last, 0), axis=0) for leaf in (arrival_s, end_s))
    by_end = ended_s <= arrival_s
    return ~follows, following[:-1], by_end, arrival_s - jnp.where(by_end, ended_s, came_s)


def _awaiting(way: _Way, state: PlacementState, fate: Fate, pending: Pending) -> _Way:
    """With the time at which the agent of the request in hand comes again."""
    follower = at(way.log.following, way.current)
    here = (_steps(way.due_s) == follower[None]) & state.active[0][None]
    slot = pending.slot.reshape(1, *way.current.shape)
    finish_s = _finish_s(pending, slot, fate.finish_s)[0]
    end_s = jnp.where(fate.accepted[0] & jnp.isfinite(finish_s), finish_s, state.clock_s)
    end_s = jnp.maximum(end_s, state.clock_s)[None]
    by_end = here & way.log.by_end
    since_s = jnp.where(way.log.by_end, end_s, state.clock_s[None])
    return way._replace(
        due_s=jnp.where(here, since_s + way.log.think_s, way.due_s),
        end_s=jnp.where(by_end, end_s, way.end_s),
        slot=jnp.where(by_end, slot, way.slot),
    )


def _moved(way: _Way, state: PlacementState, pending: Pending) -> _Way:
    """With the ends of what is awaited as they are now: what was placed since may have put them off."""
    if pending.finish_s is None:
        return way
    held = jnp.isfinite(way.end_s) & (way.end_s > state.clock_s[None]) & (way.slot >= 0)
    end_s = jnp.where(held, _finish_s(pending, way.slot, way.end_s), way.end_s)
    moved = held & jnp.isfinite(end_s)
    return way._replace(
        due_s=jnp.where(moved, end_s + way.log.think_s, way.due_s),
        end_s=jnp.where(moved, end_s, way.end_s),
    )


def _finish_s(pending: Pending, slot: Array, drawn_s: Array) -> Array:
    """When what is filed at some slots ends; as drawn where fates do not move, and where nothing is filed."""
    if pending.finish_s is None:
        return drawn_s
    return pending.finish_s.reshape(-1).at[slot].get(mode="fill", fill_value=jnp.inf)


def _steps(leaf: Array) -> Array:
    """int32 [T, 1, ...] beside a leaf [T, *streams]."""
    return jnp.arange(leaf.shape[0], dtype=jnp.int32).reshape((-1,) + (1,) * (leaf.ndim - 1))
