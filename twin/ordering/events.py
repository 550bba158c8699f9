"""What happens between two decisions, event by event, in the order in which `twin.ordering.replay` goes about it.

One event is: (0) a job that ends as expected gives its processors back; then (1) an arrival joins the queue and the
queue is looked at; then (2) if jobs ended as expected, there was no look since, and the first to have started of all
that end now was expected, a look; then (3) a job that ends unexpectedly gives its processors back and the queue is
looked at. Every stream does its next event in every turn of one loop, until a decision is due or nothing more happens.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array
from twin.ordering.arrivals import Coming, Ended, JobArrivals
from twin.ordering.config import OrderingConfig
from twin.ordering.rows import add, first_row, get, put
from twin.ordering.starting import Going, has_row, start_alone
from twin.ordering.states import LONGEST, NEVER, JobRequests
from twin.ordering.users import finished, user_row


class Event(NamedTuple):
    """A stream's next event; leaves [*streams]."""

    now: Array  # int32 ticks
    expected: Array  # bool: (0) a job ends as expected
    arrives: Array  # bool: (1) a job arrives
    looks: Array  # bool: (2) the queue is looked at
    unexpected: Array  # bool: (3) a job ends unexpectedly
    row: Array  # int32: the job that ends, in the table of what runs
    first_expected: Array  # bool: see `starting.HiddenRuns`


def until_decision(
    key: Array, config: OrderingConfig, size: int, arrivals: JobArrivals, going: Going, live: Array
) -> Going:
    """Goes from event to event until a decision is due (`pool.deciding`) or nothing more will happen.

    Args:
        key: For arrivals that are drawn.
        config: The problem's.
        size: Parts of the pool.
        arrivals: Of jobs.
        going: The pool after a decision.
        live: [*streams] bool: streams that go on; the others stay as they are.
    """

    def turn(carry: tuple[Going, Array, Array]) -> tuple[Going, Array, Array]:
        going, live, turns = carry
        coming = arrivals.peek(going.hidden.arrivals)
        event = _next_event(config, size, going, coming, live)
        going = _happen(config, size, going, coming, event)
        agent, number = get(going.pool.running.agent, event.row), get(going.hidden.runs, event.row)
        ended = Ended(event.expected | event.unexpected, event.now, agent, number)
        moved = arrivals.move(jax.random.fold_in(key, turns), going.hidden.arrivals, event.arrives, ended)
        going = going._replace(hidden=going.hidden._replace(arrivals=moved))
        going = start_alone(config, going)
        happened = event.expected | event.arrives | event.looks | event.unexpected
        going, live = _decide_or_go_on(arrivals, going, live, happened)
        return going, live, turns + 1

    going = start_alone(config, going)
    going, live = _decide_or_go_on(arrivals, going, live, live)
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), turn, (going, live, jnp.int32(0)))[0]


def _decide_or_go_on(
    arrivals: JobArrivals, going: Going, live: Array, happened: Array
) -> tuple[Going, Array]:
    """Finds where a decision is due, and which streams go on."""
    pool = going.pool
    fits = live & going.look & (pool.num_waiting > 0) & (going.narrowest <= pool.free)
    room = has_row(pool.running)
    over = arrivals.exhausted(going.hidden.arrivals) & (pool.num_waiting == 0)
    pool = pool._replace(
        deciding=jnp.where(live, fits & room, pool.deciding),
        num_blocked=pool.num_blocked + (fits & ~room).astype(jnp.int32),
    )
    return going._replace(pool=pool), live & ~(fits & room) & happened & ~over


