"""Settings of a rule, searched in a twin: all of a grid play under the same load, the best mean reward wins."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from offline_rl.rules.autoscaling.autoscaler import Autoscaler

Settings = TypeVar("Settings", bound=tuple[Any, ...])


def repeated(grid: Sequence[Settings], times: int, *, with_seats: bool) -> Settings:
    """The settings of a grid as one, leaves [grid * times] or, with seats, [1, grid * times]."""
    columns = [np.repeat(np.asarray(column, np.float32), times) for column in zip(*grid, strict=True)]
    return type(grid[0])(*(jnp.asarray(one[None] if with_seats else one) for one in columns))


def calibrated(
    grid: Sequence[Settings],
    make: Callable[[Settings], Autoscaler],
    gains: Callable[[Autoscaler], np.ndarray],
    num_episodes: int,
    *,
    with_seats: bool,
) -> Settings:
    """The best setting of a grid.

    Args:
        grid: The settings.
        make: Settings with leaves as `repeated` makes them -> autoscaler.
        gains: Autoscaler of all the grid -> [settings, episodes] what it gains.
        num_episodes: That every setting is tried on.
        with_seats: Whether settings stand beside seats.
    """
    found = gains(make(repeated(grid, num_episodes, with_seats=with_seats)))
    return grid[int(np.argmax(found.mean(axis=1)))]
