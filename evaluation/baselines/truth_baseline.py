"""The type of baselines with more information than policies observe: they read the tables of the simulated truth.

They are evaluated in the truth only. Their inputs are the whole bookkeeping state (without future events) and the
conditions of a day, which may be those of another day than the one they act on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.arrivals import declared_run_s
from evaluation.simulator.behaviour import Behaviour, BehaviourView
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.hosting import allowed_nodes
from evaluation.simulator.names import Names
from evaluation.simulator.world import World
from twin.contracts import Array
from twin.placement.types import EMPTY, PlacementState

TruthRule = Callable[[Array, World, Names, DayConditions, PlacementState], Array]
"""(key, world, names, conditions of a day, state) -> action [1, *streams] in the cluster's vocabulary."""


@dataclass(frozen=True)
class TruthBaseline:
    """A heuristic that reads the tables of the simulated world.

    Attributes:
        name: Name in tables and on the command line.
        description: One sentence.
        decide: The rule.
    """

    name: str
    description: str
    decide: TruthRule


def as_behaviour(behaviour: Behaviour) -> TruthRule:
    """A policy that writes logs, as a rule on the bookkeeping state."""

    def decide(key: Array, world: World, names: Names, today: DayConditions, state: PlacementState) -> Array:
        in_world = np.argsort(names.world_node)  # index in the vocabulary of every node of the world
        view = _view(world, names, today, in_world, state)

        def one(key: Array, view: BehaviourView) -> Array:
            return jax.random.choice(key, len(world.nodes), p=behaviour.probabilities(today, view))

        keys = jax.random.split(key, state.clock_s.shape[0])
        chosen = jax.vmap(one, in_axes=(0, -1))(keys, view)
        return jnp.asarray(in_world, jnp.int32)[chosen][None]

    return decide


def _view(
    world: World, names: Names, today: DayConditions, in_world: np.ndarray, state: PlacementState
) -> BehaviourView:
    """The inputs of a behaviour, in the world's own indices; leaves [..., streams]."""
    table, clock = state.in_flight, state.clock_s[None, None]
    in_flight = (table.decision != EMPTY) & (table.finish_s > clock)
    count = jnp.sum(in_flight, axis=1, dtype=jnp.float32)[in_world]
    work_s = jnp.sum(jnp.where(in_flight, table.expected_run_s, 0.0), axis=1)[in_world]
    request = jax.tree.map(lambda leaf: leaf[0], state.request)._replace(demand=state.request.demand[:, 0])
    request = request._replace(
        expected_run_s=declared_run_s(names, request),
        site=jnp.asarray(names.world_site)[request.site],
        service=jnp.asarray(names.world_service)[request.service],
    )
    allowed = allowed_nodes(world, today, request.service, state.available[in_world])
    return BehaviourView(request, count, work_s, allowed)
