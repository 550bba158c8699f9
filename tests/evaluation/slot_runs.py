"""Runs of slot mode that keep everything that was drawn and seen, for tests to look at."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.arrivals import uniforms
from evaluation.simulator.options import Outage
from evaluation.simulator.presets import preset
from evaluation.simulator.slots.chance import draw, true_chance
from evaluation.simulator.slots.instance import Instance
from evaluation.simulator.world import World
from twin.contracts import Array, Environment, EnvironmentState, PyTree
from twin.environment import environment
from twin.orchestration.deployment import Orchestration
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, frame_response
from twin.orchestration.frames import frame_problem
from twin.orchestration.mechanics import slot_response
from twin.orchestration.nodes import finishes
from twin.orchestration.slots import SlotState, slot_problem
from twin.placement.features import one_hot


class Watched(NamedTuple):
    """What no rule may break, after every slot; leaves [slots, *streams]."""

    cores: Array  # requests in service beyond what a node takes at once, the worst node
    replicas: Array  # requests of a service in service beyond its replicas on a node, the worst
    memory: Array  # GiB of replicas beyond a node's memory, the worst
    queued: Array  # requests at access points
    held: Array  # requests at nodes, on their way there or back


class SlotRun(NamedTuple):
    """A run, as NumPy."""

    first: np.ndarray  # [sites, streams] uniform numbers of the first arrivals
    numbers: np.ndarray  # [slots, rows, sites, streams]
    changes: Any  # Orchestration, leaves [slots, H, streams], or None
    observation: Any
    legal: np.ndarray
    active: np.ndarray
    arrived_s: np.ndarray
    action: np.ndarray
    left: Any
    counts: Any  # leaves [slots, streams]
    watched: Watched
    state: Any
    remaining: Any


def random_policy(case: Instance) -> Callable[[Array, Array], Array]:
    """A legal node by chance, the same whatever the order of the nodes."""

    def decide(key: Array, legal: Array) -> Array:
        score = jax.random.uniform(key, legal.shape)[case.names.world_node]
        return jnp.argmax(jnp.where(legal, score, -1.0), axis=0).astype(jnp.int32)

    return decide


def shuffling(case: Instance) -> Callable[[Array, SlotState], Orchestration]:
    """Changes the deployment by chance; much of what it asks for cannot be."""
    num_services, num_nodes = case.public.num_services, case.public.num_nodes

    def ask(key: Array, state: SlotState) -> Orchestration:
        key_node, key_change = jax.random.split(key)
        shape = (3, *state.placement.clock_s.shape)
        node = jax.random.randint(key_node, shape, 0, num_nodes)
        return Orchestration(node, jax.random.randint(key_change, shape, -num_services + 1, num_services))

    return ask


def watch(case: Instance, state: EnvironmentState) -> Watched:
    """Looks into the private state for what must not be."""
    held, deployment, clock = (
        state.response.held,
        state.problem.view.deployment,
        state.problem.placement.clock_s,
    )
    now = clock[None, None]
    serving = (held.start_s <= now) & (held.end_s > now)
    same = one_hot(held.service, case.public.num_services) & serving[None]
    trailing = (1,) * clock.ndim
    at_once, memory_gib = (
        jnp.asarray(one).reshape((-1, *trailing)) for one in (case.public.at_once, case.public.memory_gib)
    )
    there = jnp.isfinite(held.arrives_s) & (finishes(held) > now)
    return Watched(
        jnp.max(jnp.sum(serving, axis=1) - at_once, axis=0),
        jnp.max(jnp.sum(same, axis=2) - deployment.replicas, axis=(0, 1)),
        jnp.max(deployment.used_gib - memory_gib, axis=0),
        jnp.sum(jnp.isfinite(state.response.queues.arrival_s), axis=(0, 1)),
        jnp.sum(there, axis=(0, 1)),
    )


def system_of(case: Instance, *, orchestrated: bool = False) -> Environment:
    """The environment of an instance, its deployment shuffled or left alone."""
    orchestrator = shuffling(case) if orchestrated else None
    return environment(slot_problem(case.public), slot_response(case.public, true_chance(case), orchestrator))


def frame_environment(case: Instance, dispatch: Dispatch, config: FrameConfig) -> Environment:
    """Orchestration of an instance, frame by frame, while `dispatch` plays the slots in between."""
    response = frame_response(case.public, true_chance(case), dispatch, config)
    return environment(frame_problem(case.public, config), response)


def runner(
    case: Instance, num_slots: int, num_streams: int, *, orchestrated: bool = False
) -> Callable[[Array], SlotRun]:
    """A jitted run under the random policy."""
    system, decide, streams = system_of(case, orchestrated=orchestrated), random_policy(case), (num_streams,)
    problem, orchestrator = system.problem, shuffling(case)

    def one(state: PyTree, key: Array) -> tuple[PyTree, tuple]:
        key_policy, key_response = jax.random.split(key)
        key_drawn, key_orchestrator = jax.random.split(key_response)
        legal, active = problem.legal(state.problem), problem.active(state.problem)
        seen = (problem.observe(state.problem), legal, active, state.problem.view.arrived_s)
        asked = orchestrator(key_orchestrator, state.problem) if orchestrated else None
        following, transition = system.step(key_response, state, decide(key_policy, legal))
        drawn = (draw(case, key_drawn, streams), asked)
        after = (transition.left, following.problem.view.counts, watch(case, following))
        return following, (*drawn, *seen, transition.action, *after)

    def run(key: Array) -> SlotRun:
        key_reset, key_steps = jax.random.split(key)
        first = uniforms(key_reset, 1, (case.public.num_seats, *streams))[0]
        state, steps = jax.lax.scan(
            one, system.reset(key_reset, streams), jax.random.split(key_steps, num_slots)
        )
        return SlotRun(first, *steps, state, system.settle(state))

    return jax.jit(run)


def live(run: Callable[[Array], SlotRun], seed: int = 1) -> SlotRun:
    """One run as NumPy."""
    return SlotRun(*jax.tree.map(np.asarray, tuple(run(jax.random.key(seed)))))


def small_kais(num_sites: int = 2, num_nodes: int = 3) -> World:
    """A corner of the kais preset: two sites of three nodes and two cloud machines; its load is kept."""
    world = preset("kais")
    sites = world.sites[:num_sites]
    kept = [node for site in sites for node in [one for one in world.nodes if one.site == site][:num_nodes]]
    cloud = [node for node in world.nodes if node.site == world.cloud_site][:2]
    share = sum(n.cpu_cores * n.speed for n in kept + cloud) / sum(n.cpu_cores * n.speed for n in world.nodes)
    return replace(
        world,
        sites=sites,
        nodes=(*kept, *cloud),
        services=world.services[:8],
        num_agents=20,
        requests_per_day=world.requests_per_day * share,
        drift=type(world.drift)(),
    )


def eventful(world: World) -> World:
    """Nodes that share their cores, answers to send back, a service bound to the cloud, a node that fails."""
    nodes = tuple(replace(node, discipline="ps") for node in world.nodes[:-1])
    services = tuple(replace(service, output_mib=0.5 * service.input_mib) for service in world.services)
    bound = replace(services[0], only_on=("cloud",))
    outage = Outage(world.nodes[1].name, (0,), 20.0, 30.0)
    return replace(world, nodes=(*nodes, world.nodes[-1]), services=(bound, *services[1:]), outages=(outage,))
