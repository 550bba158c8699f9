"""Whole episodes without keeping what was seen: until every job has started, under a rule or a policy."""

from collections.abc import Callable

from twin.contracts import Array, Environment, EnvironmentState, Policy, Streams
from twin.ordering.problem import Order
from twin.ordering.states import PoolState

Choose = Callable[[Array, PoolState], Array]
"""(key, state) -> action [1, *streams]."""


def by_order(order: Order) -> Choose:
    """Chooses the best visible job by an order of the whole queue, as a rule does."""
    raise NotImplementedError


def by_policy(environment: Environment, policy: Policy) -> Choose:
    """Chooses as a policy does, from what it may see."""
    raise NotImplementedError


def play(
    key: Array, environment: Environment, choose: Choose, streams: Streams, max_steps: int = 10**9
) -> EnvironmentState:
    """Plays until every stream is done and returns how it ended; `responses.starts_of` says who started when."""
    raise NotImplementedError


def actions_of(
    key: Array, environment: Environment, choose: Choose, num_steps: int, streams: Streams
) -> Array:
    """The actions [num_steps, 1, *streams] of an episode, for `twin.rollout.follow` with the same key."""
    raise NotImplementedError
