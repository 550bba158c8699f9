"""The default scoring of kube-scheduler: by the allocation of a node, and by the balance of its resources.

With `f_r` the share of resource r (cores, memory) that would be requested on the node, the request included:

    LeastAllocated      mean over r of floor(100 (1 - f_r)),  0 where f_r > 1
    MostAllocated       mean over r of floor(100 min(f_r, 1))
    BalancedAllocation  floor(100 (1 - deviation of min(f_r, 1) over r))

The first two are strategies of the plugin NodeResourcesFit (LeastAllocated unless configured), the last is the plugin
NodeResourcesBalancedAllocation. A scheduler's score is the sum of its plugins', each of weight one; equals are chosen
at random. `k8s_default` and `k8s_most_allocated` are schedulers with both plugins; `k8s_least_allocated` and
`k8s_balanced` have one of them alone. A pod that fits nowhere stays pending there; here it must be
queued on a node, so nodes where it fits now come first, and where there is none the scores decide among all legal ones.
The observation contains the cores of waiting requests but not their memory, which therefore counts when they run.

Source: Kubernetes documentation, "Resource Bin Packing" and "Scheduler Configuration".
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from evaluation.baselines.baseline import Baseline, any_best_legal, free_cores, node_feature
from twin.contracts import Array, Policy
from twin.placement.features import request_features
from twin.placement.types import RESOURCES, Cluster, Observation

FITS_NOW = 1e4
"""Above any sum of scores: a node with room comes before one without."""
_MEMORY = RESOURCES.index("memory_gib")


def requested_shares(cluster: Cluster, observation: Observation) -> list[Array]:
    """Shares of cores, and of memory if the log has it, requested on each node including the current request.

    Returns:
        One or two arrays [nodes, seats, *streams], >= 0; above 1 where the request does not fit now.
    """
    shares = [1.0 - free_cores(observation) + node_feature(observation, "needed_share")]
    capacity = np.asarray(cluster.capacity[_MEMORY], np.float32)
    if np.all(np.isfinite(capacity) & (capacity > 0.0)):
        names = [feature.name for feature in request_features(cluster)]
        asked_gib = jnp.expm1(observation.request[names.index("asked_memory_gib")])
        whole_gib = jnp.asarray(capacity).reshape((-1,) + (1,) * asked_gib.ndim)
        shares.append(1.0 - node_feature(observation, "free_memory_gib") + asked_gib[None] / whole_gib)
    return shares


def least_allocated(shares: Array) -> Array:
    """Score in [0, 100] of shares [resources, ...]; an overfull resource scores 0."""
    return jnp.floor(_percent(jnp.where(shares > 1.0, 0.0, 1.0 - shares)).mean(axis=0))


def most_allocated(shares: Array) -> Array:
    """Score in [0, 100] of shares [resources, ...]; fuller is better."""
    return jnp.floor(_percent(jnp.minimum(shares, 1.0)).mean(axis=0))


def balanced_allocation(shares: Array) -> Array:
    """Score in [0, 100] of shares [resources, ...]; 100 where all are alike."""
    return _percent(1.0 - jnp.std(jnp.minimum(shares, 1.0), axis=0))


def _percent(share: Array) -> Array:
    return jnp.floor(100.0 * share + 1e-4)  # float32 shares: 0.29 is 29 percent, as in integer arithmetic


Score = Callable[[Array], Array]
"""Shares [resources, nodes, seats, *streams] -> [nodes, seats, *streams] in [0, 100]."""


def _scheduler(*scores: Score) -> Callable[[Cluster], Policy]:
    """The policy that sums the scores of its plugins."""

    def policy(cluster: Cluster) -> Policy:
        def decide(key: Array, observation: Observation, legal: Array) -> Array:
            shares = jnp.stack(requested_shares(cluster, observation))
            total = sum((score(shares) for score in scores), start=_fits(shares))
            return any_best_legal(key, total, legal)

        return decide

    return policy


def _fits(shares: Array) -> Array:
    return jnp.where(jnp.all(shares <= 1.0 + 1e-6, axis=0), FITS_NOW, 0.0)


K8S_DEFAULT = Baseline(
    "k8s_default",
    "kube-scheduler's default scores: least allocated, and balanced",
    _scheduler(least_allocated, balanced_allocation),
)
K8S_MOST_ALLOCATED = Baseline(
    "k8s_most_allocated",
    "kube-scheduler's scores for packing: most allocated, and balanced",
    _scheduler(most_allocated, balanced_allocation),
)
K8S_LEAST_ALLOCATED = Baseline(
    "k8s_least_allocated", "kube-scheduler's score for spreading, alone", _scheduler(least_allocated)
)
K8S_BALANCED = Baseline(
    "k8s_balanced",
    "kube-scheduler's score for even use of cores and memory, alone",
    _scheduler(balanced_allocation),
)
