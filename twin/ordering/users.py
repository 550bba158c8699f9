"""Statistics kept of every user: how their finished jobs compared with their requests. The same in and out of JAX.

A mean fades: the n-th finished job has weight max(1/n, FADING), so the first few count alike and old ones fade.
Users' finished jobs predict their next ones: the mean run time of a user's last two is the classic predictor (Tsafrir,
Etsion and Feitelson 2007, "Backfilling using system-generated predictions rather than user runtime estimates", TPDS).
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.ordering.config import OrderingConfig
from twin.ordering.rows import add, get, put
from twin.ordering.states import Users
from twin.ordering.types import Jobs

FADING = 0.5
"""Least weight of the newest job in the means."""
BRIEF = 6.0
"""Jobs shorter than one part of so many of the time unit are as hasty as can be: 10 s of a minute."""


def user_row(num_agents: int, agent: Array) -> Array:
    """The row of an agent [*batch]; no row (-1) where the agent is unknown."""
    return jnp.where(agent < 0, -1, agent % num_agents)


def users_without_history(num_agents: int, streams: tuple[int, ...]) -> Users:
    """Users without finished jobs (NumPy)."""
    shape = (num_agents, *streams)
    real, count = np.zeros(shape, np.float32), np.zeros(shape, np.int32)
    return Users(real, real.copy(), real.copy(), real.copy(), count, count.copy())


def finished(users: Users, row: Array, run: Array, requested: Array, time_unit: float) -> Users:
    """Remembers a job that ended, one in every stream.

    Args:
        users: Before.
        row: [*streams] of the user; -1 where no job ended or its user is unknown.
        run: [*streams] ticks that it ran.
        requested: [*streams] ticks that it requested.
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
        haste=fade(users.haste, 1.0 / jnp.maximum(run_time * (BRIEF / time_unit), 1.0)),
        num_running=add(users.num_running, row, jnp.full_like(row, -1)),
    )


def remember(memory: np.ndarray, run_s: float, requested_s: float, time_unit_s: float) -> None:
    """Adds a job that ended to its user's memory [4], in place (NumPy): count, and the means of `finished`."""
    memory[0] += 1.0
    units = run_s / time_unit_s
    new = np.array([run_s / requested_s, np.log1p(units), 1.0 / max(BRIEF * units, 1.0)])
    memory[1:] += max(1.0 / memory[0], FADING) * (new - memory[1:])


def histories(jobs: Jobs, config: OrderingConfig, start_s: np.ndarray, begin_s: np.ndarray) -> Users:
    """Statistics of the users at given instants of a known schedule (NumPy).

    Args:
        jobs: All jobs.
        config: How many users are kept apart, and the unit of time.
        start_s: [jobs] when each job started; NaN if never.
        begin_s: [W] the instants; jobs that ended before count.

    Returns:
        Users with leaves [num_agents, W]; the counts of jobs in the system are left at 0.
    """
    users = users_without_history(config.num_agents, (len(begin_s),))
    for window, (num_finished, ratio, log_run, haste) in _memories(jobs, config, start_s, begin_s):
        users.num_finished[:, window] = num_finished
        users.ratio[:, window] = ratio
        users.log_run[:, window] = log_run
        users.haste[:, window] = haste
    return users


def _memories(
    jobs: Jobs, config: OrderingConfig, start_s: np.ndarray, begin_s: np.ndarray
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Every window's number and memory, in order of time: one pass over all jobs in order of their ends."""
    end_s = start_s + jobs.run_s
    ended = np.flatnonzero((end_s < np.max(begin_s)) & (jobs.agent >= 0))
    ended = ended[np.argsort(end_s[ended], kind="stable")]
    agent = (jobs.agent[ended] % config.num_agents).tolist()
    run_s, requested_s = jobs.run_s[ended].tolist(), jobs.requested_s[ended].tolist()
    memory = np.zeros((config.num_agents, 4))
    upto = np.searchsorted(end_s[ended], begin_s)
    done = 0
    for window in np.argsort(begin_s, kind="stable").tolist():
        for job in range(done, int(upto[window])):
            remember(memory[agent[job]], run_s[job], requested_s[job], config.time_unit_s)
        done = max(done, int(upto[window]))
        yield window, tuple(memory.T)
