"""Nodes whose requests affect each other while they are served, simulated event by event between two decisions.

A request accepted by a node waits for a place, is served, and leaves. At most `limit` are in service at once; each of n
in service advances at `speed * min(1, cores / n)`. With `limit = cores` that is one core a request: first come, first
served, in the order of dispatch, and a place given to a request waits for its input. Where cores are shared
(egalitarian processor sharing, limited by memory) requests queue for a place in the order in which their inputs arrive.

Between two decisions every node has events of its own, the next of which are processed for all nodes at once:

    it goes down       all its requests fail                                 (`evaluation.simulator.failures`)
    a run ends         least remaining work / rate; the output travels back
    a run is killed    it has taken the declared time, in worlds that kill then
    a place is taken   the first in the queue, if fewer than `limit` are served
    a wait is given up the earliest deadline in the queue, where the world drops late requests
    its pace changes   a slow period begins or ends, a run that waited for its input begins, a taken core is free

Where services contend, a run advances at `1 / (1 + sensitivity * pressure of the runs beside it)` of that pace.
Source: L. Kleinrock, Queueing Systems II, 1976, section 4.4 (processor sharing).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.simulator.answers import Offer
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.failures import next_down_s, way_s
from evaluation.simulator.modulation import NOTHING_HIDDEN, HiddenChanges, next_change_s, value_at
from evaluation.simulator.world import World
from twin.contracts import Array, Streams
from twin.environment import beside
from twin.placement.features import one_hot
from twin.placement.slots import write
from twin.placement.types import COMPLETED, DROPPED, FAILED, UNKNOWN, Leaf

GONE, WAITING, SERVED = range(3)
"""Phase of a request; GONE also marks slots that never held one."""
NO_ENTRANTS = -1


class StationJobs(NamedTuple):
    """Requests on the nodes, and the outcomes of those before them; leaves [nodes, slots, *streams]."""

    phase: Array  # int32: GONE, WAITING, SERVED
    enters_s: Array  # from when it may be given a place; inf: it never may, and will be dropped
    there_s: Array  # when its input is there
    left_s: Array  # run that is left on a whole core of the node
    drop_s: Array
    way_back_s: Array
    link: Array  # int32
    owner: Array  # int32: the agent whose latest request it is, else NO_ENTRANTS
    start_s: Array  # inf: never, or not yet
    finish_s: Array
    status: Array  # int32, UNKNOWN until it is gone
    pressure: Array | None = None  # on the runs beside it, in worlds whose services contend
    sensitivity: Array | None = None  # to theirs
    killed_after_s: Array | None = None  # run time, in worlds that kill what reaches the declared one


def no_jobs(world: World, num_slots: int, streams: Streams) -> StationJobs:
    """Nothing in the system."""
    shape = (len(world.nodes), num_slots, *streams)
    never, zero = jnp.full(shape, jnp.inf, jnp.float32), jnp.zeros(shape, jnp.float32)
    none = jnp.zeros(shape, jnp.int32)
    alone = zero if world.contends else None
    return StationJobs(
        none + GONE, never, zero, zero, never, zero, none, none + NO_ENTRANTS, never, never, none + UNKNOWN,
        alone, alone, never if world.declared.kills else None,
    )  # fmt: skip


def hand_over(
    today: DayConditions,
    jobs: StationJobs,
    offer: Offer,
    clock_s: Array,
    position: Array,
    agent: Array,
    accepted: Array,
) -> StationJobs:
    """Puts an accepted request into a slot.

    Args:
        today: The day's numbers.
        jobs: The nodes' requests.
        offer: As drawn, leaves [*streams].
        clock_s: [*streams] now.
        position: [streams] the slot (see `twin.placement.slots.place`); out of range: nothing is put anywhere.
        agent: int32 [*streams], the requesting agent, or NO_ENTRANTS where agents do not react.
        accepted: [*streams] bool: whether there is a request to put; the agent's earlier requests are no longer its
            latest.
    """
    shared = jnp.any(
        one_hot(offer.node, today.speed.shape[0]) & _of_nodes(today.shares, clock_s.ndim), axis=0
    )
    enters_s = jnp.where(shared, offer.there_s, clock_s)
    enters_s = jnp.where(offer.there_s > offer.drop_s, jnp.inf, enters_s)
    never = jnp.full_like(clock_s, jnp.inf)
    entry = StationJobs(
        phase=jnp.where(offer.possible, WAITING, GONE),
        enters_s=enters_s,
        there_s=offer.there_s,
        left_s=offer.run_s,
        drop_s=offer.drop_s,
        way_back_s=offer.way_back_s,
        link=offer.link,
        owner=agent,
        start_s=never,
        finish_s=jnp.where(offer.possible, never, clock_s),
        status=jnp.where(offer.possible, UNKNOWN, FAILED),
        killed_after_s=offer.killed_after_s,
    )
    if jobs.pressure is not None:
        entry = entry._replace(
            pressure=jnp.asarray(today.pressure)[offer.service],
            sensitivity=jnp.asarray(today.sensitivity)[offer.service],
        )
    earlier = (jobs.owner == beside(agent, jobs.owner)) & beside(accepted, jobs.owner)
    jobs = jobs._replace(owner=jnp.where(earlier, NO_ENTRANTS, jobs.owner))
    return jax.tree.map(lambda old, new: write(old, position, new), jobs, entry)


class _Moving(NamedTuple):
    """What changes while time passes; the rest of the jobs stays as it is."""

    now_s: Array  # [nodes, *streams]
    phase: Array
    left_s: Array
    start_s: Array
    finish_s: Array
    status: Array
    end_s: Array  # [agents, *streams]
    goes_on: Array  # [] bool: something happened in the last round


def pass_time(
    world: World,
    today: DayConditions,
    jobs: StationJobs,
    end_s: Array,
    clock_s: Array,
    until_s: Array,
    hidden: HiddenChanges = NOTHING_HIDDEN,
) -> tuple[StationJobs, Array]:
    """Simulates the nodes from `clock_s` to `until_s` [*streams]; inf simulates until all requests have ended.

    Args:
        world: For its options.
        today: The day's numbers.
        jobs: The nodes' requests at `clock_s`.
        end_s: [agents, *streams] when each agent's latest request was completed; inf: not yet.
        clock_s, until_s: [*streams], `clock_s <= until_s`.
        hidden: Hidden changes of the day.

    Returns:
        The jobs and `end_s` afterwards.
    """
    num_nodes = today.speed.shape[0]
    now_s = jnp.broadcast_to(clock_s[None], (num_nodes, *clock_s.shape))
    begin = _Moving(
        now_s, jobs.phase, jobs.left_s, jobs.start_s, jobs.finish_s, jobs.status, end_s, jnp.bool_(True)
    )
    final = jax.lax.while_loop(
        lambda moving: moving.goes_on,
        lambda moving: _round(world, today, jobs, until_s, hidden, moving),
        begin,
    )
    names = ("phase", "left_s", "start_s", "finish_s", "status")
    return jobs._replace(**{name: getattr(final, name) for name in names}), final.end_s


def _round(
    world: World,
    today: DayConditions,
    jobs: StationJobs,
    until_s: Array,
    hidden: HiddenChanges,
    moving: _Moving,
) -> _Moving:
    """The next event of every node, if it comes before `until_s`."""
    now_s = moving.now_s
    served, waiting = moving.phase == SERVED, moving.phase == WAITING
    num_served = jnp.sum(served, axis=1, dtype=jnp.float32)
    running, pace, limit, change_at = _paces(world, today, jobs, hidden, moving, num_served)
    left_s = jnp.where(running, moving.left_s / pace, jnp.inf)
    enters_s = jnp.where(waiting, jobs.enters_s, jnp.inf)
    drop_s = jnp.where(waiting, jobs.drop_s, jnp.inf)
    killed_s = jnp.full_like(left_s, jnp.inf)
    if jobs.killed_after_s is not None:
        killed_s = jnp.where(served, moving.start_s + jobs.killed_after_s, jnp.inf)
    done_at = now_s + jnp.min(left_s, axis=1)
    killed_at = jnp.min(killed_s, axis=1)
    join_at = jnp.where(num_served < limit, jnp.maximum(now_s, jnp.min(enters_s, axis=1)), jnp.inf)
    drop_at = jnp.min(drop_s, axis=1)
    down_at = next_down_s(world, today, now_s)
    event_at = jnp.minimum(jnp.minimum(done_at, join_at), jnp.minimum(drop_at, down_at))
    event_at = jnp.minimum(event_at, killed_at)
    event_at = event_at if change_at is None else jnp.minimum(event_at, change_at)
    fires = event_at <= jnp.where(jnp.isfinite(until_s), until_s, jnp.finfo(jnp.float32).max)[None]
    resting_s = jnp.where(jnp.isfinite(until_s)[None], until_s[None], now_s)
    then_s = jnp.where(fires, event_at, resting_s)
    down = fires & (down_at <= event_at)
    done = fires & ~down & (done_at <= event_at)
    killed = fires & ~down & ~done & (killed_at <= event_at)
    join = fires & ~down & ~done & ~killed & (join_at <= event_at)
    drop = fires & ~down & ~done & ~killed & ~join & (drop_at <= event_at)

    at_done = done[:, None] & _first_least(left_s)
    at_join = join[:, None] & _first_least(enters_s)
    at_drop = drop[:, None] & _first_least(drop_s)
    at_failed = (down[:, None] & (served | waiting)) | (killed[:, None] & _first_least(killed_s))
    then = then_s[:, None]
    passed_s = (then_s - now_s)[:, None] * pace
    left_s = jnp.where(running, jnp.maximum(moving.left_s - passed_s, 0.0), moving.left_s)
    begins_s = jnp.maximum(then, jobs.there_s)
    if not world.paced:
        left_s = jnp.where(at_join, left_s + (begins_s - then), left_s)
    start_s = jnp.where(at_join, begins_s, moving.start_s)
    start_s = jnp.where(at_failed & (start_s >= then), jnp.inf, start_s)
    back_s = _way_back_s(world, today, jobs, at_done, then_s)
    finish_s = jnp.where(at_done, (then_s + back_s)[:, None], moving.finish_s)
    finish_s = jnp.where(at_drop | at_failed, then, finish_s)
    status = jnp.where(
        at_done, COMPLETED, jnp.where(at_drop, DROPPED, jnp.where(at_failed, FAILED, moving.status))
    )
    phase = jnp.where(at_join, SERVED, jnp.where(at_done | at_drop | at_failed, GONE, moving.phase))
    end_s = moving.end_s
    if world.reactions.any:
        end_s = _note(end_s, jobs.owner, at_done, then_s + back_s)
    return _Moving(then_s, phase, left_s, start_s, finish_s, status, end_s, jnp.any(fires))


def _paces(
    world: World,
    today: DayConditions,
    jobs: StationJobs,
    hidden: HiddenChanges,
    moving: _Moving,
    num_served: Array,
) -> tuple[Array, Array, Array, Array | None]:
    """Who runs, how fast, how many places there are, and when that changes by itself.

    Returns:
        [nodes, slots, *streams] bool; the pace, [nodes, slots or 1, *streams]; places [nodes, *streams or ones]; the
        next change [nodes, *streams], None where pace depends on the number alone: then a run that waits for its input
        counts as running, and the wait as work.
    """
    ndim, now_s = num_served.ndim - 1, moving.now_s
    served, limit = moving.phase == SERVED, _of_nodes(today.limit, ndim)
    cores = _of_nodes(jnp.sum(jnp.asarray(today.core_exists), axis=0), ndim)
    change_at = jnp.full_like(now_s, jnp.inf)
    if hidden.taken_s is not None:
        taken = hidden.taken_s > now_s[None]
        num_taken = jnp.sum(taken, axis=0)
        cores = cores - num_taken
        limit = jnp.where(_of_nodes(today.shares, ndim), jnp.where(cores > 0, limit, 0.0), limit - num_taken)
        change_at = jnp.min(jnp.where(taken, hidden.taken_s, jnp.inf), axis=0)
    pace = jnp.minimum(1.0, cores / jnp.maximum(num_served, 1.0))
    if not world.paced:
        return served, pace[:, None], limit, None
    running = served & (moving.start_s <= now_s[:, None])
    if hidden.speed is not None:
        pace = pace * value_at(hidden.speed, now_s)
        change_at = jnp.minimum(change_at, next_change_s(hidden.speed, now_s))
    pace = pace[:, None]
    if jobs.pressure is not None and jobs.sensitivity is not None:
        pressure = jnp.where(running, jobs.pressure, 0.0)
        beside_it = jnp.maximum(jnp.sum(pressure, axis=1, keepdims=True) - pressure, 0.0)
        pace = pace / (1.0 + jobs.sensitivity * beside_it)
    begins_at = jnp.min(jnp.where(served & ~running, moving.start_s, jnp.inf), axis=1)
    return running, pace, limit, jnp.minimum(change_at, begins_at)


def _way_back_s(
    world: World, today: DayConditions, jobs: StationJobs, at_done: Array, then_s: Array
) -> Array:
    """[nodes, *streams] how long the output of the run that ends takes."""
    if not world.has_output:
        return jnp.zeros_like(then_s)
    undisturbed_s = jnp.sum(jnp.where(at_done, jobs.way_back_s, 0.0), axis=1)
    link = jnp.sum(jnp.where(at_done, jobs.link, 0), axis=1)
    return way_s(world, today, link, then_s, undisturbed_s)


def _note(end_s: Array, owner: Array, at_done: Array, finish_s: Array) -> Array:
    """Records the completion times of agents' latest requests that have just been completed."""
    streams = end_s[0].size
    agent = jnp.sum(jnp.where(at_done, owner + 1, 0), axis=1) - 1
    place = agent.reshape(agent.shape[0], -1) * streams + jnp.arange(streams, dtype=jnp.int32)[None]
    place = jnp.where(agent.reshape(place.shape) >= 0, place, end_s.size)
    flat = end_s.reshape(-1).at[place.reshape(-1)].set(finish_s.reshape(-1), mode="drop")
    return flat.reshape(end_s.shape)


def _of_nodes(value: Leaf, num_streams_axes: int) -> Array:
    """[nodes] as [nodes, 1, ...] beside streams."""
    return jnp.asarray(value).reshape((-1,) + (1,) * num_streams_axes)


def _first_least(value: Array) -> Array:
    """[nodes, slots, *streams] bool: the first slot of each node with its least value."""
    slot = jnp.argmin(value, axis=1)
    index = jnp.arange(value.shape[1], dtype=jnp.int32).reshape((1, -1) + (1,) * (value.ndim - 2))
    return index == slot[:, None]
