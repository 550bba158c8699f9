"""Probability distributions with mean one, of the size of a request, its run time or a latency.

A law is given by its quantile function, so that one uniform number per draw is enough and a law can be exchanged
without changing the mechanics.

    constant            1
    exponential         -log(1 - u)
    lognormal           exp(spread * z - spread^2 / 2), z standard normal
    bounded_pareto      density proportional to x^(-tail - 1) between bounds whose ratio is `range`
    hyperexponential    two exponentials, each with half of the work (balanced means), of a given squared variation

Source: M. Harchol-Balter, The effect of heavy-tailed job size distributions on computer system design, 1999.
"""

import math
from dataclasses import dataclass

import jax.numpy as jnp
from jax.scipy.special import ndtri

from logs_schema.errors import ConfigError
from twin.contracts import Array

SMALLEST_UNIFORM = 1e-7
"""Uniform numbers are drawn from [SMALLEST_UNIFORM, 1): their quantiles are finite in float32."""
CONSTANT, EXPONENTIAL, LOGNORMAL = "constant", "exponential", "lognormal"
BOUNDED_PARETO, HYPEREXPONENTIAL = "bounded_pareto", "hyperexponential"
PARAMETERS = {
    CONSTANT: (),
    EXPONENTIAL: (),
    LOGNORMAL: ("spread",),
    BOUNDED_PARETO: ("tail", "range"),
    HYPEREXPONENTIAL: ("variation",),
}
"""Parameters of each kind of law."""


@dataclass(frozen=True)
class Law:
    """A positive random variable of mean one.

    Attributes:
        kind: One of `PARAMETERS`.
        spread: Of a lognormal law: deviation of the logarithm, >= 0.
        tail: Of a bounded Pareto law: the exponent of its tail, > 0; work is heavy-tailed below 2.
        range: Of a bounded Pareto law: its largest value over its smallest, > 1.
        variation: Of a hyperexponential law: variance (over the mean squared, which is one), > 1.
    """

    kind: str = CONSTANT
    spread: float = 0.0
    tail: float = 0.0
    range: float = 0.0
    variation: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in PARAMETERS:
            raise ConfigError(
                f"unknown law {self.kind!r}", where="law of chance", allowed=", ".join(PARAMETERS)
            )
        own = PARAMETERS[self.kind]
        others = {name for names in PARAMETERS.values() for name in names} - set(own)
        extra = sorted(name for name in others if getattr(self, name) != 0.0)
        if extra:
            raise ConfigError(
                f"a law of kind {self.kind} has no {', '.join(extra)}",
                where="law of chance",
                allowed=", ".join(own) or "no number",
                advice="leave it out, or name the kind that has it",
            )
        for name, lower in (("spread", 0.0), ("tail", 0.0), ("range", 1.0), ("variation", 1.0)):
            value = getattr(self, name)
            inside = value >= lower if name == "spread" else value > lower
            if name in own and not (inside and math.isfinite(value)):
                raise ConfigError(
                    f"{name} = {value:g}",
                    where=f"law of kind {self.kind}",
                    allowed=f"{'at least' if name == 'spread' else 'more than'} {lower:g}",
                )

    @property
    def name(self) -> str:
        """The law as a reader would write it."""
        numbers = ", ".join(f"{getattr(self, name):g}" for name in PARAMETERS[self.kind])
        return f"{self.kind}({numbers})" if numbers else self.kind

    def quantile(self, uniform: Array) -> Array:
        """The values at uniform numbers in (0, 1), any shape -> values >= 0, same shape."""
        if self.kind == CONSTANT:
            return jnp.ones_like(uniform)
        if self.kind == EXPONENTIAL:
            return -jnp.log1p(-uniform)
        if self.kind == LOGNORMAL:
            return jnp.exp(self.spread * ndtri(uniform) - 0.5 * self.spread**2)
        if self.kind == BOUNDED_PARETO:
            kept = 1.0 - self.range**-self.tail
            return (1.0 - uniform * kept) ** (-1.0 / self.tail) / self._pareto_mean()
        short = 0.5 * (1.0 + math.sqrt((self.variation - 1.0) / (self.variation + 1.0)))
        is_short = uniform < short
        share = jnp.where(is_short, short, 1.0 - short)
        rest = jnp.where(is_short, uniform, uniform - short) / share
        return -jnp.log1p(-jnp.minimum(rest, 1.0 - SMALLEST_UNIFORM)) / (2.0 * share)

    def _pareto_mean(self) -> float:
        """The mean of the bounded Pareto law whose smallest value is one."""
        scale = self.tail / (1.0 - self.range**-self.tail)
        power = 1.0 - self.tail
        whole = math.log(self.range) if power == 0.0 else (self.range**power - 1.0) / power
        return scale * whole


def constant() -> Law:
    """Always one."""
    return Law()


def exponential() -> Law:
    """The memoryless law."""
    return Law(EXPONENTIAL)


def lognormal(spread: float) -> Law:
    """The law whose logarithm is normal with deviation `spread` >= 0."""
    return Law(LOGNORMAL, spread=spread)
