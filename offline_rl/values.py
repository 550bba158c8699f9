"""Action values: the actor's network read as values instead of logits, kept in pairs against overestimation.

An action of several leaves is worth the mean of its leaves' values (branching; Tavakoli et al. 2018), so the best joint
action is the best choice of every leaf. Illegal choices carry `MASKED_LOGIT`: never the best, and without weight in a
log-sum-exp.
"""

import jax
import jax.numpy as jnp

from offline_rl.losses import is_choice, weighted_mean
from offline_rl.networks import Actor
from twin.contracts import Array, PyTree


def init_pair(network: Actor, key: Array) -> PyTree:
    """Parameters of two networks; leaves [2, ...]."""
    return jax.vmap(network.init)(jax.random.split(key, 2))


def pair_values(network: Actor, pair: PyTree, observation: PyTree, legal: PyTree) -> PyTree:
    """Values by both networks; leaves [2, choices, seats, *streams]."""
    return jax.vmap(lambda params: network.logits(params, observation, legal))(pair)


def lower(values: PyTree) -> PyTree:
    """The smaller of a pair's values: leaves [2, ...] -> [...] (clipped double Q; Fujimoto et al. 2018)."""
    return jax.tree.map(lambda leaf: jnp.min(leaf, axis=0), values)


def one_of_pair(values: PyTree, which: int) -> PyTree:
    """The values by one network of a pair: leaves [2, ...] -> [...]."""
    return jax.tree.map(lambda leaf: leaf[which], values)


def pair_loss(values: PyTree, action: PyTree, td_target: Array, weight: Array) -> Array:
    """Mean squared error of the taken action's value, of both networks together; leaves [2, choices, seats, *streams].

    `td_target` and `weight`: [seats, *streams].
    """
    errors = [action_value(one_of_pair(values, which), action) - td_target for which in (0, 1)]
    return weighted_mean(errors[0] ** 2 + errors[1] ** 2, weight)


def action_value(values: PyTree, action: PyTree) -> Array:
    """Value of the action taken: leaves [choices, seats, *streams] at [seats, *streams] -> [seats, *streams]."""
    return _mean(_taken(values, action))


def summed_action_value(values: PyTree, action: PyTree) -> Array:
    """The sum of its leaves' values instead of their mean, [seats, *streams]."""
    return jnp.sum(jnp.stack(jax.tree.leaves(_taken(values, action))), axis=0)


def soft_value(values: PyTree) -> Array:
    """The soft value: log-sum-exp of the legal choices' values, [seats, *streams]."""
    return _mean(jax.tree.map(lambda value: jax.nn.logsumexp(value, axis=0), values))


def polyak_update(target: PyTree, params: PyTree, rate: float) -> PyTree:
    """The target network after one step of Polyak averaging: `target + rate (params - target)`."""
    return jax.tree.map(lambda old, new: old + rate * (new - old), target, params)


def _taken(values: PyTree, action: PyTree) -> PyTree:
    def of_leaf(value: Array, chosen: Array) -> Array:
        return jnp.sum(jnp.where(is_choice(chosen, value.shape[0]), value, 0.0), axis=0)

    return jax.tree.map(of_leaf, values, action)


def _mean(parts: PyTree) -> Array:
    return jnp.mean(jnp.stack(jax.tree.leaves(parts)), axis=0)
