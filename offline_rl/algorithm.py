"""What a learning algorithm is: four pure functions, state in and state out."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.errors import TrainingError
from offline_rl.returns import elapsed_discount
from twin.contracts import Array, Policy, PyTree, Trajectory


class Algorithm(NamedTuple):
    """A learner. State holds what the next step needs, Info the metrics to display; Info never feeds back."""

    init: Callable[[Array], PyTree]  # key -> state
    # (key, state, trajectory of streams (B,)) -> state, info (scalars, finite while all is well)
    step: Callable[[Array, PyTree, Trajectory], tuple[PyTree, PyTree]]
    policy: Callable[[PyTree], Policy]  # state -> the policy to collect experience with
    greedy: Callable[[PyTree], Policy]  # state -> the policy to deploy


def num_streams_of(trajectory: Trajectory) -> int:
    """The number of streams `B` of a trajectory; learners need exactly one stream axis.

    Raises:
        TrainingError: The trajectory has no stream axis, or several.
    """
    streams = trajectory.elapsed_s.shape[1:]
    if len(streams) != 1:
        raise TrainingError(
            f"a trajectory with stream axes {streams} cannot be learned from",
            allowed="exactly one stream axis, (B,)",
            advice="roll out with streams=(B,), or reshape the stream axes into one",
        )
    return int(streams[0])


def time_as_stream(tree: PyTree) -> PyTree:
    """Moves time beside the stream axis: leaves [T, ..., B] -> [..., T, B].

    To a network time is one more stream axis, so a whole trajectory is one matrix product and nothing is
    mapped.
    """
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), tree)


def choices_of(trajectory: Trajectory) -> tuple[PyTree, PyTree, PyTree]:
    """Observation, legality and action of a trajectory, time as streams."""
    found: tuple[PyTree, PyTree, PyTree] = time_as_stream(
        (trajectory.observation, trajectory.legal, trajectory.action)
    )
    return found


def cut_short(trajectory: Trajectory) -> Array:
    """[T, *streams] bool: the episode was truncated with this step, and the clock has not moved since.

    What is observed next is then the same request once more, whose value already holds the reward of this step.
    """
    return trajectory.done & ~trajectory.terminated & (trajectory.elapsed_s <= 0.0)


def discount_of(trajectory: Trajectory, horizon_s: float) -> Array:
    """[T, *streams] the discount of what follows each step (`elapsed_discount`); 0 where the episode terminated."""
    return jnp.where(trajectory.terminated, 0.0, elapsed_discount(trajectory.elapsed_s, horizon_s))


def happened(trajectory: Trajectory) -> Array:
    """[T, *streams] bool: the step is of an episode, and no padding after its end."""
    return jnp.any(trajectory.active, axis=1) | (trajectory.elapsed_s > 0)


def minibatch_width(num_streams: int, num_minibatches: int) -> int:
    """Streams in each of so many equal minibatches; TrainingError where they cannot be equal."""
    if num_streams % num_minibatches:
        raise TrainingError(
            f"{num_streams} streams cannot be cut into {num_minibatches} equal minibatches",
            advice="choose a number of streams that is a multiple of num_minibatches",
        )
    return num_streams // num_minibatches
