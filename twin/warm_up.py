"""Episodes that begin in the middle of things: a system that has run for a while before decisions count."""

from collections.abc import Callable

import jax

from twin.contracts import Array, Environment, EnvironmentState, PyTree, Streams

BEFORE = 1_000_000
"""Number of the first step of a warm-up: decisions are numbered by steps, and no trajectory is so long."""


def warmed(
    system: Environment, decide: Callable[[Array, PyTree, PyTree], PyTree], num_steps: int
) -> Environment:
    """The same system, whose episodes begin after `num_steps` steps of another policy.

    Its decisions may still be under way when an episode begins; their outcomes are not credited.

    Args:
        system: The system.
        decide: (key, the problem's state, legal) -> action, in the warm-up.
        num_steps: How long that is, >= 0.
    """

    def one(state: EnvironmentState, key: Array) -> tuple[EnvironmentState, None]:
        key_decide, key_step = jax.random.split(key)
        action = decide(key_decide, state.problem, system.problem.legal(state.problem))
        return system.step(key_step, state, action)[0], None

    def reset(key: Array, streams: Streams = ()) -> EnvironmentState:
        key_reset, key_steps = jax.random.split(key)
        state = system.reset(key_reset, streams)
        state = state._replace(step=state.step + BEFORE)
        state, _ = jax.lax.scan(one, state, jax.random.split(key_steps, num_steps))
        return state._replace(step=state.step - (BEFORE + num_steps))

    return system._replace(reset=reset)
