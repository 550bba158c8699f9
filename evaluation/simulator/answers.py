"""The outcome of an offer: acceptance by the agent, transfer of the input, queue, run, transfer of the output.

Queues. Every core has the time at which the work given to it ends (Kiefer and Wolfowitz's vector). An
accepted request gets the core of the offered node that is free first, starts when both that core is free and
its input has arrived, and holds the core until it finishes. So the place in the queue is taken at dispatch;
without transfer times this is first come, first served with several servers, exactly.

    start  = max(clock + latency * noise + input / bandwidth, min over cores of free)
    end    = start + declared run * scatter / (speed of node * affinity of the service to it)
             (the declared run may be a limit, or the time after which the run is killed, and speeds may change
             meanwhile: `options.Declared`, `.modulation`)
    finish = end + latency * noise + output / bandwidth    where there is an output, else end

Outcomes are drawn at the decision; the response determines when they become observable. A rejected offer is lost: it
takes no core and never finishes. A request that would start after its deadline is dropped at its deadline where the
world drops late requests: it waits until then and never takes its core. Planned failures:
`evaluation.simulator.failures`. An offer to a node that is down, or that may not host the service, fails at once.

Where requests share cores or agents react, outcomes cannot be drawn at once: see `evaluation.simulator.stations`.

Source: J. Kiefer and J. Wolfowitz, On the theory of queues with many servers, 1955.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.simulator.arrivals import declared_run_s, needed, uniforms
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.failures import is_up, next_down_s, way_s
from evaluation.simulator.modulation import (
    NOTHING_HIDDEN,
    HiddenChanges,
    draw_hidden,
    of_chain,
    time_for,
    value_at,
)
from evaluation.simulator.names import Names
from evaluation.simulator.world import World
from twin.contracts import Array, Streams
from twin.placement.features import one_hot
from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED, Fate, Requests

_WAY_BACK = 1
"""Folded into an offer's key for draws of worlds with outputs only."""


class CoreQueues(NamedTuple):
    """Private state of the answers."""

    # [cores, nodes, *streams] episode time at which a core's work ends; inf where there is no core
    free_s: Array
    hidden: HiddenChanges = NOTHING_HIDDEN


class Offer(NamedTuple):
    """What is drawn of an offer at once; leaves [*streams]."""

    node: Array  # int32, the world's own index
    link: Array  # int32, kind of link from the site of arrival to the node
    accepted: Array  # bool: the agent accepted
    possible: Array  # bool: the node is up and may host the service
    there_s: Array  # when the input has arrived
    run_s: Array  # the true run time on a whole core of the node
    drop_s: Array  # when it is dropped if it has not started; inf if never
    way_back_s: Array  # how long the output takes on a sound link; 0 without output
    service: Array  # int32, the world's own index
    killed_after_s: Array | None = None  # run time, in worlds that kill what reaches the declared one


def empty_queues(key: Array, world: World, today: DayConditions, streams: Streams) -> CoreQueues:
    """Nothing of the day in the system; leaves [cores, nodes, *streams]."""
    hidden = draw_hidden(key, world, today, streams)
    exists = jnp.asarray(today.core_exists)
    free_s = jnp.where(exists, jnp.float32(0.0), jnp.float32(jnp.inf)).reshape(
        (*exists.shape, *(1,) * len(streams))
    )
    free_s = jnp.broadcast_to(free_s, (*exists.shape, *streams))
    return CoreQueues(free_s if hidden.taken_s is None else jnp.maximum(free_s, hidden.taken_s), hidden)


def draw_offer(
    key: Array,
    world: World,
    today: DayConditions,
    names: Names,
    request: Requests,
    clock_s: Array,
    node: Array,
    willing: Array | None = None,
    hidden: HiddenChanges = NOTHING_HIDDEN,
) -> Offer:
    """Draws the part of an offer that does not depend on other requests in the system.

    Args:
        key: PRNG key.
        world: For its laws and options.
        today: The day's numbers, failures on the clock of `clock_s`.
        names: Vocabulary that the request and `node` refer to.
        request: Leaves [*streams], its demand [resources, *streams].
        clock_s: [*streams] now, on the episode's clock.
        node: [*streams] int32, the offer.
        willing: [*streams] factor in [0, 1] of the agent's probability to accept; None for 1.
        hidden: Hidden changes of the day.
    """
    numbers = uniforms(key, 3, clock_s.shape)
    node = jnp.asarray(names.world_node)[node]
    site = jnp.asarray(names.world_site)[request.site]
    service = jnp.asarray(names.world_service)[request.service]
    link = jnp.asarray(today.link)[site, node]
    preference = jnp.asarray(today.accepts)[link, request.agent]
    accepted = numbers[0] < (preference if willing is None else preference * willing)
    latency_s = _latency_s(world, today, link, numbers[1])
    s_per_mib = jnp.asarray(today.s_per_mib)[link]
    there_s = clock_s + way_s(world, today, link, clock_s, latency_s + request.input_mib * s_per_mib)
    speed = jnp.asarray(today.speed)[node] * jnp.asarray(today.affinity)[service, node]
    run_s = needed(world, today, names, request, world.run.quantile(numbers[2])) / speed
    if hidden.work is not None:
        run_s = run_s * value_at(hidden.work, clock_s[None])[0]
    drop_s = clock_s + request.deadline_s if world.drop_late else jnp.full_like(clock_s, jnp.inf)
    way_back_s = jnp.zeros_like(clock_s)
    if world.has_output:
        number = uniforms(jax.random.fold_in(key, _WAY_BACK), 1, clock_s.shape)[0]
        output_mib = jnp.asarray(today.output_mib)[service]
        way_s_back = _latency_s(world, today, link, number) + output_mib * s_per_mib
        way_back_s = jnp.where(output_mib > 0.0, way_s_back, 0.0)
    possible = jnp.asarray(today.hosts)[service, node]
    if world.outages:
        possible &= jnp.any(one_hot(node, today.speed.shape[0]) & is_up(world, today, clock_s), axis=0)
    killed_after_s = declared_run_s(names, request) if world.declared.kills else None
    return Offer(node, link, accepted, possible, there_s, run_s, drop_s, way_back_s, service, killed_after_s)


