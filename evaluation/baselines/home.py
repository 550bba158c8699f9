"""Home: the least loaded node of the site where the request arrived; another site's only where none there is legal."""

from evaluation.baselines.baseline import Baseline, any_best_legal, free_cores, node_feature
from twin.contracts import Array, Policy
from twin.placement.types import Cluster, Observation


def _policy(_cluster: Cluster) -> Policy:
    def decide(key: Array, observation: Observation, legal: Array) -> Array:
        own = legal & (node_feature(observation, "same_site") > 0.5)
        return any_best_legal(key, free_cores(observation), own | (legal & ~own.any(axis=0, keepdims=True)))

    return decide


HOME = Baseline(
    "home",
    "the least loaded legal node of the request's own site",
    _policy,
    lambda cluster: len(cluster.sites) > 1,
)
