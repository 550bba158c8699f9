"""Translates between a world's own indices and the vocabulary of an encoded cluster.

A log is encoded with vocabularies of its own (`twin.placement.types.Cluster`). The truth must speak that
language, so that a policy fitted there can act here; hidden tables stay in the world's own order.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from evaluation.simulator.conditions import hosting, world_draw
from evaluation.simulator.hosting import host_rules, rule_of_services
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError, first
from twin.placement.acceptance import acceptance_of
from twin.placement.run_habits import RunHabits
from twin.placement.service_times import OFFER_KINDS
from twin.placement.timeouts import Timeouts
from twin.placement.types import Cluster


class Names(NamedTuple):
    """World index -> vocabulary index (`site`, `scenario`, `service`), and back (`world_*`)."""

    site: np.ndarray  # [sites of the world] int32
    scenario: np.ndarray
    service: np.ndarray
    world_site: np.ndarray  # [sites of the vocabulary] int32, 0 where the world has none such
    world_service: np.ndarray
    world_node: np.ndarray  # [nodes of the vocabulary] int32
    rule: np.ndarray  # [services of the world] int32, index into the cluster's rules
    acceptance: np.ndarray  # [OFFER_KINDS, agents of the world] float32, in the cluster's vocabulary
    # [services of the vocabulary, agents of the world] float32: what is expected of a request over what it declares
    habit: np.ndarray
    exponent: float = 1.0  # how far that counts
    # [services of the vocabulary] float32: what is typical of each; None where requests count in full
    typical_s: np.ndarray | None = None
    timeouts: Timeouts | None = None  # what policies know of when runs are cut off


def agent_name(agent: int, generation: int = 0) -> str:
    """The name of an agent in logs; the replacement of one that has left for good has its own name."""
    return f"agent-{agent:03d}" + (f".{generation}" if generation else "")


def own_names(world: World) -> Names:
    """The world's own order, without a cluster."""
    sites, scenarios, services, nodes = (
        np.arange(len(part), dtype=np.int32)
        for part in (world.sites, world.scenarios, world.services, world.nodes)
    )
    accepted = np.ones((len(OFFER_KINDS), world.num_agents), np.float32)
    habit = np.ones((len(services), world.num_agents), np.float32)
    return Names(sites, scenarios, services, sites, services, nodes, host_rules(world)[1], accepted, habit)


def names_in(world: World, cluster: Cluster, habits: RunHabits | None = None) -> Names:
    """The world's names in the vocabulary of `cluster`; a hot service that is not in it is "unknown" there. `habits`:
    what an encoding has learned of agents' run times, which policies are shown here as in the log.

    Raises:
        ConfigError: a site, scenario or service of the world is unknown to the cluster, or a node of the
            cluster to the world.
    """
    services = [service.name for service in world.services]
    nodes = [node.name for node in world.nodes]
    site = _positions("site", world.sites, cluster.sites)
    known = [name for name in services if name in cluster.services or name != world.drift.hot_service]
    service = np.zeros(len(services), np.int32)
    service[[services.index(name) for name in known]] = _positions("service", known, cluster.services)
    scenario = _positions("scenario", [one.name for one in world.scenarios], cluster.scenarios)
    node = _positions("node", cluster.node_names, nodes)
    agents = [agent_name(agent) for agent in range(world.num_agents)]
    habit = np.ones((len(cluster.services), len(agents)), np.float32)
    if habits is not None:
        habit[:] = [habits.factor(np.full(len(agents), one), agents) for one in range(len(habit))]
    return Names(
        site=site,
        scenario=scenario,
        service=service,
        world_site=_inverse(site, len(cluster.sites)),
        world_service=_inverse(service, len(cluster.services)),
        world_node=node,
        rule=rule_of_services(hosting(world)[:, node], np.asarray(cluster.rules, bool)),
        acceptance=acceptance_of(
            cluster, pa.array(agents, pa.string()), scenario[world_draw(world).scenario]
        ),
        habit=habit,
        exponent=1.0 if habits is None else habits.exponent,
        typical_s=None if not habits or habits.exponent == 1.0 else habits.typical_s.astype(np.float32),
        timeouts=cluster.timeouts,
    )


def _positions(kind: str, wanted: Sequence[str], vocabulary: Sequence[str]) -> np.ndarray:
    missing = [name for name in wanted if name not in vocabulary]
    if missing:
        raise ConfigError(
            f"the simulated world and the encoded cluster do not share every {kind}: {first(missing)}",
            where=f"{kind}s of the cluster's vocabulary",
            allowed=f"{kind}s among {first(vocabulary, num_shown=20)}",
            advice="encode a log of the same world, over enough days that every name occurs",
        )
    return np.array([list(vocabulary).index(name) for name in wanted], np.int32)


def _inverse(position: np.ndarray, size: int) -> np.ndarray:
    back = np.zeros(size, np.int32)
    back[position] = np.arange(len(position))
    return back
