"""A game of orchestration whose optimum is known: two services are wanted at one access point.

In every state one access point is loaded, and two services are wanted as much as each other; some nodes have room. A
change counts if it adds a replica of a wanted service at a node of that access point that has room, and every service
counts once: so the best pair is worth 1. Who chooses the second change without seeing the first cannot know which of
the two is left, and gets .75 at most.
"""

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.orchestration.stepwise_actor import ChangeView
from tests.small_games import game, one_step
from twin.contracts import Array, Environment, PyTree, Streams

NUM_SERVICES, NUM_CHANGES = 3, 2


def read(observation: ChangeView, _legal: PyTree) -> ChangeView:
    """What the first seat sees, which all do."""
    axes = (2, 2, 2, 3, 3, 1)
    return ChangeView(*(jnp.take(leaf, 0, axis=axis) for leaf, axis in zip(observation, axes, strict=True)))


def wanted(num_points: int, nodes_a_point: int) -> Environment:
    """The game, of access points with so many nodes each."""
    num_nodes = num_points * nodes_a_point
    point_of_node = np.array(points_of(num_points, nodes_a_point))

    def draw(key: Array, streams: Streams) -> ChangeView:
        key_point, key_left, key_room = jax.random.split(key, 3)
        loaded = jax.random.randint(key_point, streams, 0, num_points)
        point = _one_hot(loaded, num_points)
        unwanted = _one_hot(jax.random.randint(key_left, streams, 0, NUM_SERVICES), NUM_SERVICES)
        room = jax.random.bernoulli(key_room, 0.6, (num_nodes, *streams))
        pair = jnp.zeros((1, NUM_SERVICES, num_nodes, *streams))
        adds = jnp.broadcast_to(room, (NUM_SERVICES, *room.shape))
        able = jnp.stack([adds, jnp.zeros_like(adds)])
        node = jnp.stack([room.astype(jnp.float32), jnp.ones(room.shape)])
        return ChangeView(node, point[None], (1.0 - unwanted)[None], pair, able, jnp.ones(room.shape, bool))

    def seats(view: ChangeView, axes: tuple[int, ...]) -> ChangeView:
        return ChangeView(
            *(
                jnp.repeat(jnp.expand_dims(leaf, axis), NUM_CHANGES, axis)
                for leaf, axis in zip(view, axes, strict=True)
            )
        )

    def legal(view: ChangeView) -> PyTree:
        changes = jnp.ones((2 * NUM_SERVICES + 1, NUM_CHANGES, *view.up.shape[1:]), bool)
        return {"a_node": jnp.repeat(view.up[:, None], NUM_CHANGES, 1), "change": changes}

    def pays(view: ChangeView, action: PyTree) -> Array:
        node, change = action["a_node"], action["change"]  # [H, *streams]
        loaded = jnp.take_along_axis(view.point[0], jnp.asarray(point_of_node)[node], axis=0) > 0.5
        room = jnp.take_along_axis(view.node[0], node, axis=0) > 0.5
        service = jnp.clip(change - 1, 0, NUM_SERVICES - 1)
        adds = (change >= 1) & (change <= NUM_SERVICES)
        counts = loaded & room & adds & (jnp.take_along_axis(view.service[0], service, axis=0) > 0.5)
        again = counts[1] & counts[0] & (service[1] == service[0])
        total = 0.5 * (jnp.sum(counts, axis=0) - again)
        return jnp.broadcast_to(total[None] / NUM_CHANGES, change.shape)

    problem = game(NUM_CHANGES, lambda view: seats(view, (2, 2, 2, 3, 3, 1)), legal)
    return one_step(draw, problem, pays)


def points_of(num_points: int, nodes_a_point: int) -> tuple[int, ...]:
    """[nodes] access point of every node."""
    return tuple(np.repeat(np.arange(num_points), nodes_a_point).tolist())


def view_of(system: Environment) -> ChangeView:
    """Shapes of what is seen."""
    return jax.eval_shape(lambda key: system.reset(key, ()).problem.state, jax.random.key(0))


def _one_hot(index: Array, size: int) -> Array:
    return jnp.moveaxis(jax.nn.one_hot(index, size), -1, 0)