def _next_event(config: OrderingConfig, size: int, going: Going, coming: Coming, live: Array) -> Event:
    pool, hidden = going.pool, going.hidden
    end, order = hidden.end, pool.running.order
    has_place = (pool.num_waiting < config.queue_size) | (coming.request.processors > size)
    will_arrive = has_place & (coming.request.arrival < NEVER)
    arrives_at = jnp.where(will_arrive, jnp.maximum(coming.request.arrival, pool.clock), NEVER)
    now = jnp.minimum(jnp.min(end, axis=0), arrives_at)
    ending = (end == now[None]) & (now < NEVER)[None]
    as_expected = ending & (pool.running.expected_end <= now[None])
    first = jnp.min(jnp.where(ending, order, NEVER), axis=0)
    first_of_expected = jnp.min(jnp.where(as_expected, order, NEVER), axis=0)
    expected = live & (first_of_expected < NEVER)
    of_this_instant = now == pool.clock
    arrives = live & ~expected & (arrives_at == now) & (now < NEVER)
    looks = hidden.changed & hidden.first_expected & ~((expected | arrives) & of_this_instant)
    looks &= live
    expected, arrives = expected & ~looks, arrives & ~looks
    unexpected = live & ~looks & ~expected & ~arrives & (first < NEVER)
    order_of_next = jnp.where(expected, first_of_expected, first)
    first_expected = (hidden.first_expected & of_this_instant) | (first == first_of_expected)
    row = first_row(ending & (order == order_of_next[None]))
    return Event(now, expected, arrives, looks, unexpected, row, expected & first_expected)


def _happen(config: OrderingConfig, size: int, going: Going, coming: Coming, event: Event) -> Going:
    """Ends a job, or lets one join the queue."""
    pool, hidden = going.pool, going.hidden
    ends = event.expected | event.unexpected
    happened = ends | event.arrives | event.looks
    joins = event.arrives & (coming.request.processors <= size)
    late = joins & (coming.request.arrival < event.now)
    clock = jnp.where(ends | event.arrives, event.now, pool.clock)
    going = _release(config, going, event, ends)
    going = join(config, going, coming, joins)
    hidden = going.hidden._replace(
        changed=jnp.where(happened, event.expected, hidden.changed),
        first_expected=jnp.where(happened, event.first_expected, hidden.first_expected),
    )
    pool = going.pool._replace(clock=clock, num_late=pool.num_late + late.astype(jnp.int32))
    look = jnp.where(happened, joins | event.looks | event.unexpected, going.look)
    return going._replace(pool=pool, hidden=hidden, look=look)


def _release(config: OrderingConfig, going: Going, event: Event, ends: Array) -> Going:
    pool, running = going.pool, going.pool.running
    row = jnp.where(ends, event.row, -1)
    start, agent = get(running.start, row), get(running.agent, row)
    requested = get(running.expected_end, row) - start
    user = jnp.where(ends, user_row(config.num_agents, agent), -1)
    time_unit = config.time_unit_s / config.tick_s
    pool = pool._replace(
        free=pool.free + jnp.where(ends, get(running.processors, row), 0),
        running=running._replace(processors=put(running.processors, row, jnp.int32(0))),
        users=finished(pool.users, user, event.now - start, requested, time_unit),
    )
    hidden = going.hidden._replace(end=put(going.hidden.end, row, jnp.int32(NEVER)))
    return going._replace(pool=pool, hidden=hidden)


def join(config: OrderingConfig, going: Going, coming: Coming, joins: Array) -> Going:
    """Who comes next joins the queue, in the streams of `joins` [*streams] bool."""
    pool, hidden, request = going.pool, going.hidden, _sound(coming.request)
    row = jnp.where(joins, pool.num_waiting, -1)
    user = jnp.where(joins, user_row(config.num_agents, request.agent), -1)
    one = joins.astype(jnp.int32)
    pool = pool._replace(
        queue=JobRequests(*(put(leaf, row, new) for leaf, new in zip(pool.queue, request, strict=True))),
        num_waiting=pool.num_waiting + one,
        users=pool.users._replace(num_waiting=add(pool.users.num_waiting, user, one)),
    )
    hidden = hidden._replace(
        run=put(hidden.run, row, jnp.clip(coming.run, 1, LONGEST)),
        number=put(hidden.number, row, coming.number),
    )
    narrowest = jnp.where(joins, jnp.minimum(going.narrowest, request.processors), going.narrowest)
    return going._replace(pool=pool, hidden=hidden, narrowest=narrowest)


def _sound(request: JobRequests) -> JobRequests:
    return request._replace(
        processors=jnp.maximum(request.processors, 1), requested=jnp.clip(request.requested, 1, LONGEST)
    )
