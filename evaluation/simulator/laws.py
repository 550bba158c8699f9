"""Laws of chance with mean one: how the size of a request, its run time or a latency scatters.

A law is its quantile function, so that one uniform number per draw is enough and a law can be exchanged
without touching the mechanics. The second moment is what queueing theory asks for (Pollaczek-Khinchine).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import ndtri

from twin.contracts import Array

SMALLEST_UNIFORM = 1e-7
"""Uniform numbers are drawn from [SMALLEST_UNIFORM, 1): their quantiles are finite in float32."""


class Law(NamedTuple):
    """A positive random variable of mean one."""

    name: str
    quantile: Callable[[Array], Array]  # uniform number in (0, 1), any shape -> value >= 0, same shape
    second_moment: float  # E[X^2]


def constant() -> Law:
    """Always one."""
    return Law("constant", jnp.ones_like, 1.0)


def exponential() -> Law:
    """The memoryless law, with quantile -log(1 - u)."""
    return Law("exponential", lambda uniform: -jnp.log1p(-uniform), 2.0)


def lognormal(spread: float) -> Law:
    """exp(spread * z - spread^2 / 2), z standard normal; `spread` >= 0 is the logarithm's deviation."""

    def quantile(uniform: Array) -> Array:
        return jnp.exp(spread * ndtri(uniform) - 0.5 * spread**2)

    return Law(f"lognormal({spread:g})", quantile, math.exp(spread**2))
