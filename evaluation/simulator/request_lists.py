"""Lists of a day's requests, in place of a distribution to draw from.

A list belongs to the day's numbers (`DayConditions.requests`), so histories and truth have the same requests. The
position in it follows from the clock: the next request is the first that arrives later. This requires times that are
all different in float32, also after a change of the clock's zero; `distinct` ensures it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array

STEP_ULPS = 2
"""Least distance of two arrivals in float32 steps: 0.016 s at the end of a calendar day, 0.0005 s in its first hour."""


class DayRequests(NamedTuple):
    """A day's requests in order of arrival, in the world's own indices; leaves [requests].

    Padding at the end, at least one row: it arrives when the nominal day is over, so that it never does.
    """

    arrival_s: np.ndarray  # float32, time of day, strictly rising up to the padding
    agent: np.ndarray  # int32; the agent's site and scenario are the world's
    service: np.ndarray  # int32
    expected_run_s: np.ndarray  # float32, on a reference core
    input_mib: np.ndarray  # float32
    deadline_s: np.ndarray  # float32

    @property
    def num_requests(self) -> int:
        """Requests that really arrive."""
        return int(np.sum(self.arrival_s < self.arrival_s[-1]))


def distinct(arrival_s: np.ndarray) -> np.ndarray:
    """Sorted times as float32, those that coincide (or nearly do) moved on by `STEP_ULPS` steps each.

    Args:
        arrival_s: [requests] ascending, >= 0.

    Returns:
        [requests] float32, positive and strictly rising.
    """
    times = np.maximum(np.asarray(arrival_s, np.float32), STEP_ULPS * np.spacing(np.float32(1.0)))
    step = STEP_ULPS * np.spacing(np.maximum(times[-1:], 1.0)) if len(times) else np.float32(0.0)
    if np.all(np.diff(times) >= step):
        return times
    result = times.astype(np.float64)
    for index in range(1, len(result)):
        least = result[index - 1] + STEP_ULPS * np.spacing(np.float32(result[index - 1]))
        result[index] = max(result[index], least)
    return result.astype(np.float32)


def padded(requests: DayRequests, num_rows: int, day_s: float) -> DayRequests:
    """The list with padding up to `num_rows` rows, more than it has; its padding arrives at `day_s`."""
    missing = num_rows - len(requests.arrival_s)

    def pad(leaf: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate([leaf, np.full(missing, value, leaf.dtype)])

    return DayRequests(pad(requests.arrival_s, day_s), *(pad(leaf, 0) for leaf in requests[1:]))


def next_row(requests: DayRequests, offset_s: Array, clock_s: Array) -> tuple[Array, Array]:
    """The first request that arrives after `clock_s`, found by bisection.

    Args:
        requests: The day's list.
        offset_s: [*streams] time of day at which the episode's clock was zero.
        clock_s: [*streams] now; at a request of the list, exactly the value that an earlier call returned.

    Returns:
        When it arrives on the episode's clock, and its row (of the padding once all have come); [*streams].
    """
    arrival_s = jnp.asarray(requests.arrival_s)
    last = arrival_s.shape[0] - 1

    def halve(step: Array, count: Array) -> Array:
        probe = count + (1 << (num_bits - 1 - step))
        passed = arrival_s[jnp.minimum(probe, last + 1) - 1] - offset_s <= clock_s
        return jnp.where((probe <= last) & passed, probe, count)

    num_bits = max(last.bit_length(), 1)
    row = jax.lax.fori_loop(0, num_bits, halve, jnp.zeros(clock_s.shape, jnp.int32))
    return arrival_s[row] - offset_s, row
