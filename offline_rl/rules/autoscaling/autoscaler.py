"""The type of autoscalers: a memory, and a function from memory and current metrics to requested grants.

`follow` plays one in an application or in its twin. `learned` turns a policy into an autoscaler, which may change
grants by its own reach only; the rules of operators may go where they want at once.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.observing import observe
from twin.autoscaling.problem import action_towards, autoscaling_problem, legal_steps, rescaled
from twin.autoscaling.rewards import Reward, earned
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import DeploymentMetrics, GatewayMetrics, Grants
from twin.contracts import Array, Policy, PyTree, Response, Streams
from twin.environment import environment

FREE_REACH = 1e6
"""Reach, in steps, of autoscalers that are not bound to one."""


class Autoscaler(NamedTuple):
    """Decides what is granted."""

    init: Callable[[Grants], PyTree]  # grants, leaves [deployments, *streams] -> memory
    # (key, memory, state) -> memory, requested grants; of the state it reads the `known` metrics only
    decide: Callable[[Array, PyTree, ScalingState], tuple[PyTree, Grants]]


class Played(NamedTuple):
    """What came of an autoscaler; leaves [intervals, ...]."""

    grants: Grants  # leaves [intervals, deployments, *streams]
    measured: DeploymentMetrics
    gateway: GatewayMetrics
    reward: Array  # [intervals, deployments, *streams]
    asked: Array  # [intervals, *streams] bool: all grants that were asked for are numbers


def follow(
    key: Array,
    response: Response,
    config: AutoscalingConfig,
    limits: GrantLimits,
    autoscaler: Autoscaler,
    reward: Reward,
    num_steps: int,
    streams: Streams = (),
) -> Played:
    """Plays an autoscaler for `num_steps` intervals in every stream of a response.

    The response is to be that of `free_config(config)`: one with a dead zone would take small changes up one interval
    after they were granted.
    """
    free = free_config(config)
    system = environment(autoscaling_problem(free, limits, reward), response)
    key_reset, key_steps = jax.random.split(key)
    first = system.reset(key_reset, streams)

    def one(carry: tuple[PyTree, PyTree], key: Array) -> tuple[tuple[PyTree, PyTree], Played]:
        state, memory = carry
        key_decide, key_step = jax.random.split(key)
        memory, wanted = autoscaler.decide(key_decide, memory, state.problem)
        numbers = [jnp.isfinite(leaf) for leaf in wanted]  # some of one value for all streams
        asked = jnp.all(numbers[0] & numbers[1] & numbers[2], axis=0)
        action = action_towards(free, state.problem.grants, wanted)
        state, _ = system.step(key_step, state, action)
        events = jax.tree.map(lambda leaf: leaf[-1], state.problem.window)
        worth = reward(config, limits, state.problem.grants, earned(config, events))
        return (state, memory), Played(state.problem.grants, events.measured, events.gateway, worth, asked)

    begin = first, autoscaler.init(first.problem.grants)
    return jax.lax.scan(one, begin, jax.random.split(key_steps, num_steps))[1]


def free_config(config: AutoscalingConfig) -> AutoscalingConfig:
    """The configuration in which an action may lead anywhere, and small changes count."""
    return replace(config, reach=(FREE_REACH,) * 3, dead_zone=1e-3)


def free_limits(num_deployments: int) -> GrantLimits:
    """Limits within which every grant of a log lies."""
    return GrantLimits(*(jnp.full(num_deployments, value) for value in (0.0, 1e3, 0.0, 1e6, 0.0, 1e4)))


def learned(config: AutoscalingConfig, limits: GrantLimits, policy: Policy) -> Autoscaler:
    """A policy as an autoscaler."""

    def decide(key: Array, memory: PyTree, state: ScalingState) -> tuple[PyTree, Grants]:
        action = policy(key, observe(config, limits, state), legal_steps(config, state.grants))
        return memory, rescaled(config, limits, state.grants, action)

    return Autoscaler(lambda grants: (), decide)


def along(value: float | Array, like: Array) -> Array:
    """Values [deployments] or [] beside leaves [deployments, *streams]."""
    value = jnp.asarray(value)
    return value.reshape(value.shape + (1,) * (like.ndim - value.ndim)) if value.ndim else value