def answer(
    key: Array,
    world: World,
    today: DayConditions,
    names: Names,
    queues: CoreQueues,
    request: Requests,
    clock_s: Array,
    node: Array,
) -> tuple[CoreQueues, Fate]:
    """Offers one request to a node and draws its outcome; arguments as of `draw_offer`.

    Returns:
        The queues afterwards and the fate, leaves [*streams].
    """
    hidden = queues.hidden
    offer = draw_offer(key, world, today, names, request, clock_s, node, hidden=hidden)
    here = one_hot(offer.node, today.speed.shape[0])
    free_s = jnp.min(jnp.where(here[None], queues.free_s, jnp.inf), axis=1)
    start_s = jnp.maximum(offer.there_s, jnp.min(free_s, axis=0))
    fate, held_until_s, takes_core = _ending(
        world, today, offer, here, clock_s, start_s, _run_s(hidden, offer, start_s)
    )
    core = one_hot(jnp.argmin(free_s, axis=0), free_s.shape[0])
    taken = core[:, None] & here[None] & takes_core[None, None]
    queues = queues._replace(free_s=jnp.where(taken, held_until_s[None, None], queues.free_s))
    return queues, Fate(
        offer.accepted,
        jnp.where(offer.accepted, fate.start_s, jnp.inf),
        jnp.where(offer.accepted, fate.finish_s, jnp.inf),
        jnp.where(offer.accepted, fate.status, REJECTED).astype(jnp.int32),
    )


def _ending(
    world: World,
    today: DayConditions,
    offer: Offer,
    here: Array,
    clock_s: Array,
    start_s: Array,
    run_s: Array,
) -> tuple[Fate, Array, Array]:
    """Fate of an offer taken; when its core is free again; whether it takes one."""
    status = jnp.full(clock_s.shape, COMPLETED, jnp.int32)
    if offer.killed_after_s is not None:
        status = jnp.where(run_s > offer.killed_after_s, FAILED, status)
        run_s = jnp.minimum(run_s, offer.killed_after_s)
    end_s = start_s + run_s
    finish_s, takes_core = end_s, offer.accepted
    if world.drop_late:
        dropped = start_s > offer.drop_s
        start_s = jnp.where(dropped, jnp.inf, start_s)
        end_s = jnp.where(dropped, offer.drop_s, end_s)
        status, takes_core = jnp.where(dropped, DROPPED, status), takes_core & ~dropped
        finish_s = end_s
    if world.outages:
        now_s = jnp.broadcast_to(clock_s[None], here.shape)
        down_s = jnp.min(jnp.where(here, next_down_s(world, today, now_s), jnp.inf), axis=0)
        fails = end_s > down_s
        start_s = jnp.where(fails & (start_s >= down_s), jnp.inf, start_s)
        end_s = jnp.minimum(end_s, down_s)
        status, finish_s = jnp.where(fails, FAILED, status), end_s
    if world.has_output:
        back_s = way_s(world, today, offer.link, end_s, offer.way_back_s)
        finish_s = jnp.where(status == COMPLETED, end_s + back_s, end_s)
    possible = offer.possible
    fate = Fate(
        offer.accepted,
        jnp.where(possible, start_s, jnp.inf),
        jnp.where(possible, finish_s, clock_s),
        jnp.where(possible, status, FAILED),
    )
    return fate, end_s, takes_core & possible


def _run_s(hidden: HiddenChanges, offer: Offer, start_s: Array) -> Array:
    """[*streams] how long the run takes that begins at `start_s`."""
    if hidden.speed is None:
        return offer.run_s
    return time_for(of_chain(hidden.speed, offer.node), start_s, offer.run_s)


def _latency_s(world: World, today: DayConditions, link: Array, uniform: Array) -> Array:
    kinds = (world.local, world.cross_site, world.wan)
    noise = jnp.stack([kind.noise.quantile(uniform) for kind in kinds])
    chosen = jnp.sum(jnp.where(one_hot(link, len(kinds)), noise, 0.0), axis=0)
    return chosen * jnp.asarray(today.latency_s)[link]
