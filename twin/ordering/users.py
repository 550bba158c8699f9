"""What is remembered of every user: how their finished jobs compared with their requests. The same in and out of JAX.

A mean fades: the n-th finished job has weight max(1/n, FADING), so the first few count alike and old ones fade.
Users tell about their next jobs: the mean run time of a user's last two is the classic predictor (Tsafrir, Etsion and
Feitelson 2007, "Backfilling using system-generated predictions rather than user runtime estimates", TPDS).
"""

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.ordering.rows import add, get, put
from twin.ordering.states import Users

FADING = 0.3
"""Least weight of the newest job in the means."""


def user_row(num_agents: int, agent: Array) -> Array:
    """The row of an agent [*batch]; no row (-1) where the agent is unknown."""
    return jnp.where(agent < 0, -1, agent % num_agents)


def nobody(num_agents: int, streams: tuple[int, ...]) -> Users:
    """Users of whom nothing is known (NumPy)."""
    shape = (num_agents, *streams)
    real, count = np.zeros(shape, np.float32), np.zeros(shape, np.int32)
    return Users(real, real.copy(), real.copy(), count, count.copy())


def finished(users: Users, row: Array, run: Array, requested: Array, time_unit: float) -> Users:
    """Remembers a job that ended, one in every stream.

    Args:
        users: Before.
        row: [*streams] of the user; -1 where no job ended or its user is unknown.
        run: [*streams] ticks that it ran.
        requested: [*streams] ticks that it asked for.
        time_unit: Unit of durations, in ticks.
    """
    count = get(users.num_finished, row) + 1.0
    weight = jnp.maximum(1.0 / count, FADING)

    def fade(leaf: Array, new: Array) -> Array:
        old = get(leaf, row)
        return put(leaf, row, old + weight * (new - old))

    run_time = run.astype(jnp.float32)
    return users._replace(
        num_finished=put(users.num_finished, row, count),
        ratio=fade(users.ratio, run_time / requested.astype(jnp.float32)),
        log_run=fade(users.log_run, jnp.log1p(run_time / time_unit)),
        num_running=add(users.num_running, row, jnp.full_like(row, -1)),
    )
