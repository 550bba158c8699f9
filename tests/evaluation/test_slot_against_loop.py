"""Slot mode against a plain Python loop written from the same rules, event by event; and what holds on every run."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from evaluation.simulator.conditions import conditions
from evaluation.simulator.presets import preset
from evaluation.simulator.slots import DELAY_GREEDY, HYBRID, SlotConfig, time_scaled
from evaluation.simulator.slots.instance import Instance, instance
from evaluation.simulator.world import World
from tests.evaluation.slot_runs import SlotRun, eventful, live, runner, small_kais
from tests.reference.slot_loop import SlotLoop

SLOTS = 300
STATUS = {0: "completed", 1: "failed", 2: "dropped", 3: "refused"}
CONFIGS = {
    "everything": SlotConfig(
        eap_queue=HYBRID,
        node_queue=HYBRID,
        drop_served=False,
        agents_answer=True,
        node_places=6,
        queue_places=4,
        arrivals_per_slot=1,
    ),
    "greedy": SlotConfig(
        eap_queue=DELAY_GREEDY, node_queue=DELAY_GREEDY, only_where_room=True, node_places=5
    ),
    "plain": SlotConfig(),
}
"""The first with everything that worlds and deployments can do; the others leave both alone."""


class Case(NamedTuple):
    """An instance and what was simulated in it."""

    world: World
    instance: Instance
    run: Callable[[jax.Array], SlotRun]
    simulated: SlotRun


def made(world: World, config: SlotConfig, num_slots: int, *, orchestrated: bool) -> Case:
    case = instance(world, config)
    run = runner(case, num_slots, 3, orchestrated=orchestrated)
    return Case(world, case, run, live(run))


@pytest.fixture(
    scope="module",
    params=["everything", *(pytest.param(name, marks=pytest.mark.slow) for name in ("greedy", "plain"))],
)
def case(request: pytest.FixtureRequest) -> Case:
    config, everything = CONFIGS[request.param], request.param == "everything"
    world = time_scaled(small_kais(), config, 0.7)
    return made(eventful(world) if everything else world, config, SLOTS, orchestrated=everything)


def follow(case: Case, stream: int, *, look: int = 0) -> SlotLoop:
    """Lets the loop take the same decisions with the same numbers, comparing what is seen on the way.

    Args:
        case: The run.
        stream: Which of its streams.
        look: Every how many slots to compare observations; 0: never.
    """
    config, simulated = case.instance.public.config, case.simulated
    loop = SlotLoop(
        case.world, conditions(case.world, 0.0), config, case.instance.public.replicas[1:], single=True
    )
    loop.begin(simulated.first[:, stream].tolist())
    sites = range(case.instance.public.num_seats)
    for slot in range(len(simulated.action)):
        active = simulated.active[slot, :, stream].tolist()
        assert [loop.active(site) for site in sites] == active, slot
        for site in np.flatnonzero(active):
            assert loop.legal(site) == simulated.legal[slot, :, site, stream].tolist(), slot
            np.testing.assert_allclose(
                simulated.arrived_s[slot, site, stream], loop.hand[site]["arrival_s"], rtol=1e-5
            )
        if look and slot % look == 0:
            compare_observation(loop, simulated.observation, slot, stream)
        nodes = [int(simulated.action[slot, site, stream]) if active[site] else None for site in sites]
        loop.step(nodes, simulated.numbers[slot, :, :, stream].tolist(), changes_at(case, slot, stream))
    return loop


def changes_at(case: Case, slot: int, stream: int) -> list[tuple[int, int]] | None:
    asked = case.simulated.changes
    if asked is None or slot % case.instance.public.config.slots_per_frame:
        return None
    return list(
        zip(asked.node[slot, :, stream].tolist(), asked.change[slot, :, stream].tolist(), strict=True)
    )


def compare_observation(loop: SlotLoop, observation: Any, slot: int, stream: int) -> None:
    seen, _ = loop.observe_nodes()
    for site in range(loop.num_sites):
        at = (slot, ..., site, stream)
        if loop.hand[site] is not None:
            np.testing.assert_allclose(observation.node[at], np.array(seen[site]), rtol=1e-4, atol=1e-4)
            wanted = loop.observe_request(site)
            np.testing.assert_allclose(observation.request[at], wanted, rtol=1e-4, atol=1e-4)


def compare_outcomes(case: Case, loop: SlotLoop, stream: int) -> int:
    """Every decision that left the arrays came to the same end in the loop, and the totals agree; their number."""
    settled, simulated = 0, case.simulated
    for records in (simulated.left, jax.tree.map(lambda leaf: leaf[None], simulated.remaining)):
        rows = np.argwhere((records.decision[..., stream] >= 0) & records.settled[..., stream])
        for slot, row in rows:
            at = (slot, row, stream)
            request = loop.log[int(records.decision[at])]
            assert STATUS[int(records.outcome.status[at])] == request["status"]
            np.testing.assert_allclose(records.outcome.finish_s[at], request["finish_s"], rtol=1e-5)
            np.testing.assert_allclose(records.outcome.start_s[at], request["start_s"], rtol=1e-5)
            settled += 1
    counts = simulated.state.problem.view.counts
    assert {name: int(getattr(counts, name)[stream]) for name in loop.counts} == loop.counts
    for name, amount in loop.amounts.items():
        np.testing.assert_allclose(getattr(counts, name)[stream], amount, rtol=1e-3)
    deployment = simulated.state.problem.view.deployment
    assert deployment.replicas[1:, :, stream].tolist() == loop.replicas
    np.testing.assert_allclose(deployment.used_gib[:, stream], loop.used_gib, rtol=1e-4)
    assert settled == sum(one["status"] != "open" for one in loop.log.values())
    return settled


def test_agrees_with_the_loop_event_by_event(case: Case) -> None:
    for stream in range(2):
        loop = follow(case, stream, look=3 if stream == 0 else 0)
        assert compare_outcomes(case, loop, stream) > 150
    assert loop.counts["dropped_at_node"] > 0
    if case.simulated.changes is not None:
        assert loop.counts["failed"] > 0
        assert loop.counts["refused"] > 0
        assert loop.replicas != case.instance.public.replicas[1:].tolist()


def test_requests_are_conserved_in_every_slot(case: Case) -> None:
    counts, watched = case.simulated.counts, case.simulated.watched
    at_access_points = counts.arrived - counts.turned_away - counts.dropped_waiting - counts.sent
    np.testing.assert_array_equal(at_access_points, watched.queued)
    over = counts.refused + counts.dropped_at_node + counts.failed + counts.finished
    np.testing.assert_array_equal(counts.sent - over, watched.held)


def test_no_capacity_is_ever_exceeded(case: Case) -> None:
    watched = case.simulated.watched
    assert watched.cores.max() <= 0.0
    assert watched.replicas.max() <= 0.0
    assert watched.memory.max() <= 1e-3
    assert watched.replicas.max() == 0.0  # replicas were the bottleneck at times


def test_littles_law_holds_exactly_between_states_and_records(case: Case) -> None:
    """Requests at nodes, added up over boundaries, are the boundaries that each record says it was there for."""
    simulated, slot_s = case.simulated, case.instance.public.config.slot_s
    for stream in range(3):
        there = 0
        for records in (simulated.left, jax.tree.map(lambda leaf: leaf[None], simulated.remaining)):
            mine = records.decision[..., stream] >= 0
            sent = records.decision[..., stream][mine] // case.instance.public.num_seats
            finish_s = np.minimum(records.outcome.finish_s[..., stream][mine], (SLOTS + 1) * slot_s)
            status = records.outcome.status[..., stream][mine]
            stayed = np.ceil(finish_s.astype(np.float64) / slot_s) - sent - 1
            there += stayed[status != 3].sum()
        assert there == simulated.watched.held[:, stream].sum()


def test_same_key_same_bits_and_nothing_compiled_twice(case: Case) -> None:
    again, other = live(case.run), live(case.run, seed=2)
    assert case.run._cache_size() == 1
    leaves = zip(jax.tree.leaves(case.simulated), jax.tree.leaves(again), strict=True)
    assert all(np.array_equal(one, two, equal_nan=one.dtype.kind == "f") for one, two in leaves)
    assert not np.array_equal(case.simulated.action, other.action)


@pytest.mark.slow
@pytest.mark.parametrize("orchestrated", [False, True], ids=["first deployment", "changing deployment"])
def test_the_whole_preset_agrees_with_the_loop(orchestrated: bool) -> None:
    config = SlotConfig(eap_queue=HYBRID, node_queue=HYBRID) if orchestrated else SlotConfig()
    case = made(time_scaled(preset("kais"), config, 0.7), config, 1_000, orchestrated=orchestrated)
    for stream in range(3):
        loop = follow(case, stream, look=100 if stream == 0 else 0)
        assert compare_outcomes(case, loop, stream) > 1_500
