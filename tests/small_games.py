"""Games of a few states whose decisions settle at once, and whose best policies follow from a line of algebra.

The response holds the state, shows all of it, and says what every seat has earned in the step.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import (
    Array,
    Environment,
    Given,
    Interval,
    Outcome,
    Problem,
    PyTree,
    Records,
    Response,
    Streams,
)
from twin.environment import environment

STEP_S = 1.0


class Shown(NamedTuple):
    """What a step of a game shows."""

    state: PyTree  # leaves [..., *streams]
    earned: Array  # [seats, *streams] in the step before


def game(num_seats: int, observe: Callable[[PyTree], PyTree], legal: Callable[[PyTree], PyTree]) -> Problem:
    """The bookkeeping of a game: its state is what was shown last, and everybody decides at every step."""

    def records(decision: Array, earned: Array) -> Records:
        return Records(decision, decision >= 0, earned)

    def active(state: Shown) -> Array:
        return jnp.ones(state.earned.shape, bool)

    return Problem(
        num_seats=num_seats,
        start=lambda outcome: outcome.observed_events,
        observe=lambda shown: observe(shown.state),
        observe_global=lambda shown: shown.state,
        legal=lambda shown: legal(shown.state),
        active=active,
        apply=lambda _shown, _action, outcome, decision: (
            outcome.observed_events,
            records(decision, outcome.observed_events.earned),
        ),
        remaining=lambda shown: records(jnp.full(shown.earned.shape, -1, jnp.int32), shown.earned),
        decision_info=lambda _shown, _action: (),
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


def one_step(
    draw: Callable[[Array, Streams], PyTree], problem: Problem, pays: Callable[[PyTree, PyTree], Array]
) -> Environment:
    """A game whose states are drawn afresh at every step, whatever was decided. `pays`: (state, action) -> by seat."""

    def init(key: Array, streams: Streams) -> tuple[tuple[()], Outcome]:
        no, zero = jnp.zeros(streams, bool), jnp.zeros(streams)
        earned = jnp.zeros((problem.num_seats, *streams))
        return (), Outcome(zero, no, no, Shown(draw(key, streams), earned))

    def advance(key: Array, _private: tuple[()], shown: Shown, action: PyTree) -> tuple[tuple[()], Outcome]:
        streams = shown.earned.shape[1:]
        no, elapsed_s = jnp.zeros(streams, bool), jnp.full(streams, STEP_S)
        return (), Outcome(elapsed_s, no, no, Shown(draw(key, streams), pays(shown.state, action)))

    return environment(problem, Response(init, advance, lambda _private, state: state))


CEILING = 2.5
NUM_GRADES = 3


def dosing() -> Environment:
    """A number and a choice: the amount wanted [1, *streams] is seen, in (1, 3), but at most `CEILING` may be given,
    and the grade must be that of the amount wanted. A second seat's interval is the number 1: it has nothing to decide.

    Best is `best_dose`: it pays minus the mean square of what is wanted beyond the ceiling, 1 / 48.
    """

    def seats(one: Array, other: float) -> Array:
        return jnp.stack([one, jnp.full(one.shape, other)])

    def legal(wanted: Array) -> PyTree:
        low = jnp.stack([jnp.zeros(wanted.shape[1:]), jnp.ones(wanted.shape[1:])])
        grades = jnp.ones((NUM_GRADES, 2, *wanted.shape[1:]), bool)
        return {"amount": Interval(low, seats(jnp.full(wanted.shape[1:], CEILING), 1.0)), "grade": grades}

    def pays(wanted: Array, action: PyTree) -> Array:
        best = best_dose(wanted)
        wrong = (action["grade"][0] != best["grade"][0]).astype(jnp.float32)
        return seats(-((action["amount"][0] - wanted[0]) ** 2) - wrong, 0.0)

    def observe(wanted: Array) -> PyTree:
        which = jnp.broadcast_to(
            jnp.eye(2).reshape((2, 2) + (1,) * (wanted.ndim - 1)), (2, 2, *wanted.shape[1:])
        )
        return {"wanted": jnp.broadcast_to(wanted[:, None] - 2.0, (1, 2, *wanted.shape[1:])), "seat": which}

    def draw(key: Array, streams: Streams) -> Array:
        return jax.random.uniform(key, (1, *streams), minval=1.0, maxval=3.0)

    return one_step(draw, game(2, observe, legal), pays)


def best_dose(wanted: Array) -> PyTree:
    """The best action of the first seat; leaves [1, *streams]."""
    grade = jnp.clip(((wanted - 1.0) * NUM_GRADES / 2.0).astype(jnp.int32), 0, NUM_GRADES - 1)
    return {"amount": jnp.minimum(wanted, CEILING), "grade": grade}


NUM_KINDS, NUM_FIRST, NUM_SECOND = 4, 3, 3
WORTH = np.random.default_rng(5).normal(size=(NUM_KINDS, NUM_FIRST, NUM_SECOND)).astype(np.float32)
"""Of a pair of choices, in a state of each kind."""
ALLOWED = np.array([[True, False, True], [True, True, False], [False, True, True]])
"""[first, second]"""


def pairing() -> Environment:
    """Two choices, of which the first says what the second may be: they pay `WORTH` of the kind of state seen."""

    def legal(kind: Array) -> PyTree:
        streams = kind.shape[1:]
        table = jnp.asarray(ALLOWED.T).reshape((NUM_SECOND, NUM_FIRST, 1) + (1,) * len(streams))
        table = jnp.broadcast_to(table, (NUM_SECOND, NUM_FIRST, 1, *streams))
        return {"first": jnp.ones((NUM_FIRST, 1, *streams), bool), "second": Given(table)}

    def pays(kind: Array, action: PyTree) -> Array:
        return jnp.asarray(WORTH)[jnp.argmax(kind, axis=0)[None], action["first"], action["second"]]

    def draw(key: Array, streams: Streams) -> Array:
        kind = jax.random.randint(key, streams, 0, NUM_KINDS)
        return jnp.moveaxis(jax.nn.one_hot(kind, NUM_KINDS), -1, 0)

    return one_step(draw, game(1, lambda kind: kind[:, None], legal), pays)
