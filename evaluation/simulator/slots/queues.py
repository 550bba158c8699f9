"""The queues of the access points: who enters, who is dropped, who is next.

Leaves are [places, sites, *streams]; a place is free where nothing has arrived (`arrival_s` inf). The request in hand
stays in its place until it is sent, so that a request without a legal node is simply asked about again.
"""

from typing import NamedTuple

import jax.numpy as jnp

from evaluation.simulator.arrivals import DAYS_A_WEEK, accepting, ask, gap_s
from evaluation.simulator.conditions import Conditions
from evaluation.simulator.slots.dequeue import promote
from evaluation.simulator.slots.instance import Instance
from evaluation.simulator.world import CALENDAR_DAY_S
from twin.contracts import Array, Streams
from twin.environment import beside
from twin.placement.features import one_hot
from twin.placement.types import NUM_RESOURCES, Requests

UNIFORMS_PER_ARRIVAL = 5
"""Agent, service, size, input, and the gap to the next arrival."""


class Queues(NamedTuple):
    """What waits at the access points."""

    arrival_s: Array
    deadline_s: Array  # from arrival
    key: Array  # the smallest is next
    service: Array  # int32
    scenario: Array  # int32
    agent: Array  # int32
    expected_run_s: Array
    input_mib: Array
    next_s: Array  # [sites, *streams] when the next request arrives

    @property
    def late_s(self) -> Array:
        """When every request becomes late; inf in free places."""
        return self.arrival_s + self.deadline_s


class Entered(NamedTuple):
    """Numbers of requests [*streams] int32."""

    arrived: Array
    turned_away: Array


def empty_queues(case: Instance, uniform: Array, begin_s: float, streams: Streams) -> Queues:
    """Nobody waits; `uniform` [sites, *streams] draws the first arrivals."""
    shape = (case.config.queue_places, case.num_seats, *streams)
    zero, never = jnp.zeros(shape, jnp.float32), jnp.full(shape, jnp.inf, jnp.float32)
    index = jnp.zeros(shape, jnp.int32)
    next_s = gap_s(_site_days(case, len(streams)), jnp.full_like(uniform, begin_s), uniform)
    return Queues(never, zero, zero, index, index, index, zero, zero, next_s)


def enter(
    case: Instance, queues: Queues, uniforms: Array, until_s: Array, estimate_s: Array | None, begin_s: float
) -> tuple[Queues, Entered]:
    """Lets in who has arrived by `until_s`, at most `arrivals_per_slot` a site.

    Args:
        case: The instance.
        queues: The queues.
        uniforms: [5 * arrivals_per_slot, sites, *streams].
        until_s: [*streams].
        estimate_s: [services, *streams] for the hybrid strategy, else None.
        begin_s: Time of day at which the clock was zero.

    Returns:
        The queues, and how many came and found no place. Arrivals form a Poisson process at every site, exactly:
        one that finds the slot's number of arrivals used up keeps its time and enters with the next slot.
    """
    arrived = turned_away = jnp.zeros(until_s.shape, jnp.int32)
    days, until = _site_days(case, until_s.ndim), until_s[None]
    for one in range(case.config.arrivals_per_slot):
        drawn = uniforms[one * UNIFORMS_PER_ARRIVAL : (one + 1) * UNIFORMS_PER_ARRIVAL]
        time_of_day_s = begin_s + queues.next_s
        comes = (queues.next_s <= until) & (time_of_day_s < case.by_site.day_s)
        queues, entered = _insert(case, queues, _ask(case, drawn[:4], time_of_day_s), comes, estimate_s)
        arrived += jnp.sum(comes, axis=0, dtype=jnp.int32)
        turned_away += jnp.sum(comes & ~entered, axis=0, dtype=jnp.int32)
        gap = gap_s(days, time_of_day_s, drawn[4])
        queues = queues._replace(next_s=jnp.where(comes, queues.next_s + gap, queues.next_s))
    return queues, Entered(arrived, turned_away)


def _site_days(case: Instance, num_streams: int) -> Conditions:
    """The day with the rate of arrivals of each site [sites, 1...]."""
    rate = case.by_site.rate_per_s * case.share
    return case.by_site._replace(rate_per_s=rate.reshape((-1,) + (1,) * num_streams))


def _ask(case: Instance, uniforms: Array, time_of_day_s: Array) -> Requests:
    """The requests of the sites' agents; leaves [sites, *streams]."""
    low, share = (value.reshape((-1,) + (1,) * (uniforms.ndim - 2)) for value in (case.low, case.share))
    whose = jnp.concatenate([(low + share * uniforms[0])[None], uniforms[1:]])
    return ask(case.world, case.by_site, case.names, whose, time_of_day_s, case.weekday)


