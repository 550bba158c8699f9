"""Learners that take one step down the gradient of one loss for every trajectory, with or without a target network."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from offline_rl.algorithm import num_streams_of
from offline_rl.transitions import transitions
from offline_rl.values import polyak_update
from twin.contracts import Array, PyTree, Trajectory
from twin.descent import descend

Learner = tuple[Callable[[Array], Any], Callable[[Array, Any, Trajectory], tuple[Any, Any]]]
"""`init` and `step` as in `offline_rl.algorithm.Algorithm`."""


class ActorState(NamedTuple):
    """The state between updates of what learns an actor alone."""

    actor: PyTree
    optimizer: PyTree


class TargetState(NamedTuple):
    """The state between updates of what learns with a target network."""

    params: PyTree
    target: PyTree
    optimizer: PyTree


def actor_learner(
    init_actor: Callable[[Array], PyTree],
    loss_of: Callable[[PyTree, Trajectory], tuple[Array, Any]],
    optimizer: optax.GradientTransformation,
    info_of: Callable[[Any, PyTree], Any] = lambda found, _gradient: found,
) -> Learner:
    """Learns an actor by one loss.

    Args:
        init_actor: Key -> parameters of the actor.
        loss_of: (parameters, trajectory) -> loss, and what else was found.
        optimizer: Whose steps.
        info_of: (what else was found, gradient) -> metrics of the update.
    """

    def init(key: Array) -> ActorState:
        params = init_actor(key)
        return ActorState(params, optimizer.init(params))

    def step(_key: Array, state: ActorState, trajectory: Trajectory) -> tuple[ActorState, Any]:
        num_streams_of(trajectory)
        gradient, found = jax.grad(loss_of, has_aux=True)(state.actor, trajectory)
        info = info_of(found, gradient)
        return ActorState(*descend(optimizer, gradient, state.optimizer, state.actor)), info

    return init, step


def target_learner(
    init_params: Callable[[Array], PyTree],
    loss_of: Callable[[PyTree, PyTree, Any], tuple[Array, Any]],
    optimizer: optax.GradientTransformation,
    horizon_s: float,
    target_rate: float,
    followed: Callable[[PyTree], PyTree] = lambda params: params,
) -> Learner:
    """Learns from transitions by one loss, in which a slow copy of the parameters values what comes next.

    Args:
        init_params: Key -> parameters.
        loss_of: (parameters, target, transitions) -> loss, metrics of the update.
        optimizer: Whose steps.
        horizon_s: Seconds after which a reward counts 1/e.
        target_rate: Share of the way that the target goes in an update.
        followed: Parameters -> those of them that the target is a copy of.
    """

    def init(key: Array) -> TargetState:
        params = init_params(key)
        return TargetState(params, followed(params), optimizer.init(params))

    def step(_key: Array, state: TargetState, trajectory: Trajectory) -> tuple[TargetState, Any]:
        batch = transitions(trajectory, horizon_s)
        gradient, info = jax.grad(loss_of, has_aux=True)(state.params, state.target, batch)
        params, optimizer_state = descend(optimizer, gradient, state.optimizer, state.params)
        target = polyak_update(state.target, followed(params), target_rate)
        return TargetState(params, target, optimizer_state), info

    return init, step
