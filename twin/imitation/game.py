"""The game between imitation and discriminator: rollouts of the imitated agents, and what each side minimises.

Arrivals are replayed from the logged windows that the same step shows to the discriminator, so both sides of a
comparison have the same requests before them; engine, agents and nodes are imitated jointly (Xiong et al., equation 6).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree, Trajectory
from twin.environment import environment
from twin.imitation.config import ImitationConfig
from twin.imitation.decisions import (
    LoggedDecisions,
    answer_features,
    observed_features,
    same_agent,
    states_of,
)
from twin.imitation.discriminator import rows, scores_of
from twin.imitation.generator import (
    Limits,
    Noise,
    ResponseGenerator,
    answers_given,
    choose,
    draw_again,
    engine_logits,
    imitated_answers,
)
from twin.placement.availability import PendingFates
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.features import one_hot
from twin.placement.learned import pending_inputs, reacted
from twin.placement.outcome_model import DrawnAnswers, log_likelihood
from twin.placement.responses import drawn_response
from twin.placement.types import Observation
from twin.placement.windows import Windows, replayed_arrivals
from twin.rollout import unroll


class ImitatedRollout(NamedTuple):
    """A rollout of the imitated agents as discriminator and PPO need it."""

    full: Observation
    local: Observation
    legal: Array  # [nodes, T, W]
    pending: PendingFates  # leaves [T, W]: what was fated of those on the node offered
    agent: Array  # [T, W]
    valid: Array  # [T, W]
    arrival_s: Array  # [T, W]
    noise: Noise


def play(
    encoding: Encoding,
    config: ImitationConfig,
    generator: ResponseGenerator,
    limits: Limits,
    windows: Windows,
    noise: Noise,
) -> Trajectory:
    """Rolls out engine and answers on the arrivals of `windows`, a stream each; a function of its arguments."""
    cluster = encoding.cluster
    answers = imitated_answers(encoding, config, generator.answers, limits, noise)
    response = drawn_response(cluster, encoding.problem.depth, replayed_arrivals(windows), answers)
    system = environment(placement(cluster, encoding.problem), response)

    def decide(_key: Array, seen: PyTree, legal: PyTree, gumbels: PyTree) -> Array:
        logits = engine_logits(cluster, config, generator.engine, seen, legal)
        return jnp.argmax(logits + gumbels[:, None], axis=0).astype(jnp.int32)

    num_steps, num_windows = windows.arrival_s.shape
    by_step = jnp.moveaxis(noise.gumbels, 1, 0)
    return unroll(jax.random.key(0), system, decide, by_step, num_steps, (num_windows,))


def played(history: Trajectory, noise: Noise) -> ImitatedRollout:
    """What is kept of a rollout; no gradient passes through it."""
    full, local, legal, agent = states_of(history)
    pending, active, arrival_s = jax.tree.map(
        lambda leaf: leaf[:, 0], (history.response_aux, history.active, history.decision_info.arrival_s)
    )
    return jax.lax.stop_gradient(
        ImitatedRollout(full, local, legal, pending, agent, active, arrival_s, noise)
    )


class Again(NamedTuple):
    """The rollout's decisions and answers drawn again, with gradients."""

    chosen: Array  # [nodes, T, W]
    drawn: DrawnAnswers


def inputs_of(encoding: Encoding, seen: Observation, chosen: Array, pending: PendingFates) -> Array:
    """`answer_inputs` [inputs, T, W] of one-hot decisions [nodes, T, W], differentiable in them.

    What is pending on the node [T, W] is taken as it was found: a decision has no gradient through it.
    """
    of_node = jnp.einsum("fntw,ntw->ftw", seen.node, chosen)
    of_pending = pending_inputs(pending, encoding.problem.time_unit_s)
    of_offer = reacted(encoding.cluster, jnp.concatenate([of_node, chosen, seen.request]), pending)
    return jnp.concatenate([of_offer, of_pending])


def again(
    encoding: Encoding,
    config: ImitationConfig,
    generator: ResponseGenerator,
    limits: Limits,
    seen: ImitatedRollout,
) -> Again:
    """Draws decisions and answers again from the visited states and the same noise: the same values, with gradients."""
    logits = engine_logits(encoding.cluster, config, generator.engine, seen.local, seen.legal)
    chosen = choose(logits, seen.noise.gumbels)
    inputs = inputs_of(encoding, seen.full, chosen, seen.pending)
    parameters = answers_given(encoding, config, generator.answers, inputs)
    drawn = draw_again(
        parameters,
        seen.noise.uniforms,
        encoding.problem.time_unit_s,
        limits.beyond(seen.pending),
        cut_short=bool(encoding.cluster.hazard),
    )
    return Again(chosen, drawn)


def generated_rows(
    encoding: Encoding, config: ImitationConfig, seen: ImitatedRollout, drawn: Again, known_until_s: Array
) -> tuple[Array, Array]:
    """Rows [row features, T, W] of a rollout and which count [T, W]: those that the log would know the end of."""
    answer = drawn.drawn
    answers = answer_features(*answer, encoding.problem.time_unit_s)
    same = same_agent(seen.agent, seen.valid)
    shown = rows(seen.full, drawn.chosen, answers, same, config.discriminator.window)
    stays_s = answer.wait_s + jnp.where(answer.dropped > 0.5, 0.0, answer.run_s)
    ends_s = jnp.where(answer.accepted > 0.5, seen.arrival_s + stays_s, seen.arrival_s)
    return shown, seen.valid & (jax.lax.stop_gradient(ends_s) <= known_until_s[None])


def logged_rows(encoding: Encoding, config: ImitationConfig, logged: LoggedDecisions) -> Array:
    """Rows [row features, T, W] of history; `logged.known` marks which count."""
    chosen = one_hot(logged.node, encoding.cluster.num_nodes).astype(jnp.float32)
    answers = observed_features(logged.observed, encoding.problem.time_unit_s)
    return rows(
        logged.full, chosen, answers, same_agent(logged.agent, logged.valid), config.discriminator.window
    )


class Likelihood(NamedTuple):
    """Mean log likelihoods per logged decision."""

    answers: Array
    engine: Array


def likelihood(
    encoding: Encoding, config: ImitationConfig, generator: ResponseGenerator, logged: LoggedDecisions
) -> Likelihood:
    """Log likelihood of logged answers and of the engine's logged decisions."""
    chosen = one_hot(logged.node, encoding.cluster.num_nodes).astype(jnp.float32)
    inputs = inputs_of(encoding, logged.full, chosen, logged.pending)

    parameters = answers_given(encoding, config, generator.answers, inputs)
    of_answer = log_likelihood(
        parameters,
        logged.observed,
        encoding.problem.time_unit_s,
        cut_short=bool(encoding.cluster.hazard),
    )
    num_valid = jnp.maximum(jnp.sum(logged.valid), 1)
    logits = engine_logits(encoding.cluster, config, generator.engine, logged.local, logged.legal)
    taken = jnp.sum(jnp.where(logged.valid[None], chosen * logits, 0.0))
    return Likelihood(jnp.sum(jnp.where(logged.valid, of_answer, 0.0)) / num_valid, taken / num_valid)


def verdicts(config: ImitationConfig, discriminator: PyTree, shown: Array, counts: Array) -> Array:
    """What pathwise gradients minimise: mean of `-log(1 - D)` over generated rows (non-saturating)."""
    logits = scores_of(config.discriminator, discriminator, shown)
    return jnp.sum(jnp.where(counts, jax.nn.softplus(logits), 0.0)) / jnp.maximum(jnp.sum(counts), 1)
