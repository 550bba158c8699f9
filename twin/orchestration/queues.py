"""The queues of the access points: which requests enter, are dropped, and are next.

Leaves are [places, sites, *streams]; a place is free where nothing has arrived (`arrival_s` inf). The request in hand
stays in its place until it is sent, so that a request without a legal node is simply asked about again.
"""

from typing import NamedTuple

import jax.numpy as jnp

from logs_schema.calendar import DAY_S, DAYS_A_WEEK
from twin.contracts import Array, PyTree
from twin.environment import beside
from twin.orchestration.chance import Chance
from twin.orchestration.dequeue import promote
from twin.orchestration.edge_cloud import EdgeCloud
from twin.placement.features import one_hot
from twin.placement.types import NUM_RESOURCES, Requests


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


def empty_queues(case: EdgeCloud, next_s: Array) -> Queues:
    """Empty queues; `next_s` [sites, *streams] are the first arrivals."""
    shape = (case.config.queue_places, *next_s.shape)
    zero, never = jnp.zeros(shape, jnp.float32), jnp.full(shape, jnp.inf, jnp.float32)
    index = jnp.zeros(shape, jnp.int32)
    return Queues(never, zero, zero, index, index, index, zero, zero, next_s)


def enter(
    case: EdgeCloud, chance: Chance, queues: Queues, numbers: PyTree, until_s: Array, estimate_s: Array | None
) -> tuple[Queues, Entered]:
    """Lets in who has arrived by `until_s`, at most `arrivals_per_slot` a site.

    Args:
        case: The cluster.
        chance: Says who arrives, and when the next one does.
        queues: The queues.
        numbers: Of the slot, see `Chance.numbers`.
        until_s: [*streams].
        estimate_s: [services, *streams] for the hybrid strategy, else None.

    Returns:
        The queues, and how many came and found no place. One that finds the slot's number of arrivals used up keeps
        its time and enters with the next slot.
    """
    arrived = turned_away = jnp.zeros(until_s.shape, jnp.int32)
    for one in range(case.config.arrivals_per_slot):
        comes, request, following_s = next_arrival(chance, queues.next_s, numbers, one, until_s)
        queues, entered = _insert(case, queues, request, comes, estimate_s)
        arrived += jnp.sum(comes, axis=0, dtype=jnp.int32)
        turned_away += jnp.sum(comes & ~entered, axis=0, dtype=jnp.int32)
        queues = queues._replace(next_s=following_s)
    return queues, Entered(arrived, turned_away)


def next_arrival(
    chance: Chance, next_s: Array, numbers: PyTree, one: int, until_s: Array
) -> tuple[Array, Requests, Array]:
    """Whether the arrival due at `next_s` [sites, *streams] comes by `until_s`, its request, and when the next is due.

    Args:
        chance: Says who arrives, and when the next one does.
        next_s: [sites, *streams].
        numbers: Of the slot.
        one: Which of the slot's arrivals it would be.
        until_s: [*streams].
    """
    comes = (next_s <= until_s[None]) & (chance.time_of_day_s(next_s) < chance.day_s)
    request, gap_s = chance.arrival(numbers, one, next_s)
    return comes, request, jnp.where(comes, next_s + gap_s, next_s)


def _insert(
    case: EdgeCloud, queues: Queues, request: Requests, comes: Array, estimate_s: Array | None
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


def in_hand(case: EdgeCloud, chance: Chance, queues: Queues, place: Array) -> Requests:
    """The requests at the places; leaves [sites, *streams], 0 where there is none."""
    return seat_requests(
        case,
        chance.time_of_day_s(pick(queues.arrival_s, place)),
        chance.weekday,
        scenario=pick(queues.scenario, place),
        service=pick(queues.service, place),
        expected_run_s=pick(queues.expected_run_s, place),
        deadline_s=pick(queues.deadline_s, place),
        input_mib=pick(queues.input_mib, place),
        **chance.identity(pick(queues.agent, place)),
    )


def seat_requests(case: EdgeCloud, time_s: Array, weekday: int, **known: Array) -> Requests:
    """A request of one core at each access point, at a time of day [sites, *streams]; `known` are the other fields."""
    zero, index = jnp.zeros_like(time_s), jnp.zeros(time_s.shape, jnp.int32)
    seat = jnp.asarray(case.seat_site).reshape((-1,) + (1,) * (time_s.ndim - 1))
    day_fraction = time_s / DAY_S
    return Requests(
        site=jnp.broadcast_to(seat, time_s.shape),
        queue=index,
        rule=index,
        demand=jnp.stack([zero + 1.0, *[zero] * (NUM_RESOURCES - 1)]),
        num_nodes=zero + 1.0,
        day_fraction=day_fraction,
        week_fraction=(weekday + day_fraction) / DAYS_A_WEEK,
        **known,
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
