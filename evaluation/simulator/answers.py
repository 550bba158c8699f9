"""How the cluster answers an offer: the agent's yes or no, the way there, the queue, the run.

Queues. Every core has the time at which the work given to it ends (Kiefer and Wolfowitz's vector). An
accepted request gets the core of the offered node that is free first, starts when both that core is free and
its input has arrived, and holds the core until it finishes. So the place in the queue is taken at dispatch;
without transfer times this is first come, first served with several servers, exactly.

    start  = max(clock + latency * noise + input / bandwidth, min over cores of free)
    finish = start + declared run * scatter / (speed of node * affinity of the service to it)

Fates are drawn at the decision; when they become observable is the business of the response that holds them.
A rejected offer is lost: it takes nothing and finishes never.

Source: J. Kiefer and J. Wolfowitz, On the theory of queues with many servers, 1955.
"""

from typing import NamedTuple

import jax.numpy as jnp

from evaluation.simulator.arrivals import uniforms
from evaluation.simulator.conditions import Conditions
from evaluation.simulator.names import Names
from evaluation.simulator.world import World
from twin.contracts import Array, Streams
from twin.placement.types import COMPLETED, REJECTED, Fate, Requests


class Queues(NamedTuple):
    """Private state of the answers."""

    free_s: (
        Array  # [cores, nodes, *streams] episode time at which a core's work ends; inf where there is no core
    )


def empty_queues(today: Conditions, streams: Streams) -> Queues:
    """Nothing in the system; leaves [cores, nodes, *streams]."""
    exists = jnp.asarray(today.core_exists)
    free_s = jnp.where(exists, 0.0, jnp.inf).reshape((*exists.shape, *(1,) * len(streams)))
    return Queues(jnp.broadcast_to(free_s, (*exists.shape, *streams)))


def answer(
    key: Array,
    world: World,
    today: Conditions,
    names: Names,
    queues: Queues,
    request: Requests,
    clock_s: Array,
    node: Array,
) -> tuple[Queues, Fate]:
    """Offers one request to a node and draws what becomes of it.

    Args:
        key: PRNG key.
        world: For its laws.
        today: The day's numbers.
        names: Vocabulary that the request and `node` refer to.
        queues: The cores.
        request: Leaves [*streams], its demand [resources, *streams].
        clock_s: [*streams] now, on the episode's clock.
        node: [*streams] int32, the offer.

    Returns:
        The queues afterwards and the fate, leaves [*streams].
    """
    numbers = uniforms(key, 3, clock_s.shape)
    node = jnp.asarray(names.world_node)[node]
    site = jnp.asarray(names.world_site)[request.site]
    service = jnp.asarray(names.world_service)[request.service]
    link = jnp.asarray(today.link)[site, node]
    accepted = numbers[0] < jnp.asarray(today.accepts)[link, request.agent]
    arrives_s = clock_s + _transfer_s(world, today, link, request.input_mib, numbers[1])
    here = _one_hot(node, today.speed.shape[0])
    free_s = jnp.min(jnp.where(here[None], queues.free_s, jnp.inf), axis=1)
    start_s = jnp.maximum(arrives_s, jnp.min(free_s, axis=0))
    speed = jnp.asarray(today.speed)[node] * jnp.asarray(today.affinity)[service, node]
    finish_s = start_s + request.expected_run_s * world.run.quantile(numbers[2]) / speed
    core = _one_hot(jnp.argmin(free_s, axis=0), free_s.shape[0])
    taken = core[:, None] & here[None] & accepted[None, None]
    queues = Queues(jnp.where(taken, finish_s[None, None], queues.free_s))
    return queues, Fate(
        accepted,
        jnp.where(accepted, start_s, jnp.inf),
        jnp.where(accepted, finish_s, jnp.inf),
        jnp.where(accepted, COMPLETED, REJECTED).astype(jnp.int32),
    )


def _transfer_s(world: World, today: Conditions, link: Array, input_mib: Array, uniform: Array) -> Array:
    kinds = (world.local, world.cross_site, world.wan)
    noise = jnp.stack([kind.noise.quantile(uniform) for kind in kinds])
    latency_s = (
        jnp.sum(jnp.where(_one_hot(link, len(kinds)), noise, 0.0), axis=0)
        * jnp.asarray(today.latency_s)[link]
    )
    return latency_s + input_mib * jnp.asarray(today.s_per_mib)[link]


def _one_hot(index: Array, size: int) -> Array:
    return jnp.arange(size, dtype=jnp.int32).reshape((-1,) + (1,) * index.ndim) == index[None]
