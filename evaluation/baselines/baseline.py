"""The type of baselines: policies without training."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from twin.contracts import Array, Policy
from twin.placement.features import NODE_FEATURES
from twin.placement.types import Cluster, Observation

_INDEX = {feature.name: index for index, feature in enumerate(NODE_FEATURES)}


def _always(_cluster: Cluster) -> bool:
    return True


@dataclass(frozen=True)
class Baseline:
    """A heuristic to compare learned policies with.

    Attributes:
        name: Name in tables and on the command line.
        description: One sentence.
        policy: Returns the policy for a cluster; like any policy it has local observations only.
        applies: Whether the rule is defined on a cluster (there is no home site where there is only one site).
    """

    name: str
    description: str
    policy: Callable[[Cluster], Policy]
    applies: Callable[[Cluster], bool] = _always


def best_legal(score: Array, legal: Array) -> Array:
    """The legal choice of the highest score; the first of equals, and 0 where nothing is legal.

    Args:
        score: [choices, seats, *streams], finite.
        legal: [choices, seats, *streams] bool.

    Returns:
        [seats, *streams] int32.
    """
    return jnp.argmax(jnp.where(legal, score, -jnp.inf), axis=0).astype(jnp.int32)


def any_best_legal(key: Array, score: Array, legal: Array) -> Array:
    """As `best_legal`, with random tie-breaking: otherwise ties of nodes seen in summary go to the first of them."""
    legal_score = jnp.where(legal, score, -jnp.inf)
    best = legal & (legal_score >= jnp.max(legal_score, axis=0, keepdims=True))
    return best_legal(jax.random.uniform(key, legal.shape), best)


def least_loaded_among(feature: str) -> Callable[[Cluster], Policy]:
    """The least loaded node among those with a flag of `NODE_FEATURES`; another one where none of them is legal."""

    def decide(key: Array, observation: Observation, legal: Array) -> Array:
        preferred = legal & (node_feature(observation, feature) > 0.5)
        others = legal & ~preferred.any(axis=0, keepdims=True)
        return any_best_legal(key, free_cores(observation), preferred | others)

    return lambda _cluster: decide


def node_feature(observation: Observation, name: str) -> Array:
    """[nodes, seats, *streams] the feature of `NODE_FEATURES` called `name`."""
    return observation.node[_INDEX[name]]


def free_cores(observation: Observation) -> Array:
    """[nodes, seats, *streams] share of a node's cores left if all waiting requests ran too; below 0 if overloaded."""
    return node_feature(observation, "free_cpu_cores") - jnp.expm1(node_feature(observation, "waiting_share"))
