"""A probabilistic model of one answer: is the offer accepted, how long is the wait, how long the run, how does it end.

Acceptance, dropping and failure are Bernoulli. The wait is zero with some probability, otherwise its logarithm
(`log_wait`) is a mixture of normals (C. Bishop, Mixture density networks, 1994), truncated to positive values; that of
the run time (`log_run`) is one too. Outcomes that are censored (still waiting, still running when the log was cut)
enter the likelihood as "at least so long". Truncated rather than cut off at zero: what a cut gathers there is no part
of the likelihood, and short waits would all be drawn as none. Normals rather than logistics: a wide logistic of a
logarithm has the tail of a power law, which a likelihood hardly notices and a mean, and what queues behind, does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtri
from jax.scipy.stats import norm

from twin.contracts import Array
from twin.placement.types import Leaf

NUM_COMPONENTS = 4
NUM_OUTPUTS = 4 + 6 * NUM_COMPONENTS
WAIT_SCALES = slice(4 + 2 * NUM_COMPONENTS, 4 + 3 * NUM_COMPONENTS)
RUN_SCALES = slice(4 + 5 * NUM_COMPONENTS, 4 + 6 * NUM_COMPONENTS)
"""The outputs that are logarithms of scales."""
RUN_LOCATIONS = slice(4 + 4 * NUM_COMPONENTS, 4 + 5 * NUM_COMPONENTS)
RUN = slice(4 + 3 * NUM_COMPONENTS, NUM_OUTPUTS)
"""The outputs that run times are drawn by."""
MIN_LOG_SCALE, MAX_LOG_SCALE = -6.0, 2.0
"""The least lets the way to a free node be known to a fraction of a per cent, which it often is."""
WAIT_RESOLUTION = 1e-3
"""Waits are resolved down to this share of the unit of durations: the way to a node that is free takes milliseconds
where a queue takes minutes, and a log's own clock is rarely finer."""
WAIT_PLACES, RUN_PLACES = (2.0, 6.0, 0.0, 1.0), (-0.3, 0.0, 0.3, 1.0)
"""Where the components of an untrained network lie."""
FROM_USUAL = (1.0, 1.0, 1.0, 0.0)
"""Components of run times that count from what is usual."""
FROM_AVAILABILITY = (0.0, 0.0, 1.0, 1.0)
"""Components of waits that count from the moment at which the node has room, where the others count from the offer."""
MIN_PROBABILITY = 0.005
"""No offer is usually accepted or refused more surely than this."""
FREE = (1.0, 1.0, 0.0, 1.0)
"""Components of waits whose location the network moves. The third lies where room is: exact for a plain queue."""


class Mixture(NamedTuple):
    """A mixture of normals, truncated to positive values; leaves [components, *batch]."""

    log_weight: Array
    location: Array
    log_scale: Array  # of the standard deviations


class AnswerParameters(NamedTuple):
    """Parameters of one answer's distribution; logits [*batch]."""

    accept_logit: Array
    drop_logit: Array  # given accepted: given up before it ran
    fail_logit: Array  # given that it ran
    zero_wait_logit: Array
    wait: Mixture  # of log_wait, given that it is not zero
    run: Mixture  # of log_run


def log_wait(wait_s: Leaf, unit_s: float) -> Array:
    """The scale on which waits [*batch] are predicted."""
    return jnp.log1p(wait_s / (WAIT_RESOLUTION * unit_s))


def log_run(run_s: Leaf, unit_s: float) -> Array:
    """The scale on which run times [*batch] are predicted."""
    return jnp.log1p(run_s / unit_s)


