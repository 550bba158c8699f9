"""The uniformly random placement: every legal node alike."""

import jax

from evaluation.baselines.baseline import Baseline, best_legal
from twin.contracts import Array, Policy
from twin.placement.types import Cluster, Observation


def _policy(_cluster: Cluster) -> Policy:
    def decide(key: Array, _observation: Observation, legal: Array) -> Array:
        return best_legal(jax.random.uniform(key, legal.shape), legal)

    return decide


RANDOM = Baseline("random", "every legal node with equal probability", _policy)
