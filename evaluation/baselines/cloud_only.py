"""Cloud only: the least loaded cloud node in the observation of the deciding site; another one if none is legal."""

import numpy as np

from evaluation.baselines.baseline import Baseline, any_best_legal, free_cores, node_feature
from twin.contracts import Array, Policy
from twin.placement.types import Cluster, Observation


def _policy(_cluster: Cluster) -> Policy:
    def decide(key: Array, observation: Observation, legal: Array) -> Array:
        cloud = legal & (node_feature(observation, "is_cloud") > 0.5)
        return any_best_legal(
            key, free_cores(observation), cloud | (legal & ~cloud.any(axis=0, keepdims=True))
        )

    return decide


CLOUD_ONLY = Baseline(
    "cloud_only",
    "the least loaded legal node of the cloud",
    _policy,
    lambda cluster: bool(np.any(cluster.is_cloud)) and not np.all(cluster.is_cloud),
)
