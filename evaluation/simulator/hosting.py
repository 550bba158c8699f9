"""The nodes that may take a request: by the rules of its service, and by availability.

Rules (Xiong et al., section 2) are candidate sets in the sense of `Cluster.rules`, so that legality follows from them,
and the column `candidates` of a log. An offer outside of them fails at once (`evaluation.simulator.answers`).
"""

import jax.numpy as jnp
import numpy as np

from evaluation.simulator.conditions import DayConditions, hosting
from evaluation.simulator.world import World
from twin.contracts import Array


def host_rules(world: World) -> tuple[np.ndarray, np.ndarray]:
    """The distinct candidate sets of a world, in its own order.

    Returns:
        [rules, nodes] bool, the first allowing every node, and int32 [services] which of them each service has.
    """
    hosts = hosting(world)
    rules = [np.ones(len(world.nodes), bool)]
    for row in hosts:
        if not any(np.array_equal(row, rule) for rule in rules):
            rules.append(row)
    return np.array(rules), rule_of_services(hosts, np.array(rules))


def rule_of_services(hosts: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """int32 [services] the smallest of the rules [rules, nodes] that allows each service's hosts [services, nodes]."""
    holds = np.all(rules[None] >= hosts[:, None], axis=2)
    size = np.where(holds, rules.sum(axis=1)[None], rules.shape[1] + 1)
    return np.argmin(size, axis=1).astype(np.int32)


def allowed_nodes(world: World, today: DayConditions, service: Array, up: Array) -> Array | None:
    """Which nodes may be offered a request.

    Args:
        world: Whether it has rules or outages at all.
        today: The day's numbers.
        service: int32 [*streams], the world's own index.
        up: [nodes, *streams] bool.

    Returns:
        [nodes, *streams] bool, or None where the world allows all nodes always. Where nothing that is up may host the
        request every node that is up is allowed, and where nothing is up every node is: a decision always exists.
    """
    if not (world.outages or world.has_rules):
        return None
    hosts = jnp.moveaxis(jnp.asarray(today.hosts)[service], -1, 0)
    allowed = hosts & up
    allowed = jnp.where(jnp.any(allowed, axis=0)[None], allowed, up)
    return allowed | ~jnp.any(up, axis=0)[None]
