"""Independent learners: each seat learns from its own rewards, by parameters that all seats share.

A team's reward is that of all its seats, and to each of them what the others earn is noise: the more so the more there
are. Where seats hardly touch each other, their own rewards teach with less of it. Source: de Witt et al. 2020 (IPPO).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm
from offline_rl.networks import Example
from twin.contracts import Array, PyTree, Trajectory


def independent(make: Callable[[Example], Algorithm], example: Example) -> Algorithm:
    """An algorithm that learns from every seat by itself.

    Args:
        make: Shapes of one seat, whose critic sees what the seat sees -> the algorithm. Its actor must serve any number
            of seats.
        example: Shapes of all seats.

    Returns:
        The algorithm, to be fed trajectories of all seats, of T >= 2 steps; the last one is only looked at.
    """
    one = make(_of_one(example))

    def step(key: Array, state: PyTree, trajectory: Trajectory) -> tuple[PyTree, PyTree]:
        return one.step(key, state, by_seat(trajectory))

    return one._replace(step=step)


def by_seat(trajectory: Trajectory) -> Trajectory:
    """Every seat of every stream as a stream of one seat, leaves [T - 1, ..., 1, seats * B].

    What the seat sees is the global observation, too, [T, ..., seats * B].
    """
    num_seats = trajectory.active.shape[1]

    def own(leaf: Array) -> Array:
        return leaf[:-1].reshape(len(leaf) - 1, *leaf.shape[1:-2], 1, -1)

    def shared(leaf: Array) -> Array:
        beside = jnp.broadcast_to(leaf[:-1, None], (len(leaf) - 1, num_seats, leaf.shape[-1]))
        return beside.reshape(len(leaf) - 1, -1)

    observation, legal, action = jax.tree.map(
        own, (trajectory.observation, trajectory.legal, trajectory.action)
    )
    seen = jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:-2], -1), trajectory.observation)
    return Trajectory(
        observation=observation,
        global_observation=seen,
        legal=legal,
        active=own(trajectory.active),
        action=action,
        reward=own(trajectory.reward),
        settled=own(trajectory.settled),
        decision_info=(),
        outcome=(),
        elapsed_s=shared(trajectory.elapsed_s),
        terminated=shared(trajectory.terminated),
        done=shared(trajectory.done),
        illegal=own(trajectory.illegal),
    )


def _of_one(example: Example) -> Example:
    """The shapes of one seat, as of `by_seat`."""

    def of_one(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*leaf.shape[:-1], 1), leaf.dtype)

    observation, legal = jax.tree.map(of_one, (example.observation, example.legal))
    seen = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype), observation)
    return Example(observation, legal, seen)
