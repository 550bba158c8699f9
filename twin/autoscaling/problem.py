"""The decision: by how much each deployment's cores, memory and replicas change. Exact bookkeeping, no chance.

A seat is a deployment. Its action (cores, memory, replicas) is counted in steps; within the dead zone nothing changes,
beyond it

    cores    += step * action        memory += step * action        replicas += action, rounded to the nearest number

(paper DRPC, algorithm 2; the printed ceiling of a negative action would never remove a replica, so actions are rounded
alike in both directions). What leaves the limits is cut off there; a deployment whose least number of replicas is 0
may be switched off, which is the paper's brownout. Metrics are known `delay_intervals` after their interval.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.observing import observe, observe_global
from twin.autoscaling.rewards import Earned, Reward, earned
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import Grants
from twin.contracts import Array, Interval, Outcome, Problem, PyTree, Records


class ScalingAction(NamedTuple):
    """Changes in steps; leaves [deployments, *streams]."""

    cpu: PyTree  # an array; in a legality an `Interval`
    memory: PyTree
    replicas: PyTree


def legal_steps(config: AutoscalingConfig, grants: Grants) -> ScalingAction:
    """The legality of actions: intervals of the configuration's reach."""
    ones = jnp.ones_like(grants.replicas)
    return ScalingAction(*(Interval(-reach * ones, reach * ones) for reach in config.reach))


def rescaled(config: AutoscalingConfig, limits: GrantLimits, grants: Grants, action: ScalingAction) -> Grants:
    """What deployments are granted after an action."""

    def beyond(steps: Array) -> Array:
        return jnp.where(jnp.abs(steps) > config.dead_zone, steps, 0.0)

    def cut(value: Array, low: Array, high: Array) -> Array:
        shape = (-1,) + (1,) * (value.ndim - 1)
        return jnp.clip(value, low.reshape(shape), high.reshape(shape))

    cores = grants.cpu_cores + config.cpu_step_cores * beyond(action.cpu)
    memory = grants.memory_gib + config.memory_step_gib * beyond(action.memory)
    steps = beyond(action.replicas)
    replicas = grants.replicas + jnp.sign(steps) * jnp.floor(jnp.abs(steps) + 0.5)
    return Grants(
        cut(cores, limits.min_cpu_cores, limits.max_cpu_cores),
        cut(memory, limits.min_memory_gib, limits.max_memory_gib),
        cut(replicas, limits.min_replicas, limits.max_replicas),
    )


def action_towards(config: AutoscalingConfig, grants: Grants, wanted: Grants) -> ScalingAction:
    """The action that leads from `grants` to what is wanted, as far as dead zone and reach allow."""
    return ScalingAction(
        (wanted.cpu_cores - grants.cpu_cores) / config.cpu_step_cores,
        (wanted.memory_gib - grants.memory_gib) / config.memory_step_gib,
        wanted.replicas - grants.replicas,
    )


def autoscaling_problem(config: AutoscalingConfig, limits: GrantLimits, reward: Reward) -> Problem:
    """The bookkeeping of an application whose deployments stand in the order of `limits`."""
    num_deployments = int(limits.max_replicas.shape[0])

    def start(outcome: Outcome) -> ScalingState:
        events = outcome.observed_events
        window = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (config.window, *leaf.shape)), events)
        return ScalingState(events.grants, window)

    def apply(
        state: ScalingState, action: ScalingAction, outcome: Outcome, decision: Array
    ) -> tuple[ScalingState, Records]:
        window = jax.tree.map(
            lambda past, new: jnp.concatenate([past[1:], new[None]]), state.window, outcome.observed_events
        )
        grants = rescaled(config, limits, state.grants, action)
        return ScalingState(grants, window), Records(
            decision, decision >= 0, earned(config, outcome.observed_events)
        )

    def remaining(state: ScalingState) -> Records:
        none = jnp.full((1, *state.grants.replicas.shape[1:]), -1, jnp.int32)
        nothing = Earned(*(jnp.zeros(none.shape),) * len(Earned._fields))
        return Records(none, none >= 0, nothing)

    return Problem(
        num_seats=num_deployments,
        start=start,
        observe=lambda state: observe(config, limits, state),
        observe_global=lambda state: observe_global(config, limits, state),
        legal=lambda state: legal_steps(config, state.grants),
        active=lambda state: jnp.ones(state.grants.replicas.shape, bool),
        apply=apply,
        remaining=remaining,
        decision_info=lambda state, action: rescaled(config, limits, state.grants, action),
        reward=lambda grants, outcome: reward(config, limits, grants, outcome),
    )
