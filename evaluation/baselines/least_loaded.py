"""The least loaded node: the largest free share of cores right now, as far as the deciding site can see."""

import jax.numpy as jnp

from evaluation.baselines.baseline import Baseline, best_legal
from twin.contracts import Array, Policy
from twin.placement.features import NODE_FEATURES
from twin.placement.types import Cluster, Observation

_INDEX = {feature.name: index for index, feature in enumerate(NODE_FEATURES)}


def _least_loaded(_cluster: Cluster) -> Policy:
    def decide(_key: Array, observation: Observation, legal: Array) -> Array:
        return best_legal(observation.node[_INDEX["free_cpu_cores"]], legal)

    return decide


def _least_backlog(_cluster: Cluster) -> Policy:
    def decide(_key: Array, observation: Observation, legal: Array) -> Array:
        backlog = observation.node[_INDEX["backlog"]]
        return best_legal(-jnp.where(jnp.isfinite(backlog), backlog, 1e9), legal)

    return decide


LEAST_LOADED = Baseline(
    "least_loaded", "the legal node with the largest free share of cores; the first of equals", _least_loaded
)
LEAST_BACKLOG = Baseline(
    "least_backlog",
    "the legal node that expects to finish what it holds soonest; the first of equals",
    _least_backlog,
)
