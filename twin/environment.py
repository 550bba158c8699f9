"""Joins a Problem and a Response, and keeps every invariant between them.

Legality: an illegal action never reaches the problem; the first legal choice, or the nearest legal number, takes its
place and the transition marks it as `illegal`.
Ends: a stream that is done stays done. Its seats are inactive, its clock and what can be seen of it stand still; what a
Response keeps to itself may go on, and must not show.
Termination: an episode that ends for good is worth nothing after its last step. One that is cut short (truncated: the
system it models goes on) is bootstrapped from what was seen last.
Crediting: decisions are numbered `step * num_seats + seat`; outcomes come back under that number, however late.
"""

import jax
import jax.numpy as jnp

from twin.contracts import (
    Array,
    Environment,
    EnvironmentState,
    Problem,
    PyTree,
    Records,
    Response,
    Streams,
    Transition,
)
from twin.groups import by_group
from twin.legality import legalised


def beside(value: Array, other: Array) -> Array:
    """`value` [*streams] with leading axes of length one, so that it stands beside `other` [..., *streams]."""
    return value.reshape((1,) * (other.ndim - value.ndim) + value.shape)


def environment(problem: Problem, response: Response) -> Environment:
    """The environment in which `response` answers the decisions of `problem`."""

    def reset(key: Array, streams: Streams = ()) -> EnvironmentState:
        private, outcome = response.init(key, streams)
        done = outcome.terminated | outcome.truncated
        return EnvironmentState(problem.start(outcome), private, jnp.int32(0), done, outcome.terminated)

    def step(key: Array, state: EnvironmentState, action: PyTree) -> tuple[EnvironmentState, Transition]:
        legal, active = problem.legal(state.problem), problem.active(state.problem)
        pairs = by_group(problem, lambda _, taken, allowed: legalised(taken, allowed), action, legal)
        action = by_group(problem, lambda _, pair: pair[0], pairs)
        illegal = by_group(problem, lambda _, pair, acts: pair[1] & acts & ~state.done[None], pairs, active)
        decision_info = problem.decision_info(state.problem, action)
        private, outcome = response.advance(key, state.response, state.problem, action)
        elapsed_s = jnp.where(state.done, 0.0, outcome.elapsed_s)
        outcome = outcome._replace(elapsed_s=elapsed_s)
        terminated = outcome.terminated & ~state.done
        done = state.done | outcome.terminated | outcome.truncated
        decision = by_group(problem, lambda num_seats: _numbers(state, num_seats))
        public, left = problem.apply(state.problem, action, outcome, decision)
        if not problem.keeps_done:
            public = jax.tree.map(
                lambda old, new: jnp.where(beside(state.done, new), old, new), state.problem, public
            )
        left = by_group(problem, lambda _, records: _of_going(state, records), left)
        following = EnvironmentState(public, private, state.step + 1, done, state.terminated | terminated)
        return following, Transition(
            action, elapsed_s, terminated, done, illegal, decision_info, left, outcome.response_aux
        )

    def settle(state: EnvironmentState) -> Records:
        return problem.remaining(response.resolve_pending(state.response, state.problem))

    return Environment(problem, reset, step, settle)


def _numbers(state: EnvironmentState, num_seats: int) -> Array:
    """[seats, *streams] numbers of the decisions of a step; -1 in streams that are done."""
    seat = jnp.arange(num_seats, dtype=jnp.int32).reshape((-1,) + (1,) * state.done.ndim)
    return jnp.where(state.done[None], -1, state.step * num_seats + seat)


def _of_going(state: EnvironmentState, left: Records) -> Records:
    """Records without those of streams that were done before the step."""
    return left._replace(decision=jnp.where(beside(state.done, left.decision), -1, left.decision))
