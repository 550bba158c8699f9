"""Which jobs start: the chosen one, those that are backfilled behind a blocked one, and the one that waits alone.

The rules are those of `twin.ordering.replay`, written for tables: the shadow time is found by halving the span in which
it lies, so nothing is sorted. Costs of waiting are summed on the way, since only here the true run times are at hand.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree
from twin.ordering.config import OrderingConfig
from twin.ordering.costs import accrued, add_start
from twin.ordering.orders import by_arrival
from twin.ordering.rows import add, best_row, first_row, get, numbers, put, without
from twin.ordering.states import NEVER, PoolOutcome, PoolState, Running
from twin.ordering.users import user_row


class HiddenRuns(NamedTuple):
    """What the scheduler cannot know yet, beside the public tables."""

    run: Array  # [queue_size, *streams] int32 ticks: true run times of waiting jobs
    number: Array  # [queue_size, *streams] int32: their numbers
    end: Array  # [running_size, *streams] int32 ticks: true ends, NEVER in empty rows
    runs: Array  # [running_size, *streams] int32: numbers of what runs, -1 if it ran already at tick 0
    start: Array  # [num_jobs, *streams] int32 ticks: starts by number, NEVER before
    arrivals: PyTree
    # [*streams] bool: jobs ended as expected in this instant and the queue was not looked at since
    changed: Array
    first_expected: Array  # [*streams] bool: of this instant's ends, the first to have started was expected


class Going(NamedTuple):
    """A pool on its way from one decision to the next."""

    pool: PoolState
    hidden: HiddenRuns
    gone: Array  # [queue_size, *streams] bool: has started, and still stands in the queue's table
    look: Array  # [*streams] bool: the queue may be looked at now
    narrowest: Array  # [*streams] int32 parts: least that a waiting job needs, NEVER where none waits
    since: Array  # [*streams] int32 ticks: when the last decision was taken
    outcome: PoolOutcome


def has_row(running: Running) -> Array:
    """[*streams] bool: one more job finds a row in the table of what runs."""
    return jnp.any(running.processors == 0, axis=0)


def start_job(config: OrderingConfig, going: Going, row: Array, which: Array) -> Going:
    """Starts the jobs in the queue's rows [*streams] in the streams of `which` [*streams] bool."""
    pool, hidden = going.pool, going.hidden
    clock, running, users = pool.clock, pool.running, pool.users
    processors, requested, agent = (
        get(leaf, row) for leaf in (pool.queue.processors, pool.queue.requested, pool.queue.agent)
    )
    run, number = get(hidden.run, row), get(hidden.number, row)
    slot = jnp.where(which, first_row(running.processors == 0), config.running_size)
    running = Running(
        put(running.processors, slot, processors),
        put(running.start, slot, clock),
        put(running.expected_end, slot, clock + requested),
        put(running.agent, slot, agent),
        put(running.order, slot, pool.num_started),
    )
    one, user = which.astype(jnp.int32), user_row(config.num_agents, agent)
    users = users._replace(
        num_waiting=add(users.num_waiting, user, -one), num_running=add(users.num_running, user, one)
    )
    pool = pool._replace(
        running=running,
        users=users,
        free=pool.free - jnp.where(which, processors, 0),
        num_waiting=pool.num_waiting - one,
        num_started=pool.num_started + one,
    )
    start = hidden.start
    if start.shape[0]:
        start = put(start, jnp.where(which, number, -1), clock)
    hidden = hidden._replace(
        end=put(hidden.end, slot, clock + run), runs=put(hidden.runs, slot, number), start=start
    )
    cost = accrued(config, get(going.pool.queue.arrival, row), run, going.since, clock)
    return going._replace(
        pool=pool,
        hidden=hidden,
        gone=put(going.gone, jnp.where(which, row, -1), jnp.array(True)),
        outcome=add_start(going.outcome, cost, which),
    )


