"""The numbers of one simulated day: a world's declarations with the drift up to that day applied.

Everything here is NumPy, computed before compilation. `world_draw` returns the draws that are fixed for a world
(agents, affinity patterns); `conditions` the numbers of a day.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from evaluation.simulator.options import LINK_KINDS, PROCESSOR_SHARING, LinkFault, Outage
from evaluation.simulator.request_lists import DayRequests
from evaluation.simulator.world import FIRST_WEEKEND_DAY, World
from logs_schema.calendar import DAYS_A_WEEK
from twin.contracts import PyTree

NUM_LINKS = len(LINK_KINDS)
_NUM_QUANTILES = 20_000
LOCAL, CROSS_SITE, WAN = range(NUM_LINKS)
"""Kinds of link from the site of arrival to a node, and of offers: at home, elsewhere, in the cloud."""


class DayConditions(NamedTuple):
    """One day of a world; indices are positions in the world's own declarations."""

    day: np.ndarray  # [] float32, days since day 0
    core_exists: np.ndarray  # [cores, nodes] bool
    speed: np.ndarray  # [nodes]
    affinity: np.ndarray  # [services, nodes], about 1: a service's speed on a node
    link: np.ndarray  # [sites, nodes] int32: LOCAL, CROSS_SITE or WAN
    accepts: np.ndarray  # [NUM_LINKS, agents] probability that the agent accepts such an offer
    latency_s: np.ndarray  # [NUM_LINKS]
    s_per_mib: np.ndarray  # [NUM_LINKS]
    agent_cumulative: np.ndarray  # [agents] distribution function over agents
    agent_site: np.ndarray  # [agents] int32
    agent_scenario: np.ndarray  # [agents] int32
    service_cumulative: np.ndarray  # [services, scenarios] distribution functions over services
    work_s: np.ndarray  # [services] mean work on a reference core
    input_mib: np.ndarray  # [services]
    memory_gib: np.ndarray  # [services]
    deadline_s: np.ndarray  # [services, scenarios]
    rate_per_s: np.ndarray  # [] mean rate of arrivals
    amplitude: np.ndarray  # []
    day_s: np.ndarray  # []
    shares: np.ndarray  # [nodes] bool: processor sharing
    limit: np.ndarray  # [nodes] requests that can be in service at once
    hosts: np.ndarray  # [services, nodes] bool: the rules allow the service there
    output_mib: np.ndarray  # [services]
    down_from_s: np.ndarray  # [nodes, outages] time of day; inf where there is none
    down_to_s: np.ndarray  # [nodes, outages]
    fault_from_s: np.ndarray  # [NUM_LINKS, faults]
    fault_to_s: np.ndarray  # [NUM_LINKS, faults]
    slowdown: np.ndarray  # [NUM_LINKS, faults]: of transfers; inf where the link is down
    node_site: np.ndarray  # [nodes] int32, position among all sites
    pressure: np.ndarray  # [services]: on the runs beside a run
    sensitivity: np.ndarray  # [services]: to the pressure of the runs beside
    asks: np.ndarray  # [agents]: factor of an agent's declared over its expected work
    known_size: np.ndarray  # []: mean of size ** informative
    rate_variance: np.ndarray  # []: of the day's mean rate, relative, from bursts
    tide_phase: np.ndarray  # [services, sites]: when each is hot, in cycles
    # the day's requests, where they are listed and not drawn (`simulator.workloads`)
    requests: DayRequests | None = None
    # the day's `modulation.HiddenChanges`, where they are those of a log and not drawn anew; of whole days alone
    hidden: PyTree | None = None


class WorldAgents(NamedTuple):
    """What is drawn once for a world."""

    share: np.ndarray  # [agents]
    site: np.ndarray  # [agents]
    scenario: np.ndarray  # [agents]
    accepts: np.ndarray  # [NUM_LINKS, agents]
    taste: np.ndarray  # [services, scenarios], standard normal
    # [2, services, nodes], standard normal: the pattern of day 0, and the one that replaces it
    affinity: np.ndarray


