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
    worth: Callable[[Autoscaler, np.ndarray], np.ndarray],
    starts: np.ndarray,
    *,
    with_seats: bool,
) -> int:
    """The place of the best setting in a grid.

    Args:
        grid: The settings.
        make: Settings with leaves as `repeated` makes them -> autoscaler.
        worth: (autoscaler, [streams] first rows of its episodes) -> [streams] reward.
        starts: [episodes] first rows that every setting is tried on.
        with_seats: Whether settings stand beside seats.
    """
    found = worth(make(repeated(grid, len(starts), with_seats=with_seats)), np.tile(starts, len(grid)))
    return int(np.argmax(found.reshape(len(grid), len(starts)).mean(axis=1)))
