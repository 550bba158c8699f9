"""The numbers of one day in slot mode: what the mechanics look up, in the cluster's vocabulary, fixed before compiling.

Agents are reordered by site, so that those of a site are neighbours on the distribution function: a uniform number
squeezed into `[low, high)` of a site draws one of its agents.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evaluation.simulator.conditions import LOCAL, WAN, DayConditions, conditions
from evaluation.simulator.names import Names, names_in
from evaluation.simulator.slots.replicas import first_deployment
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import World, validate
from logs_schema.calendar import DAYS_A_WEEK
from logs_schema.errors import ConfigError
from twin.orchestration.config import SlotConfig, validate_config
from twin.orchestration.edge_cloud import EdgeCloud
from twin.placement.types import RESOURCES, Cluster

_MEMORY = RESOURCES.index("memory_gib")


class Instance(NamedTuple):
    """A day of a world as slot mode needs it; services, sites and nodes are indices of `public.cluster`."""

    public: EdgeCloud  # its public description
    world: World
    names: Names
    by_site: DayConditions  # the day, its agents ordered by site
    weekday: int  # 0 for Monday
    agent: np.ndarray  # [agents] int32: own index of every agent of `by_site`
    low: np.ndarray  # [seats]: where a site's agents begin on the distribution function
    share: np.ndarray  # [seats]: and how much of it is theirs
    accepts: np.ndarray  # [links, agents] probability that an agent (own index) accepts
    run_factor: np.ndarray  # [services, nodes]: seconds on the node for a second of declared work
    link: np.ndarray  # [sites, nodes] int32


def instance(world: World, config: SlotConfig, day: float = 0.0, cluster: Cluster | None = None) -> Instance:
    """The numbers of `day` (days since day 0).

    Args:
        world: Any world; it is validated here.
        config: See `SlotConfig`.
        day: Days since day 0.
        cluster: Whose vocabulary to speak; the world's own by default.

    Raises:
        ConfigError: the world or the configuration is invalid, or names of the world are not in the cluster.
    """
    _refuse_options(validate(world))
    validate_config(config)
    cluster = cluster_of(world) if cluster is None else cluster
    today, names = conditions(world, day), names_in(world, cluster)
    node, service = names.world_node, names.world_service
    link = today.link[np.ix_(names.world_site, node)]
    memory_gib = np.array([world.nodes[index].memory_gib for index in node])
    cores = today.core_exists.sum(axis=0)[node]
    order, low, share = _agents_by_site(today)
    replicas = np.zeros((len(cluster.services), cluster.num_nodes), np.int32)
    replicas[names.service] = _deployed(world, today, config)[:, node]
    image_mib = config.image_mib_per_gib * today.memory_gib[service]
    pull = np.where(cluster.is_cloud, LOCAL, WAN)
    public = EdgeCloud(
        config=config,
        cluster=_without_memory(cluster),
        seat_site=names.site,
        cores=cores.astype(np.float32),
        at_once=np.where(today.shares[node], np.inf, cores).astype(np.float32),
        memory_gib=memory_gib.astype(np.float32),
        hosts=today.hosts[np.ix_(service, node)],
        replica_gib=today.memory_gib[service],
        work_s=today.work_s[service],
        output_mib=today.output_mib[service],
        pull_s=(today.latency_s[pull] + image_mib[:, None] * today.s_per_mib[pull]).astype(np.float32),
        pull_mib=np.where(cluster.is_cloud, 0.0, image_mib[:, None]).astype(np.float32),
        replicas=replicas,
    )
    return Instance(
        public=public,
        world=world,
        names=names,
        by_site=_reorder(today, order),
        weekday=int(day) % DAYS_A_WEEK,
        agent=order.astype(np.int32),
        low=low.astype(np.float32),
        share=share.astype(np.float32),
        accepts=today.accepts,
        run_factor=(1.0 / (today.speed[node] * today.affinity[np.ix_(service, node)])).astype(np.float32),
        link=link,
    )


def _refuse_options(world: World) -> None:
    unsupported = [
        name
        for name, is_asked in (
            ("reactions", world.reactions.any),
            ("link_faults", bool(world.link_faults)),
            ("slow_nodes", world.slow_nodes.any),
            ("slow_sites", world.slow_sites.any),
            ("regimes", world.regimes.any),
            ("bursts", world.bursts.any),
            ("declared", world.declared.any),
            ("pressure", world.contends),
            ("taken_cores", world.taken_cores > 0.0),
            ("reports", world.reports.any),
        )
        if is_asked
    ]
    if unsupported:
        raise ConfigError(
            f"slot mode does not support {' and '.join(unsupported)}",
            where=f"simulated world {world.name!r}",
            allowed="worlds without them; they exist by event",
            advice="leave them out, or dispatch by event",
        )


def _agents_by_site(today: DayConditions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The agents in the order of their sites; where each site's begin on the distribution function; its share."""
    order = np.argsort(today.agent_site, kind="stable")
    share = np.diff(today.agent_cumulative, prepend=0.0)
    site_share = np.bincount(today.agent_site, share, minlength=len(today.link))
    return order, np.cumsum(site_share) - site_share, site_share


