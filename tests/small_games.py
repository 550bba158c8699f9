"""Games of a few states whose decisions settle at once, and whose best policies follow from a line of algebra.

The response holds the state, shows all of it, and says what every seat has earned in the step.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from twin.contracts import Array, Environment, Outcome, Problem, PyTree, Records, Response, Streams
from twin.environment import environment

STEP_S = 1.0


class Shown(NamedTuple):
    """What a step of a game shows."""

    state: PyTree  # leaves [..., *streams]
    earned: Array  # [seats, *streams] in the step before


def game(
    num_seats: int,
    observe: Callable[[PyTree], PyTree],
    legal: Callable[[PyTree], PyTree],
) -> Problem:
    """The bookkeeping of a game: its state is what was shown last, and everybody decides at every step."""

    def records(decision: Array, earned: Array) -> Records:
        return Records(decision, decision >= 0, earned)

    def active(state: Shown) -> Array:
        return jnp.ones(state.earned.shape, bool)

    return Problem(
        num_seats=num_seats,
        start=lambda outcome: outcome.news,
        observe=lambda shown: observe(shown.state),
        observe_global=lambda shown: shown.state,
        legal=lambda shown: legal(shown.state),
        active=active,
        apply=lambda _shown, _action, outcome, decision: (
            outcome.news,
            records(decision, outcome.news.earned),
        ),
        remaining=lambda shown: records(jnp.full(shown.earned.shape, -1, jnp.int32), shown.earned),
        facts=lambda _shown, _action: (),
        reward=lambda _facts, earned: earned,
    )


GO_PAYS = 0.5
"""With a discount of 0.9 going on for ever is worth 5; a stop that pays 1 is worth 1 or 10."""


def stopping(*, ends: bool, stop_pays: float = 1.0) -> Environment:
    """One state, two choices: 0 stops and pays, 1 goes on and pays `GO_PAYS`.

    Args:
        ends: A stop terminates the episode: nothing follows. Otherwise the episode is cut short there, and what it
            models goes on as it was: to stop is best. In both cases the stream is done, and what is seen is the same.
        stop_pays: What a stop pays.
    """

    def init(_key: Array, streams: Streams) -> tuple[tuple[()], Outcome]:
        no, zero = jnp.zeros(streams, bool), jnp.zeros(streams)
        return (), Outcome(zero, no, no, Shown(jnp.ones((1, *streams)), zero[None]))

    def advance(_key: Array, _private: tuple[()], shown: Shown, action: Array) -> tuple[tuple[()], Outcome]:
        stops = action[0] == 0
        no, earned = jnp.zeros_like(stops), jnp.where(stops, stop_pays, GO_PAYS)
        over = (stops, no) if ends else (no, stops)
        return (), Outcome(jnp.full(stops.shape, STEP_S), *over, shown._replace(earned=earned[None]))

    problem = game(
        num_seats=1,
        observe=lambda one: one[:, None],
        legal=lambda one: jnp.ones((2, 1, *one.shape[1:]), bool),
    )
    return environment(problem, Response(init, advance, lambda _private, state: state))
