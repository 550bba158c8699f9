"""GSP-SS: a static split of requests over nodes, for known arrival rates of every service.

The shadow schedule is a linear programme over `x[b, s, n]`, the share of the requests for service s at site b that go
to node n:

    maximise    sum rate[b, s] x[b, s, n] (1 - HASTE * time[b, s, n] / deadline[s])  -  EVENNESS * total rate * r
    subject to  sum_n x[b, s, n] <= 1                                            for every b, s
                sum_{b, s} rate[b, s] x[b, s, n] work[s] / speed[n] <= r cores[n]  for every n,   r <= 1
                x[b, s, n] = 0  where the way there and the run, `time`, take longer than the mean deadline

so it serves as many requests as the nodes can compute in time, among such schedules keeps the busiest node least busy,
and among those takes the shortest times. A request is sent to node n with probability `x[b, s, n] / sum_n x[b, s, n]`;
requests that cannot be served are spread over all nodes by their speed and cores. It does not use the queues: this is
good under moderate load, and under high load it cannot balance, as KaiS describes.

Inputs are the world's mean rates of day 0, mean work, the nodes' declared speeds and cores, and links without noise;
not affinities, preferences, drift or daily cycles. In these worlds every node holds every service its rules allow, so
placement is fixed, and only the scheduling part of GSP-SS remains.

Source: V. Farhadi et al., Service placement and request scheduling for data-intensive applications in edge clouds,
INFOCOM 2019; baseline (iii) of KaiS, section V.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines.truth_baseline import TruthBaseline
from evaluation.simulator.conditions import (
    DayConditions,
    WorldAgents,
    conditions,
    hosting,
    service_mix,
    world_draw,
)
from evaluation.simulator.names import Names
from evaluation.simulator.world import World
from twin.contracts import Array
from twin.placement.types import PlacementState

if TYPE_CHECKING:
    from scipy.sparse import csr_array

EVENNESS = 1e-3
"""Weight of the busiest node's load: small, so that serving requests has priority."""
HASTE = 1e-5
"""Weight of the time a request takes without waiting: smaller still, so that it only breaks ties."""


@lru_cache(maxsize=16)
def shadow_schedule(world: World) -> np.ndarray:
    """[sites, services, nodes] probabilities of the nodes, see the module's description; world's own indices."""
    today, population = conditions(world, 0.0), world_draw(world)
    rate = rates(world, population)
    cores = today.core_exists.sum(axis=0).astype(float)
    run_s, ratio = time_ratios(world, today, population)
    share = solve(rate, run_s, cores, ratio)
    spread = cores * today.speed * hosting(world)
    whole = share.sum(axis=2, keepdims=True)
    fallback = np.broadcast_to((spread / spread.sum(axis=1, keepdims=True))[None], share.shape)
    return np.where(whole > 1e-6, share / np.maximum(whole, 1e-6), fallback)


def time_ratios(world: World, today: DayConditions, population: WorldAgents) -> tuple[np.ndarray, np.ndarray]:
    """Mean run times [services, nodes] s and, [sites, services, nodes], way there and run over the mean deadline."""
    run_s = today.work_s[:, None] / today.speed[None]
    way_s = today.latency_s[today.link][:, None] + (
        today.input_mib[None, :, None] * today.s_per_mib[today.link][:, None]
    )
    ratio = (way_s + run_s[None]) / _deadlines(today, population)[None, :, None]
    return run_s, np.where(hosting(world)[None], ratio, np.inf)


def rates(world: World, population: WorldAgents) -> np.ndarray:
    """[sites, services] mean requests per second while the nominal day lasts."""
    mix = service_mix(world, population, 0.0)
    per_agent = population.share * world.requests_per_day / world.day_s
    home = np.arange(len(world.sites))[:, None] == population.site[None]
    return home @ (per_agent[:, None] * mix[:, population.scenario].T)


def solve(
    rate: np.ndarray,
    run_s: np.ndarray,
    cores: np.ndarray,
    time_ratio: np.ndarray,
    replicas: np.ndarray | None = None,
) -> np.ndarray:
    """The linear programme.

    Args:
        rate: [sites, services] requests per second.
        run_s: [services, nodes] mean run time there.
        cores: [nodes].
        time_ratio: [sites, services, nodes] time over deadline: up to 1 a request can be served in time.
        replicas: [services, nodes] replicas, which serve one request each; None: no limit.

    Returns:
        [sites, services, nodes] shares x.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    site, service, node = np.nonzero((time_ratio <= 1.0) & (rate > 0.0)[..., None])
    num, num_kinds = len(node), rate.size
    offered = rate[site, service]
    if num == 0:
        return np.zeros(time_ratio.shape)
    column = np.arange(num)
    rows = np.concatenate(
        [site * rate.shape[1] + service, num_kinds + node, num_kinds + np.arange(len(cores))]
    )
    columns = np.concatenate([column, column, np.full(len(cores), num)])
    values = np.concatenate([np.ones(num), offered * run_s[service, node], -cores])
    matrix = coo_array((values, (rows, columns)), shape=(num_kinds + len(cores), num + 1)).tocsr()
    limit = np.concatenate([np.ones(num_kinds), np.zeros(len(cores))])
    if replicas is not None:
        matrix, limit = _within_replicas(
            matrix, limit, offered * run_s[service, node], replicas, service, node
        )
    value = offered * (1.0 - HASTE * time_ratio[site, service, node])
    objective = np.append(-value, EVENNESS * rate.sum())
    solved = linprog(objective / offered.mean(), matrix, limit, bounds=(0.0, 1.0))
    share = np.zeros(time_ratio.shape)
    share[site, service, node] = solved.x[:num]
    return share


def _within_replicas(
    matrix: "csr_array",
    limit: np.ndarray,
    work: np.ndarray,
    replicas: np.ndarray,
    service: np.ndarray,
    node: np.ndarray,
) -> tuple["csr_array", np.ndarray]:
    """The constraints and those of replicas: no more work [columns] for a service on a node than they can serve."""
    from scipy.sparse import coo_array, vstack

    pair = service * replicas.shape[1] + node
    column = np.arange(len(work))
    rows = coo_array((work, (pair, column)), shape=(replicas.size, matrix.shape[1]))
    return vstack([matrix, rows]).tocsr(), np.concatenate([limit, replicas.ravel()])


def _deadlines(today: DayConditions, population: WorldAgents) -> np.ndarray:
    """[services] mean deadline over the agents."""
    scenario_share = np.bincount(population.scenario, population.share, today.deadline_s.shape[1])
    return today.deadline_s @ scenario_share


def _decide(key: Array, world: World, names: Names, _today: DayConditions, state: PlacementState) -> Array:
    cumulative = np.cumsum(shadow_schedule(world), axis=2)
    in_world = np.argsort(names.world_node)
    site = jnp.asarray(names.world_site)[state.request.site]
    service = jnp.asarray(names.world_service)[state.request.service]
    reached = jnp.asarray(cumulative / cumulative[..., -1:], jnp.float32)[site, service]
    uniform = jax.random.uniform(key, site.shape)
    node = jnp.sum(uniform[..., None] >= reached, axis=-1, dtype=jnp.int32)
    return jnp.asarray(in_world, jnp.int32)[jnp.minimum(node, len(world.nodes) - 1)]


GSP_SS = TruthBaseline(
    "gsp_ss",
    "a static split of every site's services over the nodes, by a linear programme with the mean arrival rates",
    _decide,
)
