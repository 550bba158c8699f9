"""What is learned: the answers of nodes and agents, and the historical engine.

The engine scores every node with one shared network on what the deciding site observes. The answers are the networks of
the twin (`twin.placement.learned`). A rollout is a function of its noise; drawn again from the states it visited and
the same noise, the same answers come out with gradients behind them: durations by their quantile functions, flags
straight through their probabilities (Bengio et al. 2013), the engine's choice straight through its softmax.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree, Streams
from twin.imitation.config import ImitationConfig
from twin.networks import MLP, apply, shifted
from twin.placement.availability import PendingFates, pending_fates
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, observe, one_hot, request_features
from twin.placement.learned import (
    answer_inputs,
    answer_parameters,
    as_fate,
    cut_off,
    held_up,
    members_apply,
    num_inputs,
    with_moved_fates,
)
from twin.placement.outcome_model import (
    NUM_OUTPUTS,
    NUM_UNIFORMS,
    AnswerParameters,
    DrawnAnswers,
    sample_answer,
)
from twin.placement.responses import Answers
from twin.placement.types import Cluster, Fate, Leaf, Observation, PlacementState

LEAST = float(np.finfo(np.float32).tiny)


class ResponseGenerator(NamedTuple):
    """Parameters of the imitated multi-agent policy."""

    answers: PyTree  # of all members; leaves [members, ...]
    engine: PyTree


class Limits(NamedTuple):
    """Largest durations that the log shows."""

    wait_s: Leaf
    run_s: float

    def beyond(self, pending: PendingFates) -> "Limits":
        """The largest durations to draw: longer queues than any that was logged mean longer waits."""
        return self._replace(wait_s=self.wait_s + pending.availability_s)


class Noise(NamedTuple):
    """All chance of a rollout besides its arrivals."""

    uniforms: Array  # [NUM_UNIFORMS, T, W] in (0, 1): answers
    gumbels: Array  # [nodes, T, W]: decisions


def answers_network(config: ImitationConfig) -> MLP:
    """The network of one member."""
    return MLP(config.hidden, NUM_OUTPUTS, output_scale=0.1)


def engine_network(config: ImitationConfig) -> MLP:
    """The network that scores one node for one request."""
    return MLP(config.engine_hidden, 1, output_scale=0.1)


def init_generator(key: Array, cluster: Cluster, config: ImitationConfig) -> ResponseGenerator:
    """Random parameters."""
    key_answers, key_engine = jax.random.split(key)
    init = partial(answers_network(config).init, inputs=jnp.zeros((num_inputs(cluster), 1)))
    members = jax.vmap(lambda one: init(one))(jax.random.split(key_answers, config.num_members))
    engine_width = len(NODE_FEATURES) + cluster.num_nodes + len(request_features(cluster))
    return ResponseGenerator(members, engine_network(config).init(key_engine, jnp.zeros((engine_width, 1))))


def draw_noise(key: Array, num_steps: int, num_streams: int, num_nodes: int) -> Noise:
    """Noise of a rollout."""
    _, key_uniforms, key_gumbels = jax.random.split(key, 3)
    shape = (num_steps, num_streams)
    return Noise(
        jax.random.uniform(key_uniforms, (NUM_UNIFORMS, *shape), minval=LEAST),
        jax.random.gumbel(key_gumbels, (num_nodes, *shape)),
    )


def answers_given(
    encoding: Encoding, config: ImitationConfig, parameters: PyTree, inputs: Array
) -> AnswerParameters:
    """Distributions of answers [T, W] for inputs [inputs, T, W]; the streams are dealt to the members."""
    return answer_parameters(members_apply(answers_network(config), parameters, inputs), inputs, encoding)


def engine_logits(
    cluster: Cluster, config: ImitationConfig, parameters: PyTree, seen: Observation, legal: Array
) -> Array:
    """Log probabilities [nodes, *batch] of the engine's choice among legal nodes.

    Args:
        cluster: For the number of nodes.
        config: For the network.
        parameters: The engine's.
        seen: Leaves [F, nodes, *batch] and [R, *batch], as the deciding site observes them.
        legal: [nodes, *batch] bool.
    """
    batch = legal.shape[1:]
    name = jnp.eye(cluster.num_nodes).reshape((cluster.num_nodes,) * 2 + (1,) * len(batch))
    parts = [
        seen.node,
        jnp.broadcast_to(name, (cluster.num_nodes, cluster.num_nodes, *batch)),
        jnp.broadcast_to(seen.request[:, None], (seen.request.shape[0], cluster.num_nodes, *batch)),
    ]
    scores = apply(engine_network(config), parameters, jnp.concatenate(parts))[0]
    return jax.nn.log_softmax(jnp.where(legal, scores, -1e9), axis=0)


def widened(config: ImitationConfig, generator: ResponseGenerator, widening: Array) -> ResponseGenerator:
    """The generator with `widening` [NUM_OUTPUTS] added to what its answers' networks put out (`placement.spread`)."""
    return generator._replace(answers=shifted(generator.answers, f"Dense_{len(config.hidden)}", widening))


