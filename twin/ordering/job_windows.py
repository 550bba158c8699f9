"""Windows of jobs as arrays, `W` at a time: the arrivals of replay, or of a generator that draws whole windows at once.

A window begins at tick 0 with what ran and waited at that moment and with the users' history up to then.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from twin.contracts import Array
from twin.ordering.arrivals import Arrivals
from twin.ordering.problem import OrderingConfig
from twin.ordering.states import Asked, Leaf, Running, Users
from twin.ordering.types import Jobs, Pool


class JobWindows(NamedTuple):
    """`W` windows of at most `N` jobs; all times in ticks since the window began."""

    asked: Asked  # leaves [N, W], in order of arrival; below 0: waits already
    run: Leaf  # [N, W] int32 ticks: the true run times
    length: Leaf  # [W] int32: jobs in the window; the rest is padding
    running: Running  # leaves [rows, W]: what runs when the window begins
    end: Leaf  # [rows, W] int32 ticks: when it will end
    users: Users  # leaves [num_agents, W]
    week: Leaf  # [W] int32: ticks from Monday 00:00 to the beginning


DrawWindows = Callable[[Array, int], JobWindows]
"""(key, number of windows) -> windows, as JAX arrays."""


def cut_job_windows(
    jobs: Jobs,
    pool: Pool,
    config: OrderingConfig,
    start_s: np.ndarray,
    spans_s: np.ndarray,
    *,
    priority: np.ndarray | None = None,
) -> tuple[JobWindows, np.ndarray]:
    """Cuts windows out of jobs with a known schedule, which says what runs and waits when each begins.

    Args:
        jobs: All jobs, those before the windows too: they are the users' history.
        pool: The processors; jobs that are larger are left out.
        config: Sizes and the tick.
        start_s: [jobs] when each job started, for example in a replay; NaN if never.
        spans_s: [W, 2] beginnings and ends; jobs that arrive in between belong.
        priority: [jobs] a standing order for `orders.by_priority`, lowest first (of any number type).

    Returns:
        The windows, and for every entry [N, W] its place among `jobs`, -1 for padding.

    Raises:
        OrderingError: A window is empty, or what runs at its beginning exceeds the pool or the table.
    """
    raise NotImplementedError


def replayed_jobs(windows: JobWindows) -> Arrivals:
    """Arrivals from history. With as many streams as windows each has its own; otherwise windows are drawn at reset."""
    raise NotImplementedError


def drawn_jobs(draw: DrawWindows, num_jobs: int) -> Arrivals:
    """Arrivals from a generator that draws whole windows at reset, `num_jobs` long, one for every stream."""
    raise NotImplementedError
