"""GSP-SS where services are hosted in replicas: the schedule of `gsp_ss`, for a deployment as it is.

The linear programme is that of `evaluation.baselines.gsp_ss` with requests only for nodes that host their service, and
no more work for a service's replicas on a node than they can serve, one request each:

    sum_b rate[b, s] x[b, s, n] work[s] / speed[n] <= replicas[s, n]             for every s, n

It uses the first deployment. Where its choice is not legal now (a replica was removed, a node is full or
down), the shares of the legal nodes are scaled up; where they have none, a legal node is taken at random.
"""

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines.baseline import best_legal
from evaluation.baselines.gsp_ss import rates, solve, time_ratios
from evaluation.simulator.conditions import conditions, world_draw
from evaluation.simulator.slots.instance import Instance
from twin.contracts import Array
from twin.orchestration.frame_mechanics import Dispatch
from twin.orchestration.slots import SlotState


def deployed_schedule(case: Instance) -> np.ndarray:
    """[sites, services, nodes] shares in the cluster's own order; they sum to at most 1, and to 0 for the unknown."""
    world, names = case.world, case.names
    today, population = conditions(world, 0.0), world_draw(world)
    in_world = np.argsort(names.world_node)
    replicas = case.public.replicas[np.ix_(names.service, in_world)]
    run_s, ratio = time_ratios(world, today, population)
    ratio = np.where(replicas[None] > 0, ratio, np.inf)
    cores = today.core_exists.sum(axis=0).astype(float)
    found = solve(rates(world, population), run_s, cores, ratio, replicas)
    share = np.zeros((len(case.public.cluster.sites), *case.run_factor.shape))
    share[np.ix_(names.site, names.service, in_world)] = found
    return share


def gsp_ss_dispatch(case: Instance) -> Dispatch:
    """Dispatches by the schedule of the instance's first deployment.

    Returns:
        (key, state, legal [nodes, seats, *streams]) -> node [seats, *streams].
    """
    share = jnp.asarray(deployed_schedule(case), jnp.float32)

    def dispatch(key: Array, state: SlotState, legal: Array) -> Array:
        request = state.placement.request
        wanted = jnp.moveaxis(share[request.site, request.service], -1, 0)
        weight = jnp.where(legal, wanted, 0.0)
        scheduled = jnp.sum(weight, axis=0, keepdims=True) > 1e-6
        weight = jnp.where(scheduled, weight, 1.0)
        noise = -jnp.log(jnp.maximum(jax.random.exponential(key, legal.shape), 1e-20))
        score = jnp.where(weight > 0.0, jnp.log(jnp.maximum(weight, 1e-20)), -1e9) + noise
        return best_legal(score, legal)

    return dispatch
