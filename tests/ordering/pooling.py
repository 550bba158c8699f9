"""Helpers for tests of the ordering problem inside programs."""

import jax
import jax.numpy as jnp
import numpy as np

from twin.environment import environment
from twin.ordering.config import OrderingConfig
from twin.ordering.job_windows import JobWindows, cut_job_windows, replayed_jobs, standing_order
from twin.ordering.machine import PARTS
from twin.ordering.play import by_order, play
from twin.ordering.problem import ordering
from twin.ordering.responses import queue_response
from twin.ordering.rules.unicef import SMALLEST_LOGARITHM

KEY = jax.random.key(3)


def cut_whole(jobs, pool, config, *, rule=None, num_jobs=0):
    """One window that holds all jobs and begins, with an empty machine, at the first arrival."""
    never = np.full(len(jobs.arrival_s), np.nan)
    priority = None if rule is None or rule.ages else standing_order(jobs, rule)
    spans = np.array([[jobs.arrival_s[0], np.inf]])
    return cut_job_windows(jobs, pool, config, never, spans, priority=priority, num_jobs=num_jobs)[0]


def joined(windows):
    """Windows of equal length beside each other."""
    return JobWindows(*jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *windows))


def columns_of(jobs):
    """Arrival since the first one, processors, requested time, run time and user as whole numbers."""
    arrival = jobs.arrival_s - jobs.arrival_s[0]
    return [
        column.astype(int) for column in (arrival, jobs.processors, jobs.requested_s, jobs.run_s, jobs.agent)
    ]


def system_of(pool, config, windows):
    """The environment that replays windows."""
    return environment(ordering(pool, config), queue_response(pool, config, replayed_jobs(windows)))


def by_wfp3(queue, clock):
    """`twin.ordering.rules.WFP3` inside programs, lowest first."""
    relative = (clock[None] - queue.arrival).astype(jnp.float32) / queue.requested.astype(jnp.float32)
    return -(relative * relative * relative) * queue.processors.astype(jnp.float32)


def by_unicef(queue, clock):
    """`twin.ordering.rules.UNICEF` inside programs, lowest first."""
    logarithm = jnp.log2(queue.processors.astype(jnp.float32) / PARTS)
    size = jnp.maximum(logarithm, SMALLEST_LOGARITHM) * queue.requested.astype(jnp.float32)
    return -(clock[None] - queue.arrival).astype(jnp.float32) / size


def player(pool, num_streams, **sizes):
    """`play(windows, kind)` to the end under any rule, compiled once.

    Kind 0 is the jobs' standing order, 1 and 2 are WFP3 and UNICEF; backfilling goes in the same order.
    """

    @jax.jit
    def run(windows, kind):
        def order(queue, clock):
            ageing = jnp.where(kind == 1, by_wfp3(queue, clock), by_unicef(queue, clock))
            return jnp.where(kind == 0, queue.priority.astype(jnp.float32), ageing)

        config = OrderingConfig(**sizes, backfill=order)
        system = system_of(pool, config, windows)
        return play(KEY, system, by_order(system, order), (num_streams,))

    return run


def kind_of(rule):
    """How `player` names a rule."""
    return jnp.int32({"wfp3": 1, "unicef": 2}.get(rule.name, 0))