def world_draw(world: World) -> WorldAgents:
    """Draws agents, preferences and affinity patterns from the world's own seed."""
    random = np.random.default_rng([world.seed, 0x7717])
    num_agents, num_services, num_scenarios = world.num_agents, len(world.services), len(world.scenarios)
    share = random.pareto(2.0, num_agents) + 0.2
    site = np.arange(num_agents) % len(world.sites)
    shares = np.array([scenario.share for scenario in world.scenarios])
    scenario = random.choice(num_scenarios, num_agents, p=shares / shares.sum())
    scenario[:num_scenarios] = np.arange(num_scenarios)
    means = np.array([[1.0, one.accepts_other_site, one.accepts_cloud] for one in world.scenarios]).T[
        :, scenario
    ]
    accepts = np.stack([_preferences(random, row, world.stubbornness) for row in means])
    taste = random.standard_normal((num_services, num_scenarios))
    affinity = random.standard_normal((2, num_services, len(world.nodes)))
    return WorldAgents(share / share.sum(), site, scenario, accepts, taste, affinity)


def _preferences(random: np.random.Generator, mean: np.ndarray, stubbornness: float) -> np.ndarray:
    """Acceptance probabilities with the given means: Beta laws of concentration `1 / stubbornness - 1`."""
    if stubbornness == 0.0:
        return mean
    concentration = 1.0 / stubbornness - 1.0
    inside = np.clip(mean, 1e-6, 1.0 - 1e-6)
    drawn = random.beta(concentration * inside, concentration * (1.0 - inside))
    return np.where((mean > 0.0) & (mean < 1.0), drawn, mean)


def conditions(world: World, day: float) -> DayConditions:
    """The numbers that hold on `day` (days since day 0, >= 0) of a validated world."""
    population = world_draw(world)
    months = day / 30.0
    cores = np.array([node.cpu_cores for node in world.nodes])
    links = (world.local, world.cross_site, world.wan)
    factor = np.array([scenario.deadline_factor for scenario in world.scenarios])
    deadline_s = np.array([service.deadline_s for service in world.services])
    hosts, drift = hosting(world), world.drift

    def grown(exponent: float) -> np.float32:
        return np.float32(np.exp(exponent * months))

    down = _windows(
        world.outages, [node.name for node in world.nodes], [one.node for one in world.outages], day
    )
    faults = _windows(world.link_faults, LINK_KINDS, [one.link for one in world.link_faults], day)
    return DayConditions(
        day=np.asarray(day, np.float32),
        core_exists=np.arange(cores.max())[:, None] < cores[None],
        speed=_speed(world, months),
        affinity=_affinity(world, population, months),
        link=_links(world),
        accepts=_accepts(world, population, months),
        latency_s=np.array([link.latency_s for link in links], np.float32) * grown(drift.latency),
        s_per_mib=np.array([1.0 / link.bandwidth_mib_per_s for link in links], np.float32)
        / grown(drift.bandwidth),
        agent_cumulative=np.cumsum(population.share).astype(np.float32),
        agent_site=population.site.astype(np.int32),
        agent_scenario=population.scenario.astype(np.int32),
        service_cumulative=np.cumsum(service_mix(world, population, months), axis=0).astype(np.float32),
        work_s=np.array([service.work_s for service in world.services], np.float32) * grown(drift.work),
        input_mib=np.array([service.input_mib for service in world.services], np.float32)
        * grown(drift.inputs),
        memory_gib=np.array([service.memory_gib for service in world.services], np.float32),
        deadline_s=(deadline_s[:, None] * factor[None]).astype(np.float32) * grown(drift.deadlines),
        rate_per_s=np.asarray(requests_on(world, day) / world.day_s, np.float32),
        amplitude=np.asarray(world.daily_amplitude, np.float32),
        day_s=np.asarray(world.day_s, np.float32),
        shares=np.array([node.discipline == PROCESSOR_SHARING for node in world.nodes]),
        limit=_limit(world, hosts),
        hosts=hosts,
        output_mib=np.array([service.output_mib for service in world.services], np.float32),
        down_from_s=down[0],
        down_to_s=down[1],
        fault_from_s=faults[0],
        fault_to_s=faults[1],
        node_site=np.array([world.all_sites.index(node.site) for node in world.nodes], np.int32),
        pressure=np.array([service.pressure for service in world.services], np.float32),
        sensitivity=np.array([service.sensitivity for service in world.services], np.float32),
        asks=_rate_of_agent(world),
        tide_phase=_tide_phase(world),
        known_size=_known_size(world),
        rate_variance=np.asarray(world.bursts.variance_of_mean(world.day_s), np.float32),
        slowdown=np.array([[one.slowdown for one in world.link_faults]] * NUM_LINKS, np.float32),
    )


