"""Distributions of actions: what an actor returns, leaf by leaf, and what learners need of it.

A categorical leaf is its masked logits [choices, seats, *streams]. A continuous one is a `SquashedNormal`. A leaf that
depends on the choice of the leaf before it is `Given` a table of either, with an entry for every such choice: the
chain rule then gives the joint log-probability, entropy and divergence exactly.

    log p(a, b) = log p(a) + log p(b | a)        H(a, b) = H(a) + sum over a of p(a) H(b | a), and alike the divergence
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.losses import entropy, kl_divergence, log_prob
from twin.contracts import Array, Given, Interval, PyTree
from twin.legality import entry_at

EDGE = 1e-4
"""Numbers nearer than this share of their interval to one of its ends are taken to lie there: densities stay finite."""
AGREES = 0.05
"""Two numbers agree that differ by at most this share of their interval."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


class SquashedNormal(NamedTuple):
    """A number `low + (high - low) * sigmoid(x)` with x normal; leaves [..., seats, *streams].

    Densities are those of the place within the interval, in (0, 1), so that they do not depend on the interval's width.
    Where its ends meet nothing is drawn: log-probability, entropy and divergence are 0.
    """

    mean: Array  # of x
    log_deviation: Array  # of x
    interval: Interval


def normal_log_prob(distribution: SquashedNormal, action: Array) -> Array:
    """Log-density of the place of `action` [...] in its interval."""
    place = _place(distribution.interval, action)
    deviation = jnp.exp(distribution.log_deviation)
    away = (jnp.log(place) - jnp.log1p(-place) - distribution.mean) / deviation
    normal = -0.5 * away**2 - distribution.log_deviation - 0.5 * np.log(2.0 * np.pi)
    return _free(distribution, normal - jnp.log(place) - jnp.log1p(-place))


def normal_entropy(distribution: SquashedNormal) -> Array:
    """Differential entropy of the place, in nats, <= 0: of the normal, plus the mean log-slope of the sigmoid
    (Gauss-Hermite quadrature)."""
    node, weight = (
        jnp.asarray(one, jnp.float32).reshape((-1,) + (1,) * distribution.mean.ndim)
        for one in (_NODES, _WEIGHTS / np.sqrt(2.0 * np.pi))
    )
    x = distribution.mean[None] + node * jnp.exp(distribution.log_deviation)[None]
    slope = jnp.sum(weight * (jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x)), axis=0)
    return _free(distribution, distribution.log_deviation + 0.5 * np.log(2.0 * np.pi * np.e) + slope)


def normal_kl(p: SquashedNormal, q: SquashedNormal) -> Array:
    """`KL(p || q)` in nats of two numbers in one interval: that of their normals."""
    ratio = jnp.exp(2.0 * (p.log_deviation - q.log_deviation))
    away = ((p.mean - q.mean) * jnp.exp(-q.log_deviation)) ** 2
    return _free(p, 0.5 * (ratio + away - 1.0) - p.log_deviation + q.log_deviation)


def sample(key: Array, distribution: PyTree) -> PyTree:
    """Draws every action leaf: a choice by the inverse of its distribution function, from one uniform number for each
    seat; a number by its normal.

    Returns:
        Leaves [seats, *streams], int32 choices and float32 numbers; never a choice of zero probability.
    """
    leaves = _leaves(distribution)
    return _in_turn(distribution, [partial(_drawn, one) for one in jax.random.split(key, len(leaves))])


def greedy(distribution: PyTree) -> PyTree:
    """The likeliest choice of every leaf in turn (the first of equals), and the median of a number."""
    return _in_turn(distribution, [_best] * len(_leaves(distribution)))


def joint_log_prob(distribution: PyTree, action: PyTree) -> Array:
    """Log-probability of a whole action, summed over its leaves: [seats, *streams]."""
    taken = jax.tree.leaves(action)
    parts = []
    for leaf, value, before in zip(_leaves(distribution), taken, [None, *taken[:-1]], strict=True):
        alone = entry_at(leaf, before)
        of_leaf = normal_log_prob if isinstance(alone, SquashedNormal) else log_prob
        parts.append(of_leaf(alone, value))
    return _total(parts)


def joint_entropy(distribution: PyTree) -> Array:
    """Entropy of a whole action, summed over its leaves: [seats, *streams]."""
    return _expected(distribution, distribution, lambda leaf, _: _entropy(leaf))


def joint_kl(distribution_p: PyTree, distribution_q: PyTree) -> Array:
    """`KL(p || q)` of a whole action, summed over its leaves: [seats, *streams]."""
    return _expected(distribution_p, distribution_q, _kl)