def split_outputs(
    outputs: Array, availability: Leaf = 0.0, acceptance: Leaf = 0.5, usual: Leaf = 0.0
) -> AnswerParameters:
    """Names the network's outputs.

    Args:
        outputs: [NUM_OUTPUTS, *batch].
        availability: [*batch] `log_wait` of the time until the node has room, for the components that count from there.
        acceptance: [*batch] usual probability of acceptance, whose log odds the network's are added to.
        usual: [*batch] `log_run` of the usual run time, for the components that count from there.

    Returns:
        The parameters, leaves [*batch].
    """
    k = NUM_COMPONENTS

    def of_components(values: tuple[float, ...]) -> Array:
        return jnp.array(values, jnp.float32).reshape((k,) + (1,) * (outputs.ndim - 1))

    def mixture(first: int, places: Array, free: Leaf = 1.0) -> Mixture:
        weight, location, log_scale = (outputs[first + i * k : first + (i + 1) * k] for i in range(3))
        return Mixture(
            jax.nn.log_softmax(weight, axis=0),
            location * free + places,
            jnp.clip(log_scale, MIN_LOG_SCALE, MAX_LOG_SCALE),
        )

    accept, drop, fail, zero_wait = outputs[:4]
    likely = jnp.clip(acceptance, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
    accept += jnp.log(likely) - jnp.log1p(-likely)
    from_usual = of_components(FROM_USUAL) * jnp.broadcast_to(usual, outputs.shape[1:])[None]
    from_availability = (
        of_components(FROM_AVAILABILITY) * jnp.broadcast_to(availability, outputs.shape[1:])[None]
    )
    wait = mixture(4, of_components(WAIT_PLACES) + from_availability, of_components(FREE))
    return AnswerParameters(
        accept, drop, fail, zero_wait, wait, mixture(4 + 3 * k, of_components(RUN_PLACES) + from_usual)
    )


def _positive(mixture: Mixture) -> tuple[Array, Array]:
    """[components, *batch] log probabilities that a component is positive, [*batch] the same of all together."""
    each = log_ndtr(mixture.location * jnp.exp(-mixture.log_scale))
    return each, jax.nn.logsumexp(mixture.log_weight + each, axis=0)


def mixture_log_density(mixture: Mixture, value: Array) -> Array:
    """Log density of `value` >= 0 [*batch] under the mixture."""
    z = (value[None] - mixture.location) * jnp.exp(-mixture.log_scale)
    each = norm.logpdf(z) - mixture.log_scale
    return jax.nn.logsumexp(mixture.log_weight + each, axis=0) - _positive(mixture)[1]


def mixture_log_survival(mixture: Mixture, value: Array) -> Array:
    """Log probability of exceeding `value` >= 0 [*batch] under the mixture."""
    z = (value[None] - mixture.location) * jnp.exp(-mixture.log_scale)
    survival = jax.nn.logsumexp(mixture.log_weight + log_ndtr(-z), axis=0)
    return survival - _positive(mixture)[1]


def mixture_sample(mixture: Mixture, uniform_component: Array, uniform_value: Array) -> Array:
    """One positive draw [*batch] by inverse distribution functions from two uniforms [*batch] in (0, 1)."""
    of_component, of_all = _positive(mixture)
    weight = jnp.exp(mixture.log_weight + of_component - of_all[None])
    below = jnp.cumsum(weight, axis=0)
    chosen = (uniform_component[None] < below) & (uniform_component[None] >= below - weight)
    chosen = chosen.at[-1].set(chosen[-1] | (uniform_component >= below[-1]))

    def pick(values: Array) -> Array:
        return jnp.sum(jnp.where(chosen, values, 0.0), axis=0)

    above = uniform_value * jnp.exp(pick(of_component))
    # No smaller than the least float: its deviate, 13, leaves what lies far below zero there
    deviate = -ndtri(jnp.maximum(above, jnp.finfo(above.dtype).tiny))
    return jnp.maximum(pick(mixture.location) + jnp.exp(pick(mixture.log_scale)) * deviate, 0.0)


class Observed(NamedTuple):
    """The logged part of answers; leaves [*batch]."""

    accepted: Leaf  # bool
    dropped: Leaf  # bool
    failed: Leaf  # bool
    wait_s: Leaf  # to the start; a lower bound where not started
    started: Leaf  # bool
    run_s: Leaf  # to the finish; a lower bound where not finished
    finished: Leaf  # bool


def log_likelihood(
    parameters: AnswerParameters, observed: Observed, unit_s: float, *, cut_short: bool = False
) -> Array:
    """Log likelihood [*batch] of what was observed, censored parts as "at least so long"; failed runs too if they are
    `cut_short`."""
    accept = jnp.where(observed.accepted, parameters.accept_logit, -parameters.accept_logit)
    drop = jnp.where(observed.dropped, parameters.drop_logit, -parameters.drop_logit)
    fail = jnp.where(observed.failed, parameters.fail_logit, -parameters.fail_logit)
    wait, run = log_wait(observed.wait_s, unit_s), log_run(observed.run_s, unit_s)
    zero_wait = jax.nn.log_sigmoid(parameters.zero_wait_logit)
    some_wait = jax.nn.log_sigmoid(-parameters.zero_wait_logit)
    waited = jnp.where(
        observed.wait_s <= 0.0, zero_wait, some_wait + mixture_log_density(parameters.wait, wait)
    )
    waits = jnp.where(observed.started, waited, some_wait + mixture_log_survival(parameters.wait, wait))
    runs = jnp.where(
        observed.finished & ~observed.failed if cut_short else observed.finished,
        mixture_log_density(parameters.run, run),
        mixture_log_survival(parameters.run, run),
    )
    ran = observed.accepted & ~observed.dropped
    total = jax.nn.log_sigmoid(accept)
    total += jnp.where(
        observed.accepted & (observed.dropped | observed.finished), jax.nn.log_sigmoid(drop), 0.0
    )
    total += jnp.where(ran & observed.finished, jax.nn.log_sigmoid(fail), 0.0)
    total += jnp.where(ran, waits, 0.0)
    return total + jnp.where(ran & observed.started, runs, 0.0)


class DrawnAnswers(NamedTuple):
    """A drawn answer; leaves [*batch]."""

    accepted: Array
    dropped: Array
    failed: Array
    wait_s: Array
    run_s: Array


NUM_UNIFORMS = 8


def sample_answer(
    parameters: AnswerParameters,
    uniforms: Array,
    unit_s: float,
    limits_s: tuple[Leaf, Leaf],
    *,
    cut_short: bool = False,
) -> DrawnAnswers:
    """Draws an answer from `NUM_UNIFORMS` uniforms.

    Args:
        parameters: Of the answer's distribution, leaves [*batch].
        uniforms: [NUM_UNIFORMS, *batch] in (0, 1).
        unit_s: Unit of durations.
        limits_s: Largest wait and run time to draw, each one number or [*batch].
        cut_short: Whether failed runs end anywhere on their way, any part of it as likely.
    """

    def drawn(mixture: Mixture, first: int, limit: Array) -> Array:
        return jnp.expm1(jnp.minimum(mixture_sample(mixture, uniforms[first], uniforms[first + 1]), limit))

    wait_s = drawn(parameters.wait, 4, log_wait(limits_s[0], unit_s)) * (WAIT_RESOLUTION * unit_s)
    at_once = uniforms[3] < jax.nn.sigmoid(parameters.zero_wait_logit)
    fails = jax.nn.sigmoid(parameters.fail_logit)
    failed = uniforms[2] < fails
    run_s = drawn(parameters.run, 6, log_run(limits_s[1], unit_s)) * unit_s
    if cut_short:
        run_s = jnp.where(failed, run_s * uniforms[2] / jnp.maximum(fails, uniforms[2]), run_s)
    return DrawnAnswers(
        accepted=uniforms[0] < jax.nn.sigmoid(parameters.accept_logit),
        dropped=uniforms[1] < jax.nn.sigmoid(parameters.drop_logit),
        failed=failed,
        wait_s=jnp.where(at_once, 0.0, wait_s),
        run_s=run_s,
    )