def hosting(world: World) -> np.ndarray:
    """[services, nodes] bool: the rules allow the service on the node."""
    return np.array([[world.may_host(node, service) for node in world.nodes] for service in world.services])


def requests_on(world: World, day: float) -> float:
    """Mean number of requests on a day: fewer or more at weekends."""
    weekend = int(day) % DAYS_A_WEEK >= FIRST_WEEKEND_DAY
    return world.requests_per_day * (world.weekend_factor if weekend else 1.0)


def longest_day(world: World) -> int:
    """Requests that every day stays below, at weekends too, but for one in a million (six standard deviations)."""
    mean = max(requests_on(world, day) for day in range(DAYS_A_WEEK))
    variance = mean + mean**2 * float(conditions(world, 0).rate_variance)
    return int(mean + 6.0 * variance**0.5) + 1


def service_mix(world: World, population: WorldAgents, months: float) -> np.ndarray:
    """[services, scenarios] shares of the services in the requests of each scenario, 30 days a month."""
    share = np.array([service.share for service in world.services])
    trend = np.array([service.trend for service in world.services])
    weight = share * np.exp(world.drift.mix * months * trend)
    weight = weight[:, None] * np.exp(world.taste_spread * population.taste)
    mix = weight / weight.sum(axis=0, keepdims=True)
    if world.drift.hot_share == 0.0 or round(months * 30.0, 6) < world.drift.hot_from_day:
        return mix
    hot = np.array([service.name == world.drift.hot_service for service in world.services])[:, None]
    others = np.where(hot, 0.0, mix)
    total = others.sum(axis=0, keepdims=True)
    others = np.divide(others, total, out=np.zeros_like(others), where=total > 0.0)
    share = np.where(total > 0.0, world.drift.hot_share, 1.0)
    return np.where(hot, share, (1.0 - share) * others)


def offered_at_peak(world: World, today: DayConditions, day: float) -> np.ndarray:
    """[services] seconds of work a second that are requested at the peak hour of a day."""
    population = world_draw(world)
    scenario_share = np.bincount(population.scenario, population.share, len(world.scenarios))
    rate_per_s = world.requests_per_day / world.day_s * (1.0 + world.daily_amplitude)
    return rate_per_s * (service_mix(world, population, day / 30.0) @ scenario_share) * today.work_s


def peak_load(world: World, day: float = 0.0) -> float:
    """Work offered at the peak hour over effective capacity: the least busy share of the busiest node.

    The linear programme splits every service over the nodes, `minimise r` subject to
    `sum_s rate_s * split[s, n] * work_s / affinity[s, n] <= r * cores_n * speed_n` for every node. Below 1
    some assignment keeps up even at the peak; links, preferences and weekends are ignored, rules are not.
    """
    from scipy.optimize import linprog

    today = conditions(world, day)
    offered = offered_at_peak(world, today, day)
    busy = offered[:, None] / today.affinity / (today.core_exists.sum(axis=0) * today.speed)
    num_services, num_nodes = busy.shape
    node_rows = np.zeros((num_nodes, busy.size + 1))
    node_rows[:, :-1] = (np.eye(num_nodes)[:, None] * busy[None]).reshape(num_nodes, -1)
    node_rows[:, -1] = -1.0
    whole = np.hstack([np.kron(np.eye(num_services), np.ones(num_nodes)), np.zeros((num_services, 1))])
    objective = np.append(np.zeros(busy.size), 1.0)
    upper = [None if allowed else 0.0 for allowed in today.hosts.ravel()] + [None]
    bounds = [(0.0, one) for one in upper]
    solved = linprog(objective, node_rows, np.zeros(num_nodes), whole, np.ones(num_services), bounds)
    return float(solved.fun)