def agreement(distribution: PyTree, action: PyTree) -> Array:
    """Whether the likeliest action is the one taken, in all leaves (a number: nearly): [seats, *streams] bool."""
    best, taken = jax.tree.leaves(greedy(distribution)), jax.tree.leaves(action)
    same = []
    for leaf, mine, theirs, before in zip(
        _leaves(distribution), best, taken, [None, *best[:-1]], strict=True
    ):
        alone = entry_at(leaf, before)
        if isinstance(alone, SquashedNormal):
            width = alone.interval.high - alone.interval.low
            same.append(jnp.abs(mine - theirs) <= AGREES * width)
        else:
            same.append(mine == theirs)
    return jnp.all(jnp.stack(same), axis=0)


def _leaves(distribution: PyTree) -> list[PyTree]:
    return jax.tree.leaves(distribution, is_leaf=_is_entry)


def _is_entry(node: PyTree) -> bool:
    return isinstance(node, SquashedNormal | Given)


def _in_turn(distribution: PyTree, ways: list[Callable[[PyTree], Array]]) -> PyTree:
    """What is taken of every leaf, each with the one before it already taken."""
    taken: list[Array] = []
    for choose, leaf in zip(ways, _leaves(distribution), strict=True):
        taken.append(choose(entry_at(leaf, taken[-1] if taken else None)))
    return jax.tree.unflatten(jax.tree.structure(distribution, is_leaf=_is_entry), taken)


def _expected(p: PyTree, q: PyTree, measure: Callable[[PyTree, PyTree], Array]) -> Array:
    """Sum over leaves of what is measured, in the mean over the choices before under `p`."""
    entries, parts = _leaves(p), []
    for index, (mine, theirs) in enumerate(zip(entries, _leaves(q), strict=True)):
        if isinstance(mine, Given):
            found = measure(mine.table, theirs.table)
            parts.append(jnp.sum(_probability(entries, index - 1) * found, axis=0))
        else:
            parts.append(measure(mine, theirs))
    return _total(parts)


def _probability(entries: list[PyTree], index: int) -> Array:
    """[choices, seats, *streams] of a leaf's choices, whatever was chosen before."""
    leaf = entries[index]
    if not isinstance(leaf, Given):
        return jax.nn.softmax(leaf, axis=0)
    return jnp.sum(jax.nn.softmax(leaf.table, axis=0) * _probability(entries, index - 1)[None], axis=1)


def _entropy(leaf: PyTree) -> Array:
    return normal_entropy(leaf) if isinstance(leaf, SquashedNormal) else entropy(leaf)


def _kl(p: PyTree, q: PyTree) -> Array:
    return normal_kl(p, q) if isinstance(p, SquashedNormal) else kl_divergence(p, q)


def _best(leaf: PyTree) -> Array:
    if isinstance(leaf, SquashedNormal):
        return _number(leaf.interval, leaf.mean)
    return jnp.argmax(leaf, axis=0).astype(jnp.int32)


def _drawn(key: Array, leaf: PyTree) -> Array:
    if isinstance(leaf, SquashedNormal):
        noise = jax.random.normal(key, leaf.mean.shape)
        return _number(leaf.interval, leaf.mean + jnp.exp(leaf.log_deviation) * noise)
    return _inverse(key, leaf)


def _number(interval: Interval, x: Array) -> Array:
    number = interval.low + (interval.high - interval.low) * jax.nn.sigmoid(x)
    return jnp.clip(number, interval.low, interval.high)


def _place(interval: Interval, action: Array) -> Array:
    """In [EDGE, 1 - EDGE]; in the middle where the ends meet."""
    width = interval.high - interval.low
    place = jnp.where(width > 0, (action - interval.low) / jnp.where(width > 0, width, 1.0), 0.5)
    return jnp.clip(place, EDGE, 1.0 - EDGE)


def _free(distribution: SquashedNormal, value: Array) -> Array:
    return jnp.where(distribution.interval.high > distribution.interval.low, value, 0.0)


def _total(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else jnp.sum(jnp.stack(parts), axis=0)


def _inverse(key: Array, logits: Array) -> Array:
    probability = jax.nn.softmax(logits, axis=0)
    num_choices = logits.shape[0]
    up_to = jnp.tril(jnp.ones((num_choices, num_choices), probability.dtype))
    cumulative = jax.lax.dot_general(up_to, probability, (((1,), (0,)), ((), ())))
    threshold = jax.random.uniform(key, logits.shape[1:]) * cumulative[-1]
    choice = jnp.arange(num_choices, dtype=jnp.int32).reshape((-1,) + (1,) * threshold.ndim)
    beyond = (cumulative > threshold[None]) & (probability > 0)
    drawn = jnp.min(jnp.where(beyond, choice, num_choices), axis=0)
    likeliest = jnp.argmax(probability, axis=0).astype(jnp.int32)
    return jnp.where(drawn < num_choices, drawn, likeliest)
