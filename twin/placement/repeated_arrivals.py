"""Arrivals from history whose repeats follow what fails in the episode, not what failed in the log.

Logged requests arrive in order and at their logged times, but for those that repeat a failed one.
Each request that fails in the episode is repeated with the log's chance, after a time drawn from an exponential
distribution; the copy asks for the same, and may fail and come again. So a policy under which less fails meets fewer
requests. An episode ends with the last logged request of its window; what would come later is not counted.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Streams
from twin.placement.repeats import is_failed
from twin.placement.responses import Arrivals, First, Next, Pending
from twin.placement.types import Fate, PlacementState, Repeats, Requests
from twin.placement.windows import Windows, asked, choose_windows, first_of, of_each, take

MOST_DUE = 16
"""Repeats that are due at once in a stream, at most; failures beyond are not repeated."""


class _Log(NamedTuple):
    """A stream's window."""

    arrival_s: Array  # [T, *streams]
    request: Requests  # leaves [..., T, *streams]
    following: Array  # [T, *streams] int32: the next logged request that repeats none; T after the last


class _Way(NamedTuple):
    """A stream's way through its window."""

    log: _Log
    current: Array  # [*streams] int32: the logged request that was decided on, or was repeated
    upcoming: Array  # [*streams] int32: the next logged request; T after the last
    due_s: Array  # [MOST_DUE, *streams] when repeats come; inf where there is none
    repeated: Array  # [MOST_DUE, *streams] int32: of which logged request


def repeated_arrivals(windows: Windows, repeats: Repeats) -> Arrivals:
    """The arrivals of some windows (`Windows.repeats`) in episodes of a twin."""

    def init(key: Array, streams: Streams) -> tuple[_Way, First]:
        window = choose_windows(key, windows.num_windows, streams)
        log = _Log(
            take(windows.arrival_s, window),
            take(windows.request, window),
            take(following_of(windows), window),
        )
        never, nothing = jnp.full((MOST_DUE, *streams), jnp.inf), jnp.zeros((MOST_DUE, *streams), jnp.int32)
        way = _Way(log, jnp.zeros(streams, jnp.int32), log.following[0], never, nothing)
        return way, first_of(windows, window, log.arrival_s[0], asked(log.request, way.current))

    def following(
        key: Array, way: _Way, state: PlacementState, fate: Fate, _pending: Pending
    ) -> tuple[_Way, Next]:
        way = _after(key, repeats, way, state, fate)
        num_steps = way.log.arrival_s.shape[0]
        done = way.upcoming >= num_steps
        logged_s = of_each(way.log.arrival_s, jnp.minimum(way.upcoming, num_steps - 1))
        first = jnp.argmin(way.due_s, axis=0)
        due_s = jnp.min(way.due_s, axis=0)
        comes_again = (due_s < logged_s) & ~done
        current = jnp.where(
            comes_again, of_each(way.repeated, first), jnp.minimum(way.upcoming, num_steps - 1)
        )
        clock_s = jnp.where(comes_again, jnp.maximum(due_s, state.clock_s), logged_s)
        clock_s = jnp.where(done, state.clock_s, clock_s)
        taken = comes_again[None] & (jnp.arange(MOST_DUE).reshape((-1,) + (1,) * first.ndim) == first[None])
        upcoming = jnp.where(comes_again | done, way.upcoming, of_each(way.log.following, current))
        way = way._replace(current=current, upcoming=upcoming, due_s=jnp.where(taken, jnp.inf, way.due_s))
        return way, Next(clock_s, asked(way.log.request, current), ~done[None], done)

    return Arrivals(init, following)


def following_of(windows: Windows) -> Array:
    """[T, W] int32 the next request of a window that repeats none; T after the last."""
    num_steps = windows.arrival_s.shape[0]
    step = jnp.arange(num_steps)[:, None]
    counts = ~jnp.asarray(windows.repeats) & (step < jnp.asarray(windows.length)[None])
    place = jnp.where(counts, step, num_steps)
    later = jax.lax.cummin(place, axis=0, reverse=True)
    last = jnp.full_like(later[:1], num_steps)
    return jnp.concatenate([later[1:], last]).astype(jnp.int32)


def _after(key: Array, repeats: Repeats, way: _Way, state: PlacementState, fate: Fate) -> _Way:
    """With the repeat that the request in hand draws if it fails."""
    uniforms = jax.random.uniform(key, (2, *way.current.shape), minval=1e-7)
    comes = state.active[0] & fate.accepted[0] & is_failed(fate.status[0]) & (uniforms[0] < repeats.chance)
    at_s = fate.finish_s[0] - repeats.delay_s * jnp.log(uniforms[1])
    free = jnp.argmax(jnp.isinf(way.due_s), axis=0)
    here = jnp.arange(MOST_DUE).reshape((-1,) + (1,) * free.ndim) == free[None]
    here &= comes[None] & jnp.isinf(way.due_s)
    return way._replace(
        due_s=jnp.where(here, at_s[None], way.due_s),
        repeated=jnp.where(here, way.current[None], way.repeated),
    )