def reservation(pool: PoolState, needed: Array, which: Array) -> tuple[Array, Array]:
    """When a job that does not fit is expected to fit, and what will be left beside it then.

    Args:
        pool: The pool.
        needed: [*streams] parts that it needs, not more than the pool has.
        which: [*streams] bool: where the answer matters.

    Returns:
        The shadow time [*streams], ticks: the least instant, now or later, by which enough is expected to be free; and
        how many parts more than needed will be free then.
    """
    held, ends = pool.running.processors, pool.running.expected_end

    def free_by(instant: Array) -> Array:
        back = jnp.where(ends <= instant[None], held, 0)
        return pool.free + jnp.sum(back, axis=0, dtype=jnp.int32)

    latest = jnp.max(jnp.where(held > 0, ends, pool.clock[None]), axis=0)
    latest = jnp.where(which, jnp.maximum(latest, pool.clock), pool.clock)

    def halve(span: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = span
        middle = low + (high - low) // 2
        enough = free_by(middle) >= needed
        return jnp.where(enough, low, jnp.minimum(middle + 1, high)), jnp.where(enough, middle, high)

    shadow, _ = jax.lax.while_loop(lambda span: jnp.any(span[0] < span[1]), halve, (pool.clock, latest))
    return shadow, free_by(shadow) - needed


def backfill(config: OrderingConfig, going: Going, head: Array, blocked: Array) -> Going:
    """EASY: starts the jobs that do not delay the head [*streams], one after the other in the order of backfilling."""
    pool = going.pool
    queue, clock = pool.queue, pool.clock
    shadow, extra = reservation(pool, get(queue.processors, head), blocked)
    rows = numbers(config.queue_size, clock)
    behind = (rows < pool.num_waiting[None]) & (rows != head[None]) & ~going.gone & blocked[None]
    ends_in_time = clock[None] + queue.requested <= shadow[None]
    score = (config.backfill or by_arrival)(queue, clock)

    def choose(going: Going, extra: Array) -> Array:
        allowed = ends_in_time | (queue.processors <= extra[None])
        fits = (queue.processors <= going.pool.free[None]) & has_row(going.pool.running)[None]
        return best_row(score, behind & ~going.gone & allowed & fits)

    def start_one(carry: tuple[Going, Array, Array]) -> tuple[Going, Array, Array]:
        going, extra, row = carry
        which = row < config.queue_size
        late = which & ~get(ends_in_time, row)
        extra = extra - jnp.where(late, get(queue.processors, row), 0)
        going = start_job(config, going, row, which)
        return going, extra, choose(going, extra)

    first = (going, extra, choose(going, extra))
    return jax.lax.while_loop(lambda carry: jnp.any(carry[2] < config.queue_size), start_one, first)[0]


def close_ranks(going: Going) -> Going:
    """Takes the jobs that have started out of the queue's table and finds the narrowest of the others."""

    def close(carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        leaves, gone = carry
        row = first_row(gone)
        rest = jnp.concatenate([gone[1:], jnp.zeros_like(gone[:1])])
        gone = jnp.where(numbers(gone.shape[0], row) < row[None], gone, rest)
        return jax.tree.map(lambda leaf: without(leaf, row), leaves), gone

    pool, hidden = going.pool, going.hidden
    (queue, run, number), gone = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1]), close, ((pool.queue, hidden.run, hidden.number), going.gone)
    )
    waiting = numbers(gone.shape[0], pool.num_waiting) < pool.num_waiting[None]
    return going._replace(
        pool=pool._replace(queue=queue),
        hidden=hidden._replace(run=run, number=number),
        gone=gone,
        narrowest=jnp.min(jnp.where(waiting, queue.processors, NEVER), axis=0),
    )


def start_alone(config: OrderingConfig, going: Going) -> Going:
    """Starts the job that waits alone, if it fits: there is nothing to decide."""
    pool = going.pool
    which = going.look & (pool.num_waiting == 1) & (going.narrowest <= pool.free) & has_row(pool.running)
    going = start_job(config, going, jnp.zeros_like(pool.clock), which)
    return going._replace(narrowest=jnp.where(which, NEVER, going.narrowest), gone=jnp.zeros_like(going.gone))
