"""A probabilistic model of one answer: is the offer accepted, how long is the wait, how long the run, how does it end.

Acceptance, dropping and failure are Bernoulli. The wait is zero with some probability, otherwise
`log1p(wait / unit)` is a mixture of logistics; `log1p(run / unit)` is one too. A logistic has a closed-form
distribution function, so outcomes that are censored (still waiting, still running when the log was cut) enter the
likelihood as "at least so long", and sampling needs one uniform number and one logarithm.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array
from twin.placement.types import Leaf

NUM_COMPONENTS = 4
NUM_OUTPUTS = 4 + 6 * NUM_COMPONENTS
MIN_LOG_SCALE, MAX_LOG_SCALE = -3.0, 2.0


class Mixture(NamedTuple):
    """A mixture of logistics; leaves [components, *batch]."""

    log_weight: Array
    location: Array
    log_scale: Array


class AnswerParameters(NamedTuple):
    """Parameters of one answer's distribution; logits [*batch]."""

    accept_logit: Array
    drop_logit: Array  # given accepted: given up before it ran
    fail_logit: Array  # given that it ran
    zero_wait_logit: Array
    wait: Mixture  # of log1p(wait / unit), given that it is not zero
    run: Mixture  # of log1p(run / unit)


def split_outputs(outputs: Array) -> AnswerParameters:
    """Names the network's outputs [NUM_OUTPUTS, *batch]."""
    k = NUM_COMPONENTS

    def mixture(first: int) -> Mixture:
        weight, location, log_scale = (outputs[first + i * k : first + (i + 1) * k] for i in range(3))
        spread = jnp.arange(k, dtype=jnp.float32).reshape((k,) + (1,) * (outputs.ndim - 1))
        return Mixture(
            jax.nn.log_softmax(weight, axis=0),
            location + spread,
            jnp.clip(log_scale, MIN_LOG_SCALE, MAX_LOG_SCALE),
        )

    accept, drop, fail, zero_wait = outputs[:4]
    return AnswerParameters(accept, drop, fail, zero_wait, mixture(4), mixture(4 + 3 * k))


def mixture_log_density(mixture: Mixture, value: Array) -> Array:
    """Log density of `value` [*batch] under the mixture."""
    z = (value[None] - mixture.location) * jnp.exp(-mixture.log_scale)
    each = jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z) - mixture.log_scale
    return jax.nn.logsumexp(mixture.log_weight + each, axis=0)


def mixture_log_survival(mixture: Mixture, value: Array) -> Array:
    """Log probability of exceeding `value` [*batch] under the mixture."""
    z = (value[None] - mixture.location) * jnp.exp(-mixture.log_scale)
    return jax.nn.logsumexp(mixture.log_weight + jax.nn.log_sigmoid(-z), axis=0)


def mixture_sample(mixture: Mixture, uniform_component: Array, uniform_value: Array) -> Array:
    """One draw [*batch] by inverse distribution functions from two uniforms [*batch]."""
    weight = jnp.exp(mixture.log_weight)
    below = jnp.cumsum(weight, axis=0)
    chosen = (uniform_component[None] < below) & (uniform_component[None] >= below - weight)
    chosen = chosen.at[-1].set(chosen[-1] | (uniform_component >= below[-1]))

    def pick(values: Array) -> Array:
        return jnp.sum(jnp.where(chosen, values, 0.0), axis=0)

    odds = jnp.log(uniform_value) - jnp.log1p(-uniform_value)
    return pick(mixture.location) + jnp.exp(pick(mixture.log_scale)) * odds


class Observed(NamedTuple):
    """What the log says of answers; leaves [*batch]."""

    accepted: Leaf  # bool
    dropped: Leaf  # bool
    failed: Leaf  # bool
    wait_s: Leaf  # to the start; a lower bound where not started
    started: Leaf  # bool
    run_s: Leaf  # to the finish; a lower bound where not finished
    finished: Leaf  # bool


def log_likelihood(parameters: AnswerParameters, observed: Observed, unit_s: float) -> Array:
    """Log likelihood [*batch] of what was observed, censored parts as "at least so long"."""
    accept = jnp.where(observed.accepted, parameters.accept_logit, -parameters.accept_logit)
    drop = jnp.where(observed.dropped, parameters.drop_logit, -parameters.drop_logit)
    fail = jnp.where(observed.failed, parameters.fail_logit, -parameters.fail_logit)
    wait, run = jnp.log1p(observed.wait_s / unit_s), jnp.log1p(observed.run_s / unit_s)
    zero_wait = jax.nn.log_sigmoid(parameters.zero_wait_logit)
    some_wait = jax.nn.log_sigmoid(-parameters.zero_wait_logit)
    waited = jnp.where(
        observed.wait_s <= 0.0, zero_wait, some_wait + mixture_log_density(parameters.wait, wait)
    )
    waits = jnp.where(observed.started, waited, some_wait + mixture_log_survival(parameters.wait, wait))
    runs = jnp.where(
        observed.finished, mixture_log_density(parameters.run, run), mixture_log_survival(parameters.run, run)
    )
    ran = observed.accepted & ~observed.dropped
    total = jax.nn.log_sigmoid(accept)
    total += jnp.where(
        observed.accepted & (observed.dropped | observed.finished), jax.nn.log_sigmoid(drop), 0.0
    )
    total += jnp.where(ran & observed.finished, jax.nn.log_sigmoid(fail), 0.0)
    total += jnp.where(ran, waits, 0.0)
    return total + jnp.where(ran & observed.started, runs, 0.0)


class Drawn(NamedTuple):
    """A drawn answer; leaves [*batch]."""

    accepted: Array
    dropped: Array
    failed: Array
    wait_s: Array
    run_s: Array


NUM_UNIFORMS = 8


def sample_answer(
    parameters: AnswerParameters, uniforms: Array, unit_s: float, limits_s: tuple[float, float]
) -> Drawn:
    """Draws an answer from `NUM_UNIFORMS` uniforms.

    Args:
        parameters: Of the answer's distribution, leaves [*batch].
        uniforms: [NUM_UNIFORMS, *batch] in (0, 1).
        unit_s: Unit of durations.
        limits_s: Largest wait and run time to draw: the model does not know longer ones.

    Returns:
        The answer.
    """

    def duration(mixture: Mixture, first: int, limit_s: float) -> Array:
        value = mixture_sample(mixture, uniforms[first], uniforms[first + 1])
        ceiling = jnp.log1p(limit_s / unit_s)
        return jnp.expm1(jnp.clip(value, 0.0, ceiling)) * unit_s

    at_once = uniforms[3] < jax.nn.sigmoid(parameters.zero_wait_logit)
    return Drawn(
        accepted=uniforms[0] < jax.nn.sigmoid(parameters.accept_logit),
        dropped=uniforms[1] < jax.nn.sigmoid(parameters.drop_logit),
        failed=uniforms[2] < jax.nn.sigmoid(parameters.fail_logit),
        wait_s=jnp.where(at_once, 0.0, duration(parameters.wait, 4, limits_s[0])),
        run_s=duration(parameters.run, 6, limits_s[1]),
    )
