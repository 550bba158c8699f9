"""What a baseline is: a policy that needs no training, and says so by its name."""

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
    """A rule of thumb that every learned policy has to beat.

    Attributes:
        name: As in tables and on the command line.
        description: One sentence.
        policy: Makes the policy for a cluster; it sees local observations only, as any policy does.
        applies: Whether the rule means anything on a cluster (there is no home where there is one site).
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
    """As `best_legal`, but equals are chosen at random: nodes seen only in summary would all be one node else."""
    legal_score = jnp.where(legal, score, -jnp.inf)
    best = legal & (legal_score >= jnp.max(legal_score, axis=0, keepdims=True))
    return best_legal(jax.random.uniform(key, legal.shape), best)


def node_feature(observation: Observation, name: str) -> Array:
    """[nodes, seats, *streams] the feature of `NODE_FEATURES` called `name`."""
    return observation.node[_INDEX[name]]


def free_cores(observation: Observation) -> Array:
    """[nodes, seats, *streams] share of a node's cores left if everything waiting there ran too; below 0 if crowded."""
    return node_feature(observation, "free_cpu_cores") - jnp.expm1(node_feature(observation, "waiting_share"))
