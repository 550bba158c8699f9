"""Arrivals from history of agents that await their answers: each thinks, from the end of its last request, as logged.

    due = max(now, end of the agent's last request in the episode + how long after its end the next one came in the log)

(so many seconds before it where that overlapped it). An agent's first request of a window comes at its logged time. So
the requests, their order for every agent, and think times are those of the log; when they come, and the order among
agents, is the episode's (`twin.placement.think_times`).

An agent that has sent all its requests of the window begins with its first again, for it goes on in the log, too: else
the system would empty before the window ends. The episode ends after as many requests as the window holds.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree, Streams
from twin.placement.responses import Arrivals, First, Next, Pending
from twin.placement.types import Fate, PlacementState, Requests
from twin.placement.windows import Windows, asked, choose_windows, first_of, of_each, replayed_arrivals, take

Played = TypeVar("Played", bound=Any)
"""A named tuple."""


class _AgentsWindow(NamedTuple):
    """A stream's window."""

    length: Array  # [*streams]
    request: Requests  # leaves [..., T, *streams]
    following: Array  # [T, *streams] int32: the next request of the agent, the first after the last; T where it hides
    think_s: Array  # [T, *streams] from a request's end until its agent comes again; inf where it does not


class _AgentsWay(NamedTuple):
    """A stream's way through its window; of requests what is known from when their agent's last one came on."""

    log: _AgentsWindow
    number: Array  # [] int32: how many requests have come
    current: Array  # [*streams] int32: the request in hand
    due_s: Array  # [T, *streams] when each comes; inf where it has come, and where that is not known yet
    end_s: Array  # [T, *streams] when what it awaits ends; inf where it awaits nothing
    lag_s: Array  # [T, *streams] how long after that it comes
    slot: Array  # [T, *streams] int32: where that is kept


def arrivals_of(windows: Windows, *, in_place: Array | bool = False) -> Arrivals:
    """The arrivals of some windows in episodes of a twin: at their logged times, or as agents await their answers where
    the log shows that they do (`Windows.think_s`); `in_place` as of `awaited_arrivals`."""
    if windows.think_s is None:
        return replayed_arrivals(windows)
    return awaited_arrivals(windows, in_place=in_place)


def awaited_arrivals(windows: Windows, *, in_place: Array | bool = False) -> Arrivals:
    """The arrivals of some windows (`Windows.think_s`) in episodes of a twin.

    Args:
        windows: The logged requests.
        in_place: [] bool: all come at their logged times, as under logged decisions with logged answers.
    """

    def init(key: Array, streams: Streams) -> tuple[_AgentsWay, First]:
        window = choose_windows(key, windows.num_windows, streams)
        is_first, following = take(_links(windows), window)
        arrival_s, length, think_s = take((windows.arrival_s, windows.length, windows.think_s), window)
        comes = (is_first | in_place) & (_steps(arrival_s) < length[None])
        due_s = jnp.where(comes, arrival_s, jnp.inf).at[0].set(jnp.inf)
        following = jnp.where(in_place, arrival_s.shape[0], following)
        log = _AgentsWindow(length, take(windows.request, window), following, think_s)
        nothing, nowhere = jnp.full_like(due_s, jnp.inf), jnp.full(due_s.shape, -1, jnp.int32)
        current = jnp.zeros(streams, jnp.int32)
        way = _AgentsWay(log, jnp.int32(1), current, due_s, nothing, nothing, nowhere)
        return way, first_of(windows, window, arrival_s[0], asked(log.request, current))

    def following(
        _key: Array, way: _AgentsWay, state: PlacementState, fate: Fate, pending: Pending
    ) -> tuple[_AgentsWay, Next]:
        way = _awaiting(_moved(way, state, pending), state, fate, pending)
        due_s = jnp.min(way.due_s, axis=0)
        done = jnp.isinf(due_s) | (way.number >= way.log.length)
        current = jnp.where(done, way.current, _first_at(way.due_s, due_s))
        clock_s = jnp.where(done, state.clock_s, jnp.maximum(due_s, state.clock_s))
        due_s = _put(way.due_s, current, jnp.full_like(clock_s, jnp.inf))
        way = way._replace(number=way.number + 1, current=current, due_s=due_s)
        return way, Next(clock_s, asked(way.log.request, current), ~done[None], done, current)

    return Arrivals(init, following)


def in_logged_order(windows: Windows, agent: Array, active: Array) -> tuple[Array, Array]:
    """[T, W] int32 the step of an episode at which every logged request came first, each window being a stream, and
    whether it came at all.

    Args:
        windows: As the episode's.
        agent: [T, W] of the requests in the order in which they came.
        active: [T, W] bool: whether one came at a step.
    """

    def one(logged: Array, length: Array, played: Array, active: Array) -> tuple[Array, Array]:
        step = jnp.arange(len(logged))
        labels = jnp.where(step < length, logged, _BEYOND), jnp.where(active, played, _BEYOND)
        mine, theirs = (jnp.argsort(each, stable=True) for each in labels)
        of_agent, came = labels[0][mine], labels[1][theirs]
        nth = step - jnp.searchsorted(of_agent, of_agent)
        place = jnp.searchsorted(came, of_agent) + nth
        has_come = (place < jnp.searchsorted(came, of_agent, side="right")) & (of_agent < _BEYOND)
        first = jnp.zeros(len(logged), jnp.int32).at[mine]
        found = first.set(theirs[jnp.minimum(place, len(logged) - 1)].astype(jnp.int32))
        return found, jnp.zeros(len(logged), bool).at[mine].set(has_come)

    logged, length = jnp.asarray(windows.request.agent), jnp.asarray(windows.length)
    return jax.vmap(one, (1, 0, 1, 1), 1)(logged, length, agent, active)