def _speed(world: World, months: float) -> np.ndarray:
    slowed = 1.0 - world.drift.slowing * min(months, 1.0)
    slow = world.drift.slowing_nodes
    return np.array([node.speed * (slowed if node.name in slow else 1.0) for node in world.nodes], np.float32)


def _accepts(world: World, population: WorldAgents, months: float) -> np.ndarray:
    """[NUM_LINKS, agents] as drawn, the log-odds away from home shifted; who never or always accepts goes on so."""
    if world.drift.acceptance == 0.0:
        return population.accepts.astype(np.float32)
    odds_factor = np.exp(world.drift.acceptance * months)
    drawn = population.accepts[1:]
    shifted = drawn * odds_factor / (1.0 - drawn + drawn * odds_factor)
    return np.concatenate([population.accepts[:1], shifted]).astype(np.float32)


def _tide_phase(world: World) -> np.ndarray:
    """[services, sites] in cycles, drawn from the world's own seed."""
    phase = np.random.default_rng([world.seed, 0x71DE]).uniform(size=len(world.services))
    return (phase[:, None] + world.tides.lag * np.arange(len(world.sites))[None]).astype(np.float32)


def _rate_of_agent(world: World) -> np.ndarray:
    """[agents] each one's factor, drawn from the world's own seed."""
    random, spread = np.random.default_rng([world.seed, 0xA5C5]), world.declared.agent_spread
    number = random.standard_normal(world.num_agents)
    return (world.declared.excess * np.exp(spread * number - 0.5 * spread**2)).astype(np.float32)


def _known_size(world: World) -> np.ndarray:
    """[] mean of `size ** informative`."""
    if world.declared.informative == 1.0:
        return np.asarray(1.0, np.float32)
    uniform = (np.arange(_NUM_QUANTILES, dtype=np.float32) + 0.5) / _NUM_QUANTILES
    size = np.asarray(world.size.quantile(jnp.asarray(uniform)), np.float64)
    return np.asarray(np.mean(size**world.declared.informative), np.float32)


def _limit(world: World, hosts: np.ndarray) -> np.ndarray:
    """[nodes] requests in service at once: one a core, or where cores are shared as many as memory surely holds."""
    memory_gib = np.array([service.memory_gib for service in world.services])
    largest_gib = np.max(np.where(hosts, memory_gib[:, None], 0.0), axis=0)
    return np.array(
        [
            node.cpu_cores
            if node.discipline != PROCESSOR_SHARING
            else np.floor(node.memory_gib / largest + 1e-9)
            if largest > 0.0
            else np.inf
            for node, largest in zip(world.nodes, largest_gib, strict=True)
        ],
        np.float32,
    )


def _windows(
    failures: Sequence[Outage | LinkFault], names: Sequence[str], of: Sequence[str], day: float
) -> np.ndarray:
    """[2, names, failures] begin and end of those of the day, inf elsewhere; as many failures on every day."""
    holds = np.array([[name == one for one in of] for name in names], bool).reshape(len(names), len(of))
    holds &= np.array([int(day) in one.days for one in failures], bool)[None]
    times = np.array([[one.from_s for one in failures], [one.to_s for one in failures]])[:, None]
    return np.where(holds[None], times, np.inf).astype(np.float32)


def _affinity(world: World, population: WorldAgents, months: float) -> np.ndarray:
    """exp(spread * pattern): the pattern turns from the first drawn one to the second, its variance kept."""
    moved = min(world.drift.migration * months, 1.0)
    pattern = np.sqrt(1.0 - moved) * population.affinity[0] + np.sqrt(moved) * population.affinity[1]
    return np.exp(world.affinity_spread * pattern).astype(np.float32)


def _links(world: World) -> np.ndarray:
    def kind(site: str, node_site: str) -> int:
        if node_site == world.cloud_site:
            return WAN
        return LOCAL if node_site == site else CROSS_SITE

    return np.array([[kind(site, node.site) for node in world.nodes] for site in world.sites], np.int32)