def _insert(
    case: Instance, queues: Queues, request: Requests, comes: Array, estimate_s: Array | None
) -> tuple[Queues, Array]:
    places = queues.arrival_s.shape[0]
    index = jnp.arange(places, dtype=jnp.int32).reshape((-1,) + (1,) * comes.ndim)
    free = jnp.min(jnp.where(jnp.isinf(queues.arrival_s), index, places), axis=0)
    taken = (index == free[None]) & comes[None]
    expected = queues.next_s if estimate_s is None else look_up(estimate_s, request.service)
    key = case.config.eap_queue.key(queues.next_s, queues.next_s + request.deadline_s, expected)
    new = Queues(
        queues.next_s, request.deadline_s, key, request.service, request.scenario, request.agent,
        request.expected_run_s, request.input_mib, queues.next_s,
    )  # fmt: skip
    leaves = [jnp.where(taken, one[None], old) for old, one in zip(queues[:-1], new[:-1], strict=True)]
    return Queues._make([*leaves, queues.next_s]), free < places


def drop_late(queues: Queues, until_s: Array) -> tuple[Queues, Array]:
    """The queues without those that became late before `until_s` [*streams], and how many those are [*streams]."""
    late = queues.late_s < until_s[None, None]
    arrival_s = jnp.where(late, jnp.inf, queues.arrival_s)
    return queues._replace(arrival_s=arrival_s), jnp.sum(late, axis=(0, 1), dtype=jnp.int32)


def first_in_line(queues: Queues) -> Array:
    """[sites, *streams] int32 the place of the next request: smallest key, then earliest arrival; `places` if empty."""
    held = jnp.isfinite(queues.arrival_s)
    key = jnp.where(held, queues.key, jnp.inf)
    best = held & (key == jnp.min(key, axis=0, keepdims=True))
    arrival_s = jnp.where(best, queues.arrival_s, jnp.inf)
    best &= arrival_s == jnp.min(arrival_s, axis=0, keepdims=True)
    places = queues.arrival_s.shape[0]
    index = jnp.arange(places, dtype=jnp.int32).reshape((-1,) + (1,) * (best.ndim - 1))
    return jnp.min(jnp.where(best, index, places), axis=0)


def leave(queues: Queues, place: Array, sent: Array) -> Queues:
    """The queues without the requests in hand of the sites that `sent` [sites, *streams] theirs."""
    gone = one_hot(place, queues.arrival_s.shape[0]) & sent[None]
    return queues._replace(arrival_s=jnp.where(gone, jnp.inf, queues.arrival_s))


def pick(leaf: Array, place: Array) -> Array:
    """[sites, *streams] what `leaf` [places, sites, *streams] holds at the places; 0 where there is no such place."""
    return jnp.sum(jnp.where(one_hot(place, leaf.shape[0]), leaf, 0), axis=0, dtype=leaf.dtype)


def in_hand(case: Instance, queues: Queues, place: Array, begin_s: float) -> Requests:
    """The requests at the places; leaves [sites, *streams], 0 where there is none."""
    arrival_s = pick(queues.arrival_s, place)
    zero, index = jnp.zeros_like(arrival_s), jnp.zeros_like(place)
    seat = jnp.asarray(case.seat_site).reshape((-1,) + (1,) * (place.ndim - 1))
    day_fraction = (begin_s + arrival_s) / CALENDAR_DAY_S
    agent = jnp.asarray(case.agent)[pick(queues.agent, place)]
    return Requests(
        site=jnp.broadcast_to(seat, place.shape),
        scenario=pick(queues.scenario, place),
        service=pick(queues.service, place),
        queue=index,
        agent=agent,
        rule=index,
        demand=jnp.stack([zero + 1.0, *[zero] * (NUM_RESOURCES - 1)]),
        num_nodes=zero + 1.0,
        expected_run_s=pick(queues.expected_run_s, place),
        deadline_s=pick(queues.deadline_s, place),
        input_mib=pick(queues.input_mib, place),
        day_fraction=day_fraction,
        week_fraction=(case.weekday + day_fraction) / DAYS_A_WEEK,
        **accepting(case.names, agent),
    )


def promote_urgent(queues: Queues, estimate_s: Array, until_s: Array) -> Queues:
    """The queues after a long slot of the hybrid strategy; `estimate_s` [services, *streams]."""
    expected = look_up(estimate_s, queues.service)
    return queues._replace(key=promote(queues.key, queues.late_s, expected, until_s[None, None]))


def look_up(table: Array, index: Array) -> Array:
    """`table` [choices, *streams] at `index` [..., *streams], by comparison."""
    wide = table.reshape((table.shape[0], *(1,) * (index.ndim - table.ndim + 1), *table.shape[1:]))
    return jnp.sum(jnp.where(one_hot(index, table.shape[0]), wide, 0.0), axis=0)


def oldest_s(queues: Queues, clock_s: Array) -> tuple[Array, Array]:
    """[sites, *streams] how many wait, and how long the one who has waited longest has."""
    held = jnp.isfinite(queues.arrival_s)
    waited_s = jnp.where(held, beside(clock_s, queues.arrival_s) - queues.arrival_s, 0.0)
    return jnp.sum(held, axis=0, dtype=jnp.float32), jnp.max(waited_s, axis=0)
