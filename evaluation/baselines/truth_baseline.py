"""What a baseline is that knows more than a policy may observe: it reads the tables of the simulated truth.

It is judged only there. It sees the bookkeeping's whole state (no drawn fate: what has not happened is hidden from it
too) and the day's numbers, which may be those of another day than the one it acts on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.behaviour import Behaviour, BehaviourView
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.hosting import allowed_nodes
from evaluation.simulator.names import Names
from evaluation.simulator.world import World
from twin.contracts import Array
from twin.placement.types import EMPTY, PlacementState

Knowing = Callable[[Array, World, Names, DayConditions, PlacementState], Array]
"""(key, world, names, known day's numbers, state) -> action [1, *streams] in the cluster's vocabulary."""


@dataclass(frozen=True)
class TruthBaseline:
    """A rule of thumb of somebody who knows the world.

    Attributes:
        name: As in tables and on the command line.
        description: One sentence.
        decide: How it decides.
    """

    name: str
    description: str
    decide: Knowing


def as_behaviour(behaviour: Behaviour) -> Knowing:
    """The decision of a policy that writes logs, taken from the bookkeeping's view of the world."""

    def decide(key: Array, world: World, names: Names, today: DayConditions, state: PlacementState) -> Array:
        in_world = np.argsort(names.world_node)  # node of the vocabulary that every node of the world is
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
    """What a behaviour sees, in the world's own indices; leaves [..., streams]."""
    table, clock = state.in_flight, state.clock_s[None, None]
    held = (table.decision != EMPTY) & (table.finish_s > clock)
    count = jnp.sum(held, axis=1, dtype=jnp.float32)[in_world]
    work_s = jnp.sum(jnp.where(held, table.expected_run_s, 0.0), axis=1)[in_world]
    request = jax.tree.map(lambda leaf: leaf[0], state.request)._replace(demand=state.request.demand[:, 0])
    request = request._replace(
        site=jnp.asarray(names.world_site)[request.site],
        service=jnp.asarray(names.world_service)[request.service],
    )
    allowed = allowed_nodes(world, today, request.service, state.available[in_world])
    return BehaviourView(request, count, work_s, allowed)