def straight_through(hard: Array, soft: Array) -> Array:
    """The value of `hard` with the gradient of `soft`."""
    return soft + jax.lax.stop_gradient(hard - soft)


def choose(logits: Array, gumbels: Array) -> Array:
    """One-hot choice [nodes, *batch] by the largest of logits plus Gumbel noise, its gradient that of the softmax."""
    noisy = logits + gumbels
    hard = one_hot(jnp.argmax(noisy, axis=0).astype(jnp.int32), logits.shape[0]).astype(jnp.float32)
    return straight_through(hard, jax.nn.softmax(noisy, axis=0))


def draw_again(
    parameters: AnswerParameters, uniforms: Array, unit_s: float, limits: Limits, *, cut_short: bool = False
) -> DrawnAnswers:
    """`sample_answer` with gradients: flags are 0. or 1. and differentiable in their probabilities."""
    drawn = sample_answer(parameters, uniforms, unit_s, limits, cut_short=cut_short)

    def flag(value: Array, logit: Array) -> Array:
        return straight_through(value.astype(jnp.float32), jax.nn.sigmoid(logit))

    at_all = straight_through(
        (drawn.wait_s > 0.0).astype(jnp.float32), jax.nn.sigmoid(-parameters.zero_wait_logit)
    )
    return DrawnAnswers(
        flag(drawn.accepted, parameters.accept_logit),
        flag(drawn.dropped, parameters.drop_logit),
        flag(drawn.failed, parameters.fail_logit),
        drawn.wait_s * at_all,
        drawn.run_s,
    )


def imitated_answers(
    encoding: Encoding,
    config: ImitationConfig,
    parameters: PyTree,
    limits: Limits,
    noise: Noise | None = None,
) -> Answers:
    """Answers drawn from the imitated policies, for the bookkeeping of any placement environment.

    Args:
        encoding: What the arrays mean.
        config: For the networks.
        parameters: `ResponseGenerator.answers`.
        limits: Largest durations to draw.
        noise: The noise of a rollout, used step by step; drawn from the rollout's keys where None.

    Returns:
        The answers, for one stream axis whose length is a multiple of the number of members.
    """
    cluster, unit_s = encoding.cluster, encoding.problem.time_unit_s

    def init(_key: Array, streams: Streams) -> Array:
        if len(streams) != 1 or streams[0] % config.num_members:
            raise ConfigError(
                f"{streams} streams cannot be dealt to {config.num_members} members",
                where="imitated_answers",
                allowed=f"one stream axis, a multiple of {config.num_members} long",
            )
        return jnp.int32(0)

    def answer(
        key: Array, step: Array, state: PlacementState, node: Array, pending: PendingFates
    ) -> tuple[Array, Fate]:
        seen = observe(cluster, state, unit_s, in_full=True, for_answers=True)
        inputs = answer_inputs(cluster, seen, node, pending, unit_s)
        if noise is None:
            uniforms = jax.random.uniform(key, (NUM_UNIFORMS, *node.shape), minval=LEAST)
        else:
            uniforms = jax.lax.dynamic_index_in_dim(noise.uniforms, step, 1)
        answers = answers_given(encoding, config, parameters, inputs)
        longest_s = limits.beyond(pending)
        drawn = sample_answer(answers, uniforms, unit_s, longest_s, cut_short=bool(cluster.hazard))
        drawn = cut_off(cluster, state.request, held_up(cluster, drawn, pending, node))
        fate = as_fate(drawn, jnp.broadcast_to(state.clock_s[None], node.shape))
        return step + 1, fate

    answers = Answers(init, answer, partial(pending_fates, cluster))
    # The game's gradients do not pass through what moves
    return with_moved_fates(cluster, answers) if noise is None else answers
