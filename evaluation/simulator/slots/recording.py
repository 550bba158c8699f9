"""Days by slots, run under a dispatcher and an orchestrator and kept in full: what logs are made of.

Several days are one program: what differs from day to day is an argument.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import Instance, deployed_on
from evaluation.simulator.world import World
from twin.contracts import Array, Environment, EnvironmentState, PyTree
from twin.orchestration.chance import Chance
from twin.orchestration.config import SlotConfig
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch
from twin.orchestration.joint import DISPATCH, ORCHESTRATE, joint_environment
from twin.orchestration.orchestrator import Orchestrate
from twin.orchestration.queues import next_arrival
from twin.placement.types import PlacementOutcome, Requests
from twin.rollout import credit


class RecordedDay(NamedTuple):
    """A day, slot by slot; times on the clock of the day. A = arrivals a slot may bring to an access point."""

    comes: Array  # [slots, A, seats] bool: a request arrives
    arrival_s: Array  # [slots, A, seats]
    request: Requests  # leaves [slots, A, seats]; its demand is not kept
    sent: Array  # [slots, seats] bool: the request in hand is sent
    arrived_s: Array  # [slots, seats] when that came to its access point
    node: Array  # [slots, seats] int32 where it is sent
    settled: Array  # [slots, seats] bool: its fate is known
    outcome: PlacementOutcome  # leaves [slots, seats]
    replicas: Array  # [slots, services, nodes] int8 as the slot begins
    used_gib: Array  # [slots, nodes]
    running: Array  # [slots, nodes] int8
    waiting: Array  # [slots, nodes] int8
    available: Array  # [slots, nodes] bool


class DayNumbers(NamedTuple):
    """What differs from one day to another."""

    by_site: PyTree
    run_factor: np.ndarray
    pull_s: np.ndarray
    weekday: np.ndarray


def recorder(
    world: World,
    slots: SlotConfig,
    frames: FrameConfig,
    dispatch: Callable[[EdgeCloud], Dispatch],
    orchestrate: Callable[[EdgeCloud], Orchestrate],
) -> Callable[[Array, Sequence[int]], RecordedDay]:
    """Runs days from an empty midnight and the deployment of day 0.

    Args:
        world: At the pace of slots (`slots.time_scaled`).
        slots, frames: See there.
        dispatch, orchestrate: Make the policies for the cluster.

    Returns:
        (keys [days], days) -> what happened, leaves [days, ...]; compiled for every number of days.
    """
    first = deployed_on(world, slots, 0)
    num_slots = int(np.ceil(float(first.by_site.day_s) / slots.slot_s))
    decide, change = dispatch(first.public), orchestrate(first.public)

    def one(key: Array, day: DayNumbers) -> RecordedDay:
        case = _on(first, day)
        chance = true_chance(case)
        system = joint_environment(case.public, chance, frames)
        return recorded_day(key, case.public, chance, system, decide, change, num_slots)

    run = jax.jit(jax.vmap(one))

    def record(keys: Array, days: Sequence[int]) -> RecordedDay:
        numbers = [_day(deployed_on(world, slots, day)) for day in days]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *numbers)
        return jax.tree.map(np.asarray, run(keys, stacked))

    return record


def _day(case: Instance) -> DayNumbers:
    return DayNumbers(case.by_site, case.run_factor, case.public.pull_s, np.asarray(case.weekday))


def _on(case: Instance, day: DayNumbers) -> Instance:
    """The instance with the numbers of a day; what sizes programs stays."""
    return case._replace(
        by_site=day.by_site._replace(day_s=case.by_site.day_s),
        run_factor=day.run_factor,
        weekday=day.weekday,  # type: ignore[arg-type]  # traced
        public=case.public._replace(pull_s=day.pull_s),
    )


def recorded_day(
    key: Array,
    public: EdgeCloud,
    chance: Chance,
    system: Environment,
    decide: Dispatch,
    change: Orchestrate,
    num_slots: int,
) -> RecordedDay:
    """A day of some slots, from an empty midnight.

    Args:
        key: PRNG key.
        public: The cluster.
        chance: Of the truth or of a twin.
        system: Both groups' environment of these two (`joint_environment`).
        decide, change: The dispatcher and the orchestrator.
        num_slots: Length of the day.
    """
    problem = system.problem

    def slot(state: EnvironmentState, key: Array) -> tuple[EnvironmentState, Any]:
        key_dispatch, key_change, key_slot = jax.random.split(key, 3)
        before = state.problem
        legal = problem.legal(before)[DISPATCH]
        sent = before.slot.placement.active
        action = {
            DISPATCH: decide(key_dispatch, before.slot, legal),
            ORCHESTRATE: change(key_change, before.frame),
        }
        numbers = chance.numbers(jax.random.split(key_slot)[0], ())  # as the mechanics draw them
        step: Any
        following, step = system.step(key_slot, state, action)
        after = following.problem
        arrivals = _arrivals(
            public, chance, state.response.queues.next_s, numbers, after.slot.placement.clock_s
        )
        load, deployment = after_load(following), before.slot.view.deployment
        shown = (
            deployment.replicas.astype(jnp.int8),
            after.slot.view.deployment.used_gib,
            *load,
            after.slot.placement.available,
        )
        arrived_s = before.slot.view.arrived_s
        return following, (arrivals, sent, arrived_s, step.action[DISPATCH], step.left[DISPATCH], shown)

    key_reset, key_slots = jax.random.split(key)
    last, kept = jax.lax.scan(slot, system.reset(key_reset, ()), jax.random.split(key_slots, num_slots))
    (comes, came_s, request), sent, arrived_s, node, left, shown = kept
    held: PyTree = system.settle(last)
    settled, outcome = credit(left, held[DISPATCH], sent)
    return RecordedDay(comes, came_s, request, sent, arrived_s, node, settled, outcome, *shown)


def _arrivals(
    public: EdgeCloud, chance: Chance, next_s: Array, numbers: PyTree, until_s: Array
) -> tuple[Array, Array, Requests]:
    """Who arrives in a slot, leaves [A, seats]."""
    found: list[PyTree] = []
    for one in range(public.config.arrivals_per_slot):
        comes, request, following_s = next_arrival(chance, next_s, numbers, one, until_s)
        own = request._replace(demand=next_s, **chance.identity(request.agent))
        found.append((comes, next_s, own))
        next_s = following_s
    stacked: tuple[Array, Array, Requests] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)
    return stacked


def after_load(state: EnvironmentState) -> tuple[Array, Array]:
    """[nodes] int8 requests in service, and at the node or on their way to it otherwise."""
    held = state.response.held
    present = jnp.isfinite(held.arrives_s) & jnp.isinf(held.end_s)
    serving = present & jnp.isfinite(held.start_s)
    return jnp.sum(serving, axis=1, dtype=jnp.int8), jnp.sum(present & ~serving, axis=1, dtype=jnp.int8)
