"""Transitions: what learners from logs need of two decisions that follow each other in one seat.

A trajectory of T steps holds T - 1 of them in every stream. A decision whose outcome is not known, that the environment
had to replace, or after which the seat has nothing to decide, has no weight: nothing is made up for it. After one that
terminates its episode nothing is to be decided and nothing is earned: it counts, with a discount of zero.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from offline_rl.algorithm import choices_of, happened, num_streams_of, time_as_stream
from offline_rl.errors import TrainingError
from offline_rl.returns import elapsed_discount
from offline_rl.training_loop import Experience
from twin.contracts import Array, Policy, PyTree, Trajectory


class Transitions(NamedTuple):
    """Leaves [..., seats, T - 1, B]; what belongs to the following decision is called `next`."""

    observation: PyTree  # [..., seats, T - 1, B]
    legal: PyTree  # [choices, seats, T - 1, B]
    action: PyTree  # [seats, T - 1, B]
    reward: Array  # worth of the decision's own outcome, scaled as `transitions` describes
    discount: Array  # of the following decision, in [0, 1]; 0 where the episode has terminated
    weight: Array  # 1 where the transition counts, else 0
    next_observation: PyTree
    next_legal: PyTree


def transitions(trajectory: Trajectory, horizon_s: float, *, between: bool = False) -> Transitions:
    """The transitions of a trajectory.

    Rewards are scaled by the batch's mean of `1 - discount`, so that the value of earning a reward r at every decision
    is about r, whatever the horizon.

    Args:
        trajectory: Of one stream axis, T >= 2.
        horizon_s: Seconds after which a reward counts 1/e.
        between: Steps at which a seat has nothing to decide count, too, for learners that value them: where seats
            rarely decide twice in a row, few transitions would be left, and those of the busiest moments.

    Raises:
        TrainingError: There is no second step, or not exactly one stream axis.
    """
    num_streams_of(trajectory)
    if trajectory.active.shape[0] < 2:
        raise TrainingError("a trajectory of one step has no transition", allowed="two steps or more")
    observation, legal, action = choices_of(trajectory)
    reward = time_as_stream(trajectory.reward)
    active, settled, illegal = time_as_stream((trajectory.active, trajectory.settled, trajectory.illegal))
    terminated = trajectory.terminated[:-1]
    if between:
        counts = ((settled | ~active) & ~illegal)[..., :-1, :] & happened(trajectory)[None, :-1]
    else:
        counts = (active & settled & ~illegal)[..., :-1, :] & (active[..., 1:, :] | terminated[None])
    discount = elapsed_discount(trajectory.elapsed_s[:-1], horizon_s)
    discount = jnp.broadcast_to(discount[None], counts.shape)
    weight = counts.astype(jnp.float32)
    unit = jnp.sum((1.0 - discount) * weight) / jnp.maximum(jnp.sum(weight), 1.0)
    return Transitions(
        jax.tree.map(lambda leaf: leaf[..., :-1, :], observation),
        jax.tree.map(lambda leaf: leaf[..., :-1, :], legal),
        jax.tree.map(lambda leaf: leaf[..., :-1, :], action),
        reward[..., :-1, :] * unit,
        jnp.where(terminated[None], 0.0, discount),
        weight,
        jax.tree.map(lambda leaf: leaf[..., 1:, :], observation),
        jax.tree.map(lambda leaf: leaf[..., 1:, :], legal),
    )


def pairs_from_logs(trajectory: Trajectory, num_pairs: int) -> Experience:
    """Experience from logs: at every update `num_pairs` random pairs of consecutive steps, as a trajectory of two
    steps in `num_pairs` streams; drawn with replacement, the policy is ignored. Where an episode terminates with the
    last step, last steps are drawn too, followed by one at which nothing is decided.

    Raises:
        TrainingError: The trajectory has no two steps, or `num_pairs` is less than 1.
    """
    num_streams, num_steps = num_streams_of(trajectory), trajectory.active.shape[0]
    if num_steps < 2 or num_pairs < 1:
        raise TrainingError(
            f"cannot draw {num_pairs} pairs of steps from trajectories of {num_steps}",
            allowed="at least one pair, from at least two steps",
        )
    rows = _rows(trajectory)
    num_firsts = num_steps if np.any(trajectory.terminated[-1]) else num_steps - 1

    return Partial(_pairs_of(num_steps, num_streams, num_firsts, num_pairs), rows)


@cache  # a compiled loop knows its experience by this function
def _pairs_of(
    num_steps: int, num_streams: int, num_firsts: int, num_pairs: int
) -> Callable[[Trajectory, Array, Policy], Trajectory]:
    def draw(rows: Trajectory, key: Array, _policy: Policy) -> Trajectory:
        key_step, key_stream = jax.random.split(key)
        step = jax.random.randint(key_step, (num_pairs,), 0, num_firsts)
        stream = jax.random.randint(key_stream, (num_pairs,), 0, num_streams)

        def pair(leaf: Array, offsets: tuple[int, ...]) -> Array:
            rows = [jnp.minimum(step + offset, leaf.shape[1] - 1) for offset in offsets]
            return jnp.stack([jnp.moveaxis(leaf[stream, row], 0, -1) for row in rows])

        drawn = jax.tree.map(lambda leaf: pair(leaf, (0, 1)), rows._replace(global_observation=()))
        seen = jax.tree.map(lambda leaf: pair(leaf, (0, 1, 2)), rows.global_observation)
        is_step = jnp.stack([step >= 0, step + 1 < num_steps])[:, None]
        return drawn._replace(global_observation=seen, active=drawn.active & is_step)

    return draw


@jax.jit
def _rows(trajectory: Trajectory) -> Trajectory:
    """Leaves [T, ..., B] -> [B, T, ...], so that a step of a stream lies together in memory."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), trajectory)
