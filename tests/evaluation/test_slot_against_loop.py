"""Slot mode against a plain Python loop written from the same rules, event by event."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.arrivals import uniforms
from evaluation.simulator.conditions import conditions
from evaluation.simulator.options import Outage
from evaluation.simulator.presets import preset
from evaluation.simulator.slots.config import SlotConfig
from evaluation.simulator.slots.deployment import Orchestration
from evaluation.simulator.slots.dequeue import DELAY_GREEDY, HYBRID
from evaluation.simulator.slots.instance import Instance, instance
from evaluation.simulator.slots.problem import SlotState, slot_problem
from evaluation.simulator.slots.response import draw, slot_response
from evaluation.simulator.slots.worlds import hurried
from evaluation.simulator.world import World
from tests.reference.slot_loop import SlotLoop
from twin.contracts import Array, PyTree
from twin.environment import environment

STATUS = {0: "completed", 1: "failed", 2: "dropped", 3: "refused"}


class Lived(NamedTuple):
    """What the arrays say of a run; NumPy."""

    first: np.ndarray
    numbers: np.ndarray
    changes: Any
    seen: Any
    state: Any
    left: Any
    remaining: Any


def random_policy(key: Array, legal: Array) -> Array:
    """A legal node by chance."""
    score = jnp.where(legal, jax.random.uniform(key, legal.shape), -1.0)
    return jnp.argmax(score, axis=0).astype(jnp.int32)


def shuffling(case: Instance) -> Callable[[Array, SlotState], Orchestration]:
    """Changes the deployment by chance; much of what it asks for cannot be."""
    num_services, num_nodes = case.run_factor.shape

    def ask(key: Array, state: SlotState) -> Orchestration:
        key_node, key_change = jax.random.split(key)
        shape = (3, *state.placement.clock_s.shape)
        node = jax.random.randint(key_node, shape, 0, num_nodes)
        return Orchestration(node, jax.random.randint(key_change, shape, -num_services + 1, num_services))

    return ask


def live(case: Instance, num_slots: int, num_streams: int, *, orchestrated: bool = False) -> Lived:
    """Runs the arrays under a random policy and keeps everything that was drawn and seen."""
    orchestrator = shuffling(case) if orchestrated else None
    system = environment(slot_problem(case), slot_response(case, 0.0, orchestrator))
    problem, streams = system.problem, (num_streams,)

    def one(state: PyTree, key: Array) -> tuple[PyTree, tuple]:
        key_policy, key_response = jax.random.split(key)
        key_drawn, key_orchestrator = jax.random.split(key_response)
        legal, active = problem.legal(state.problem), problem.active(state.problem)
        seen = (problem.observe(state.problem), legal, active, state.problem.view.arrived_s)
        asked = None if orchestrator is None else orchestrator(key_orchestrator, state.problem)
        following, transition = system.step(key_response, state, random_policy(key_policy, legal))
        numbers = draw(case, key_drawn, streams)
        return following, (seen, transition.action, transition.left, numbers, asked)

    def run(key: Array) -> tuple:
        key_reset, key_steps = jax.random.split(key)
        first = uniforms(key_reset, 1, (case.num_seats, *streams))[0]
        state = system.reset(key_reset, streams)
        state, (seen, action, left, numbers, asked) = jax.lax.scan(
            one, state, jax.random.split(key_steps, num_slots)
        )
        remaining = system.settle(state)
        return first, numbers, asked, (*seen, action), state, left, remaining

    return Lived(*jax.tree.map(np.asarray, jax.jit(run)(jax.random.key(1))))


def follow(case: Instance, lived: Lived, stream: int, world: World, *, look: bool) -> SlotLoop:
    """Lets the loop take the same decisions with the same numbers, comparing all that is seen on the way."""
    today, config = conditions(world, 0.0), case.config
    loop = SlotLoop(world, today, config, case.replicas[1:], single=True)
    loop.begin(lived.first[:, stream].tolist())
    observation, legal, active, arrived_s, action = lived.seen
    for slot in range(len(action)):
        change = None
        if lived.changes is not None and slot % config.slots_per_frame == 0:
            asked = lived.changes
            change = list(
                zip(asked.node[slot, :, stream].tolist(), asked.change[slot, :, stream].tolist(), strict=True)
            )
        sites = range(case.num_seats)
        assert [loop.active(site) for site in sites] == active[slot, :, stream].tolist(), slot
        for site in sites:
            if not loop.active(site):
                continue
            assert loop.legal(site) == legal[slot, :, site, stream].tolist()
            np.testing.assert_allclose(arrived_s[slot, site, stream], loop.hand[site]["arrival_s"], rtol=1e-5)
        if look:
            compare_observation(loop, observation, slot, stream)
        nodes = [int(action[slot, site, stream]) if active[slot, site, stream] else None for site in sites]
        loop.step(nodes, lived.numbers[slot, :, :, stream].tolist(), change)
    return loop


def compare_observation(loop: SlotLoop, observation: Any, slot: int, stream: int) -> None:
    seen, _ = loop.observe_nodes()
    for site in range(loop.num_sites):
        at = (slot, ..., site, stream)
        if loop.hand[site] is None:
            continue
        np.testing.assert_allclose(observation.node[at], np.array(seen[site]), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(observation.request[at], loop.observe_request(site), rtol=1e-4, atol=1e-4)


def compare_outcomes(loop: SlotLoop, lived: Lived, stream: int) -> int:
    """Every decision that left the arrays came to the same end in the loop; and the totals agree."""
    settled = 0
    for records in (lived.left, jax.tree.map(lambda leaf: leaf[None], lived.remaining)):
        rows = np.argwhere((records.decision[..., stream] >= 0) & records.settled[..., stream])
        for slot, row in rows:
            at = (slot, row, stream)
            request = loop.log[int(records.decision[at])]
            assert STATUS[int(records.outcome.status[at])] == request["status"]
            np.testing.assert_allclose(records.outcome.finish_s[at], request["finish_s"], rtol=1e-5)
            np.testing.assert_allclose(records.outcome.start_s[at], request["start_s"], rtol=1e-5)
            settled += 1
    counts = lived.state.problem.view.counts
    assert {name: int(getattr(counts, name)[stream]) for name in loop.counts} == loop.counts
    for name, amount in loop.amounts.items():
        np.testing.assert_allclose(getattr(counts, name)[stream], amount, rtol=1e-3)
    deployment = lived.state.problem.view.deployment
    assert deployment.replicas[1:, :, stream].tolist() == loop.replicas
    np.testing.assert_allclose(deployment.used_gib[:, stream], loop.used_gib, rtol=1e-4)
    assert settled == sum(one["status"] != "open" for one in loop.log.values())
    return settled


def small_kais(num_sites: int = 2, num_nodes: int = 3) -> World:
    """A corner of the kais preset: two sites of three nodes and two cloud machines; its load is kept."""
    world = preset("kais")
    sites = world.sites[:num_sites]
    kept = [node for site in sites for node in [one for one in world.nodes if one.site == site][:num_nodes]]
    cloud = [node for node in world.nodes if node.site == world.cloud_site][:2]
    share = sum(n.cpu_cores * n.speed for n in kept + cloud) / sum(n.cpu_cores * n.speed for n in world.nodes)
    return replace(
        world, sites=sites, nodes=(*kept, *cloud), services=world.services[:8], num_agents=20,
        requests_per_day=world.requests_per_day * share, drift=type(world.drift)(),
    )  # fmt: skip


CONFIGS = {
    "fifo": SlotConfig(),
    "delay_greedy": SlotConfig(eap_queue=DELAY_GREEDY, node_queue=DELAY_GREEDY, only_where_room=True),
    "hybrid": SlotConfig(eap_queue=HYBRID, node_queue=HYBRID, drop_served=False, agents_answer=True),
    "shared": SlotConfig(node_places=5, queue_places=4, arrivals_per_slot=1),
}


def eventful(world: World) -> World:
    """Nodes that share their cores, answers to send back, a service bound to the cloud, a node that fails."""
    nodes = tuple(replace(node, discipline="ps") for node in world.nodes[:-1])
    services = tuple(replace(service, output_mib=0.5 * service.input_mib) for service in world.services)
    bound = replace(services[0], only_on=("cloud",))
    outage = Outage(world.nodes[1].name, (0,), 20.0, 30.0)
    return replace(world, nodes=(*nodes, world.nodes[-1]), services=(bound, *services[1:]), outages=(outage,))


@pytest.mark.parametrize("name", CONFIGS)
def test_small_kais_agrees_event_by_event(name: str) -> None:
    config = CONFIGS[name]
    world = hurried(small_kais(), config, 0.7)
    world = eventful(world) if name == "shared" else world
    case = instance(world, config)
    lived = live(case, 300, 2, orchestrated=name in ("hybrid", "shared"))
    for stream in range(2):
        loop = follow(case, lived, stream, world, look=stream == 0)
        assert compare_outcomes(loop, lived, stream) > 100
        print(name, loop.counts, loop.amounts)
