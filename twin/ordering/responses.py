"""The response of the ordering problem: arrivals and true ends, kept private, race against the pool's clock.

What happens until the next decision depends on both, so the response drives the pool's own rules (`starting`, `events`)
and hands over, as observed events, the public tables as they stand when the next decision is due. True run times and
ends stay in its private state.
"""

import jax
import jax.numpy as jnp

from twin.contracts import Array, EnvironmentState, Outcome, PyTree, Response, Streams
from twin.ordering.arrivals import Begun, Ended, JobArrivals
from twin.ordering.config import OrderingConfig
from twin.ordering.costs import accrued, add_waiting, nothing
from twin.ordering.events import join, until_decision
from twin.ordering.machine import PARTS
from twin.ordering.rows import get, numbers
from twin.ordering.starting import Going, HiddenRuns, backfill, close_ranks, has_row, start_job
from twin.ordering.states import NEVER, JobRequests, PoolEvents, PoolState, Running, Users
from twin.ordering.types import Pool
from twin.ordering.users import user_row


def queue_response(pool: Pool, config: OrderingConfig, arrivals: JobArrivals) -> Response:
    """Ends and arrivals in the order in which `twin.ordering.replay` goes through an instant.

    Returns:
        The response to decisions of `twin.ordering.problem.ordering(pool, config)`. An episode is done when no job will
        come any more and the queue is empty.
    """
    size = size_in_parts(pool)

    def init(key: Array, streams: Streams) -> tuple[HiddenRuns, Outcome]:
        key_arrivals, key_events = jax.random.split(key)
        private, begun = arrivals.init(key_arrivals, streams)
        going = _begin(config, size, arrivals.num_jobs, begun, private)
        going = _let_in(config, size, arrivals, key_events, going)
        going = close_ranks(going._replace(look=jnp.ones(streams, bool)))
        going = until_decision(key_events, config, size, arrivals, going, jnp.ones(streams, bool))
        return _revealed(config, going)

    def advance(
        key: Array, hidden: HiddenRuns, state: PoolState, action: Array
    ) -> tuple[HiddenRuns, Outcome]:
        live = state.deciding
        row = action[0]
        room = has_row(state.running)
        fits = live & (get(state.queue.processors, row) <= state.free) & room
        going = Going(
            state,
            hidden,
            jnp.zeros(state.queue.arrival.shape, bool),
            fits,
            state.clock,
            state.clock,
            nothing(state.clock),
        )
        going = start_job(config, going, row, fits)
        if pool.easy:
            going = backfill(config, going, row, live & ~fits)
        going = close_ranks(going)
        going = until_decision(key, config, size, arrivals, going, live)
        return _revealed(config, going)

    return Response(init, advance, lambda _hidden, state: state)


def size_in_parts(pool: Pool) -> int:
    """Parts of a pool."""
    return round(pool.processors * PARTS)


def _revealed(config: OrderingConfig, going: Going) -> tuple[HiddenRuns, Outcome]:
    """The outcome of a step: the pool as it stands, and what waiting has cost since the last decision.

    Without a decision to come no job waits any more and nothing costs: the episode ends for good.
    """
    pool = going.pool
    waiting = numbers(config.queue_size, pool.clock) < pool.num_waiting[None]
    cost = accrued(config, pool.queue.arrival, going.hidden.run, going.since[None], pool.clock[None])
    outcome = add_waiting(going.outcome, cost, waiting)
    elapsed_s = (pool.clock - going.since).astype(jnp.float32) * config.tick_s
    no = jnp.zeros_like(pool.deciding)
    return going.hidden, Outcome(elapsed_s, ~pool.deciding, no, PoolEvents(pool, outcome))


def starts_of(state: EnvironmentState, config: OrderingConfig) -> Array:
    """When jobs started, by number.

    Returns:
        [num_jobs, *streams] float32 seconds after the beginning, exact up to 194 days in whole seconds; NaN for those
        that have not started. `state.response.start` holds the same in ticks, exact always.
    """
    start = state.response.start
    return jnp.where(start < NEVER, start.astype(jnp.float32) * config.tick_s, jnp.nan)


def _begin(config: OrderingConfig, size: int, num_jobs: int, begun: Begun, private: PyTree) -> Going:
    """The pool at tick 0, before any job joins the queue."""
    streams = begun.week.shape
    zero, no = jnp.zeros(streams, jnp.int32), jnp.zeros(streams, bool)
    missing = config.running_size - begun.end.shape[0]

    def rows(leaf: Array, empty: int) -> Array:
        return jnp.concatenate([leaf, jnp.full((missing, *streams), empty, jnp.int32)])

    running = Running(*(rows(leaf, 0) for leaf in begun.running))
    held = running.processors > 0
    empty_queue = jnp.zeros((config.queue_size, *streams), jnp.int32)
    state = PoolState(
        clock=zero,
        queue=JobRequests(*[empty_queue] * len(JobRequests._fields)),
        num_waiting=zero,
        running=running,
        free=size - jnp.sum(running.processors, axis=0, dtype=jnp.int32),
        users=_counted(config, begun.users, running, held),
        num_started=jnp.sum(held, axis=0, dtype=jnp.int32),
        num_late=zero,
        num_blocked=zero,
        week=begun.week,
        deciding=no,
    )
    end = jnp.where(held, rows(begun.end, NEVER), NEVER)
    start = jnp.full((num_jobs, *streams), NEVER, jnp.int32)
    hidden = HiddenRuns(empty_queue, empty_queue, end, jnp.full_like(end, -1), start, private, no, no)
    return Going(state, hidden, empty_queue > 0, no, zero + NEVER, zero, nothing(zero))


def _counted(config: OrderingConfig, users: Users, running: Running, held: Array) -> Users:
    row = jnp.where(held, user_row(config.num_agents, running.agent), -1)
    user = numbers(config.num_agents, row)
    num_running = jnp.sum(user == row[None], axis=1, dtype=jnp.int32)
    return users._replace(num_waiting=jnp.zeros_like(num_running), num_running=num_running)


def _let_in(config: OrderingConfig, size: int, arrivals: JobArrivals, key: Array, going: Going) -> Going:
    """Lets the jobs join the queue that have waited since before tick 0, as far as there are places."""
    none_ended = Ended(going.look, *[going.pool.clock] * 3)

    def comes(going: Going) -> Array:
        has_place = going.pool.num_waiting < config.queue_size
        return (arrivals.peek(going.hidden.arrivals).request.arrival < 0) & has_place

    def let_in(carry: tuple[Going, Array]) -> tuple[Going, Array]:
        going, turns = carry
        which, coming = comes(going), arrivals.peek(going.hidden.arrivals)
        going = join(config, going, coming, which & (coming.request.processors <= size))
        key_move = jax.random.fold_in(key, -1 - turns)
        moved = arrivals.move(key_move, going.hidden.arrivals, which, none_ended)
        return going._replace(hidden=going.hidden._replace(arrivals=moved)), turns + 1

    return jax.lax.while_loop(lambda carry: jnp.any(comes(carry[0])), let_in, (going, jnp.int32(0)))[0]
