"""Firmament: scheduling as a minimum-cost maximum flow, under its load-spreading policy.

The network: every request in hand sends one unit to a machine where it is legal (capacity 1, cost 0); machine n passes
it on through slots of capacity one, the k-th (from 0) at the cost

    requests_n + k                                  where the k-th newcomer finds free cores,
    WAITING + (requests_n + k) * needed_n           where it must wait (the place of Firmament's unscheduled tasks),

so cost rises with load and requests spread over machines; `needed_n` is the share of the machine that a request needs
(the mean of the current ones). Because every request is one unit and slots have capacity one, an integral minimum-cost
maximum flow is a minimum-cost assignment of requests to slots, which SciPy solves exactly (shortest augmenting paths).
Ties are broken at random.

With one request at a time, the flow is one unit: it takes the machine with the cheapest first slot, which has room and
the fewest requests, without a solver. With several seats (slot mode) the scheduler is central, as Firmament is: its
data on a node are the observation of that node's site, if that site has a seat, and the solver runs on the host.

Source: I. Gog et al., Firmament: fast, centralized cluster scheduling at scale, OSDI 2016 (load-spreading policy);
a baseline of KaiS, section V.
"""

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines.baseline import Baseline, any_best_legal, free_cores, node_feature
from twin.contracts import Array, Policy
from twin.placement.types import Cluster, Observation

WAITING = 1e3
"""Above the cost of any slot with room: to wait is the last choice."""
_ILLEGAL = 1e9
_TIE = 1e-3
"""Upper bound of the random costs, below any difference between the rule's costs."""


def slot_costs(observation: Observation) -> Array:
    """[nodes, slots, *streams] cost of the machines' slots, as many as there are seats.

    Args:
        observation: Of the sites; leaves [features, nodes, seats, *streams].
    """
    num_seats = observation.node.shape[2]
    running, waiting = (jnp.expm1(node_feature(observation, name)) for name in ("num_running", "num_waiting"))
    requests, free = (
        _known_best(observation, value) for value in (running + waiting, free_cores(observation))
    )
    needed = jnp.mean(node_feature(observation, "needed_share"), axis=1)
    newcomers = jnp.arange(num_seats, dtype=jnp.float32).reshape((1, -1) + (1,) * (needed.ndim - 1))
    load = requests[:, None] + newcomers
    room = free[:, None] - newcomers * needed[:, None] >= needed[:, None] - 1e-5
    return jnp.where(room, load, WAITING + load * needed[:, None])


def _known_best(observation: Observation, value: Array) -> Array:
    """[nodes, *streams] from [nodes, seats, *streams]: the value at the node's own site, else the mean of all."""
    own = node_feature(observation, "same_site")
    count = jnp.sum(own, axis=1)
    return jnp.where(
        count > 0.0, jnp.sum(own * value, axis=1) / jnp.maximum(count, 1.0), jnp.mean(value, axis=1)
    )


def solve_flow(slot_cost: np.ndarray, legal: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """The minimum-cost flow among those that place most requests.

    Args:
        slot_cost: [nodes, slots, *streams], rising along the slots.
        legal: [nodes, seats, *streams] bool.
        tie: [nodes, seats, *streams] small costs that break ties.

    Returns:
        [seats, *streams] int32 node of every request; 0 where none is legal, and such a seat takes no slot.
    """
    from scipy.optimize import linear_sum_assignment

    num_nodes, num_slots = slot_cost.shape[:2]
    num_seats, streams = legal.shape[1], legal.shape[2:]
    costs, masks, ties = (np.asarray(leaf).reshape((*leaf.shape[:2], -1)) for leaf in (slot_cost, legal, tie))
    chosen = np.zeros((num_seats, masks.shape[2]), np.int32)
    for stream in range(masks.shape[2]):
        asking = np.flatnonzero(masks[..., stream].any(axis=0))
        arc = np.where(masks[..., stream], ties[..., stream], _ILLEGAL).T[asking]
        cost = arc[:, :, None] + costs[None, :, :, stream]
        request, place = linear_sum_assignment(cost.reshape(len(asking), num_nodes * num_slots))
        chosen[asking[request], stream] = place // num_slots
    return chosen.reshape((num_seats, *streams))


def _policy(_cluster: Cluster) -> Policy:
    def decide(key: Array, observation: Observation, legal: Array) -> Array:
        costs = slot_costs(observation)
        if legal.shape[1] == 1:
            return any_best_legal(key, -costs, legal)
        tie = _TIE / legal.shape[1] * jax.random.uniform(key, legal.shape)
        shape = jax.ShapeDtypeStruct(legal.shape[1:], jnp.int32)
        return jax.pure_callback(solve_flow, shape, costs, legal, tie, vmap_method="sequential")

    return decide


FIRMAMENT = Baseline(
    "firmament", "the cheapest flow of requests to machines: room first, then the fewest requests", _policy
)
