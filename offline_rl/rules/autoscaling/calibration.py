"""Settings of a rule, searched in a twin: all of a grid play under the same load, the best mean reward wins."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.rules.autoscaling.autoscaler import Autoscaler, follow
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.rewards import Reward
from twin.contracts import Array, Response

Settings = TypeVar("Settings", bound=tuple[Any, ...])


def repeated(grid: Sequence[Settings], times: int, *, with_seats: bool) -> Settings:
    """The settings of a grid as one, leaves [grid * times] or, with seats, [1, grid * times]."""
    columns = [np.repeat(np.asarray(column, np.float32), times) for column in zip(*grid, strict=True)]
    return type(grid[0])(*(jnp.asarray(one[None] if with_seats else one) for one in columns))


def calibrated(
    key: Array,
    respond: Callable[[np.ndarray], Response],
    starts: np.ndarray,
    config: AutoscalingConfig,
    limits: GrantLimits,
    make: Callable[[Any], Autoscaler],
    grid: Sequence[Settings],
    reward: Reward,
    num_steps: int,
    *,
    with_seats: bool,
) -> tuple[Settings, np.ndarray]:
    """The best setting and the mean reward [grid] of each.

    Args:
        key: Of the twin's chance.
        respond: First rows of episodes -> response of the twin.
        starts: [episodes] first rows that every setting is tried on.
        config: When decisions are taken.
        limits: Of the grants.
        make: Settings with leaves as `repeated` makes them -> autoscaler.
        grid: The settings.
        reward: What counts.
        num_steps: Intervals of an episode.
        with_seats: Whether settings stand beside seats.
    """
    response = respond(np.tile(starts, len(grid)))
    autoscaler = make(repeated(grid, len(starts), with_seats=with_seats))
    streams = (len(grid) * len(starts),)

    @jax.jit
    def play(key: Array) -> Array:
        played = follow(key, response, config, limits, autoscaler, reward, num_steps, streams)
        return jnp.mean(jnp.sum(played.reward, axis=1), axis=0)

    worth = np.asarray(play(key)).reshape(len(grid), len(starts)).mean(axis=1)
    return grid[int(np.argmax(worth))], worth
