"""Adversaries, which distinguish generated agents from real ones, and how both sides' losses follow from it.

An adversary scores agents, high for real ones. It has a loss of its own and one of the generator.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree

Scores = Callable[[Array], Array]
"""[features, rows] -> [rows] scores under the adversary's present parameters."""


class Adversary(NamedTuple):
    """Losses, both to be minimised, and what becomes of the adversary's parameters after each of its steps."""

    discriminator_loss: Callable[[Array, Scores, Array, Array], Array]  # (key, scores, real, generated) -> []
    generator_loss: Callable[[Array], Array]  # scores [rows] of generated agents -> []
    project: Callable[[PyTree], PyTree]


def probability() -> Adversary:
    """Xiong et al., equations 3 and 4 as they stand: `log D(x) + log(1 - D(G(z)))` against `D(G(z))`, D a
    probability."""
    return Adversary(_cross_entropy, lambda scores: -jnp.mean(jax.nn.sigmoid(scores)), lambda tree: tree)


def logistic() -> Adversary:
    """The same discriminator against the non-saturating generator loss `-log D(G(z))` (Goodfellow et al. 2014)."""
    return Adversary(_cross_entropy, lambda scores: jnp.mean(jax.nn.softplus(-scores)), lambda tree: tree)


def clipped(limit: float) -> Adversary:
    """Wasserstein critic whose weights are kept within `limit` (Arjovsky et al. 2017)."""

    def project(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.clip(leaf, -limit, limit), tree)

    return Adversary(_difference, lambda scores: -jnp.mean(scores), project)


def gradient_penalty(weight: float) -> Adversary:
    """Wasserstein critic with `weight * (|gradient| - 1)^2` between real and generated (Gulrajani et al. 2017)."""

    def discriminator_loss(key: Array, scores: Scores, real: Array, generated: Array) -> Array:
        share = jax.random.uniform(key, (1, real.shape[1]))
        between = share * real + (1.0 - share) * generated
        gradient = jax.grad(lambda rows: jnp.sum(scores(rows)))(between)
        norm = jnp.sqrt(jnp.sum(gradient**2, axis=0) + 1e-12)
        return _difference(key, scores, real, generated) + weight * jnp.mean((norm - 1.0) ** 2)

    return Adversary(discriminator_loss, lambda scores: -jnp.mean(scores), lambda tree: tree)


def _cross_entropy(key: Array, scores: Scores, real: Array, generated: Array) -> Array:
    return jnp.mean(jax.nn.softplus(-scores(real))) + jnp.mean(jax.nn.softplus(scores(generated)))


def _difference(key: Array, scores: Scores, real: Array, generated: Array) -> Array:
    return jnp.mean(scores(generated)) - jnp.mean(scores(real))
