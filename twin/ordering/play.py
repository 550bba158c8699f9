"""Whole episodes without keeping what was seen: until every job has started, under a rule or a policy."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from twin.contracts import Array, Environment, EnvironmentState, Policy, Streams
from twin.ordering.config import Order
from twin.ordering.rows import best_row
from twin.ordering.states import PoolState

Choose = Callable[[Array, PoolState], Array]
"""(key, state) -> action [1, *streams]."""


def by_order(environment: Environment, order: Order) -> Choose:
    """Chooses the best visible job by an order of the whole queue, as a rule does; its key is not used."""
    legal = environment.problem.legal

    def choose(_key: Array, state: PoolState) -> Array:
        visible = legal(state)[:, 0]
        return best_row(order(state.queue, state.clock)[: visible.shape[0]], visible)[None]

    return choose


def by_policy(environment: Environment, policy: Policy) -> Choose:
    """Chooses as a policy does, from what it may see."""
    problem = environment.problem

    def choose(key: Array, state: PoolState) -> Array:
        action: Array = policy(key, problem.observe(state), problem.legal(state))
        return action

    return choose


def play(
    key: Array, environment: Environment, choose: Choose, streams: Streams, max_steps: int = 2**30
) -> EnvironmentState:
    """Plays until every stream is done.

    Args:
        key: PRNG key.
        environment: Of the ordering problem.
        choose: Who decides.
        streams: Shape of the independent copies.
        max_steps: Most decisions of a stream.

    Returns:
        How the episodes ended; `responses.starts_of` says who started when.
    """
    key_reset, key_steps = jax.random.split(key)

    def go_on(state: EnvironmentState) -> Array:
        return ~jnp.all(state.done) & (state.step < max_steps)

    def one(state: EnvironmentState) -> EnvironmentState:
        key_choose, key_step = jax.random.split(jax.random.fold_in(key_steps, state.step))
        return environment.step(key_step, state, choose(key_choose, state.problem))[0]

    return jax.lax.while_loop(go_on, one, environment.reset(key_reset, streams))


def actions_of(
    key: Array, environment: Environment, choose: Choose, num_steps: int, streams: Streams
) -> Array:
    """The actions [num_steps, 1, *streams] of an episode, for `twin.rollout.follow` with the same key.

    So a rule that looks at the whole state leaves a trajectory of what a policy would have seen: to be cloned.
    """
    key_reset, key_steps = jax.random.split(key)

    def one(state: EnvironmentState, key_step: Array) -> tuple[EnvironmentState, Array]:
        key_choose, key_response = jax.random.split(key_step)
        state, transition = environment.step(key_response, state, choose(key_choose, state.problem))
        return state, transition.action

    first = environment.reset(key_reset, streams)
    actions: Array = jax.lax.scan(one, first, jax.random.split(key_steps, num_steps))[1]
    return actions