def _reorder(today: DayConditions, order: np.ndarray) -> DayConditions:
    share = np.diff(today.agent_cumulative, prepend=0.0)[order]
    return today._replace(
        agent_cumulative=np.cumsum(share, dtype=np.float32),
        agent_site=today.agent_site[order],
        agent_scenario=today.agent_scenario[order],
        accepts=today.accepts[:, order],
    )


def _deployed(world: World, today: DayConditions, config: SlotConfig) -> np.ndarray:
    """[services, nodes] the first deployment, in the world's own order: it does not depend on the vocabulary."""
    return first_deployment(
        _work_by_site(world, today),
        today.memory_gib,
        np.array([node.memory_gib for node in world.nodes]),
        today.core_exists.sum(axis=0),
        np.array([world.all_sites.index(node.site) for node in world.nodes]),
        today.hosts,
        config.memory_share,
        config.most_replicas,
        tuple(one.name for one in world.services),
    )


def _work_by_site(world: World, today: DayConditions) -> np.ndarray:
    """[services, sites] requested work, the cloud's site included; a site without agents has the mean of the others."""
    share = np.diff(today.agent_cumulative, prepend=0.0)
    mix = np.diff(today.service_cumulative, axis=0, prepend=0.0)
    scenario_share = np.zeros((len(world.all_sites), mix.shape[1]))
    np.add.at(scenario_share, (today.agent_site, today.agent_scenario), share)
    quiet = scenario_share.sum(axis=1) == 0.0
    scenario_share[quiet] = scenario_share.sum(axis=0) / max(1, np.count_nonzero(~quiet))
    return today.work_s[:, None] * (mix @ scenario_share.T)


def _without_memory(cluster: Cluster) -> Cluster:
    """The cluster with unlimited memory for requests: their replicas hold it, whether they serve or not."""
    unlimited = cluster.capacity.copy(), cluster.unit_capacity.copy()
    for capacity in unlimited:
        capacity[_MEMORY] = np.inf
    return replace(cluster, capacity=unlimited[0], unit_capacity=unlimited[1])


def deployed_on(world: World, config: SlotConfig, day: float, *, cluster: Cluster | None = None) -> Instance:
    """A day of a world that begins with the deployment made for day 0: what drift leaves to orchestration.

    Args:
        world: Any world, at the pace of slots (`slots.time_scaled`).
        config: See `SlotConfig`.
        day: The day that is simulated.
        cluster: Whose vocabulary to speak; the world's own by default.
    """
    case = instance(world, config, day, cluster)
    deployed = instance(world, config, 0.0, cluster).public.replicas
    return case._replace(public=case.public._replace(replicas=deployed))
