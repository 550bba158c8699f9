"""The least loaded node in the observation of the deciding site: by cores, or by the expected remaining work."""

import jax.numpy as jnp

from evaluation.baselines.baseline import Baseline, any_best_legal, free_cores, node_feature
from twin.contracts import Array, Policy
from twin.placement.types import Cluster, Observation


def _least_loaded(_cluster: Cluster) -> Policy:
    def decide(key: Array, observation: Observation, legal: Array) -> Array:
        return any_best_legal(key, free_cores(observation), legal)

    return decide


def _least_backlog(_cluster: Cluster) -> Policy:
    def decide(key: Array, observation: Observation, legal: Array) -> Array:
        backlog = node_feature(observation, "backlog")
        return any_best_legal(key, -jnp.where(jnp.isfinite(backlog), backlog, 1e9), legal)

    return decide


LEAST_LOADED = Baseline(
    "least_loaded",
    "the legal node with the largest share of cores left, waiting requests counted; any of equals",
    _least_loaded,
)
LEAST_BACKLOG = Baseline(
    "least_backlog",
    "the legal node with the smallest expected time to finish its requests; any of equals",
    _least_backlog,
)