def as_in_log(windows: Windows, played: Played) -> Played:
    """What was played with `arrivals_of` in the order of the log, a window a stream; what has not come is not active.

    Args:
        windows: As the episode's.
        played: With `decision_info` and `active` of a `Trajectory`; leaves [T, ..., seats, W].
    """
    if windows.think_s is None:
        return played
    order, has_come = in_logged_order(windows, played.decision_info.agent[:, 0], played.active[:, 0])
    found: Played = reordered(played, order)
    return found._replace(active=found.active & has_come[:, None])


def reordered(tree: PyTree, order: Array) -> PyTree:
    """Leaves [T, ..., W] with the steps in this order, [T, W]."""

    def of(leaf: Array) -> Array:
        where = order.reshape(order.shape[0], *(1,) * (leaf.ndim - 2), order.shape[1])
        return jnp.take_along_axis(leaf, jnp.broadcast_to(where, leaf.shape), axis=0)

    return jax.tree.map(of, tree)


_BEYOND = jnp.iinfo(jnp.int32).max


def _links(windows: Windows) -> tuple[Array, Array]:
    """[T, W] whether a request is its agent's first of the window, and which one follows it."""

    def one(agent: Array, length: Array) -> tuple[Array, Array]:
        num, step = len(agent), jnp.arange(len(agent), dtype=jnp.int32)
        hides = agent < 0
        label = jnp.where(step < length, agent, _BEYOND)
        order = jnp.argsort(label, stable=True).astype(jnp.int32)
        of_agent = label[order]
        begin = jnp.searchsorted(of_agent, of_agent)
        goes_on = jnp.append(of_agent[1:] == of_agent[:-1], False)
        later = jnp.where(goes_on, order[jnp.minimum(step + 1, num - 1)], order[begin])
        following = jnp.zeros(num, jnp.int32).at[order].set(later)
        is_first = jnp.zeros(num, bool).at[order].set(begin == step)
        return is_first | hides, jnp.where(hides, num, following)

    agent, length = jnp.asarray(windows.request.agent), jnp.asarray(windows.length)
    return jax.vmap(one, (1, 0), 1)(agent, length)


def _awaiting(way: _AgentsWay, state: PlacementState, fate: Fate, pending: Pending) -> _AgentsWay:
    """With the time at which the agent of the request in hand comes again."""
    follower, lag_s = (of_each(leaf, way.current) for leaf in (way.log.following, way.log.think_s))
    follower = jnp.where(state.active[0], follower, way.due_s.shape[0])
    slot = pending.slot.reshape(lag_s.shape)
    finish_s = _finish_s(pending, slot, fate.finish_s[0])
    end_s = jnp.where(fate.accepted[0] & jnp.isfinite(finish_s), finish_s, state.clock_s)
    return way._replace(
        due_s=_put(way.due_s, follower, jnp.maximum(end_s + lag_s, state.clock_s)),
        end_s=_put(way.end_s, follower, end_s),
        lag_s=_put(way.lag_s, follower, lag_s),
        slot=_put(way.slot, follower, slot),
    )


def _moved(way: _AgentsWay, state: PlacementState, pending: Pending) -> _AgentsWay:
    """With the ends of what is awaited as they are now: what was placed since may have put them off."""
    if pending.finish_s is None:
        return way
    held = jnp.isfinite(way.end_s) & (way.end_s > state.clock_s[None]) & (way.slot >= 0)
    end_s = jnp.where(held, _finish_s(pending, way.slot, way.end_s), way.end_s)
    moved = held & jnp.isfinite(end_s) & jnp.isfinite(way.due_s)
    return way._replace(
        due_s=jnp.where(moved, jnp.maximum(end_s + way.lag_s, state.clock_s[None]), way.due_s),
        end_s=jnp.where(moved, end_s, way.end_s),
    )


def _first_at(leaf: Array, value: Array) -> Array:
    """int32 [*streams] the first step at which a leaf [T, *streams] has a value; `argmin` takes seven times as long."""
    num_steps = leaf.shape[0]
    return jnp.min(jnp.where(leaf == value[None], _steps(leaf), num_steps - 1), axis=0)


def _put(leaf: Array, step: Array, value: Array) -> Array:
    """A leaf [T, *streams] with a value [*streams] at every stream's step, in place; steps beyond it hold nothing."""
    stream = jnp.arange(step.size, dtype=jnp.int32)
    flat = leaf.reshape(leaf.shape[0], -1).at[step.reshape(-1), stream]
    return flat.set(value.reshape(-1), mode="drop", unique_indices=True).reshape(leaf.shape)


def _finish_s(pending: Pending, slot: Array, drawn_s: Array) -> Array:
    """When what is filed at some slots ends; as drawn where fates do not move."""
    if pending.finish_s is None:
        return drawn_s
    return pending.finish_s.reshape(-1).at[slot].get(mode="fill", fill_value=jnp.inf)


def _steps(leaf: Array) -> Array:
    """int32 [T, 1, ...] beside a leaf [T, *streams]."""
    return jnp.arange(leaf.shape[0], dtype=jnp.int32).reshape((-1,) + (1,) * (leaf.ndim - 1))
