"""What is learned: the answers of nodes and agents, and the historical engine.

The engine scores every node with one shared network on what the deciding site observes. The answers are the networks of
the twin (`twin.placement.learned`), with the kind of the agent (`twin.imitation.kinds`) beside their inputs where there
are several: of one kind, they are the twin's own ensemble. A rollout is a function of its
noise; drawn again from the states it visited and the same noise, the same answers come out with gradients behind them:
durations by their quantile functions, flags straight through their probabilities (Bengio et al. 2013), the engine's
choice straight through its softmax.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree, Streams
from twin.imitation.config import ImitationConfig
from twin.imitation.kinds import NUM_SLOTS, drawn_kind, slot_of, uniform_hash
from twin.networks import MLP, apply, shifted
from twin.placement.availability import PendingFates, pending_fates
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, observe, one_hot, request_features
from twin.placement.learned import (
    answer_inputs,
    answer_parameters,
    as_fate,
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
from twin.placement.randomisation import draw_seeds
from twin.placement.responses import Answers
from twin.placement.types import Cluster, Fate, Leaf, Observation, PlacementState

LEAST = float(np.finfo(np.float32).tiny)


class AnswerNetworks(NamedTuple):
    """Parameters of all members; leaves [members, ...]."""

    answer: PyTree
    gate: PyTree  # how likely the kinds are


class ResponseGenerator(NamedTuple):
    """Parameters of the imitated multi-agent policy."""

    answers: AnswerNetworks
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

    seeds: Array  # uint32 [W]: the kinds of agents follow from it
    uniforms: Array  # [NUM_UNIFORMS, T, W] in (0, 1): answers
    gumbels: Array  # [nodes, T, W]: decisions


def answers_network(config: ImitationConfig) -> MLP:
    """The network of one member."""
    return MLP(config.hidden, NUM_OUTPUTS, output_scale=0.1)


def gate_network(config: ImitationConfig) -> MLP:
    """The network of one member for the probabilities of the kinds, from the inputs of the answers."""
    return MLP(config.hidden, config.num_kinds, output_scale=0.1)


def kind_log_weights(config: ImitationConfig, parameters: AnswerNetworks, inputs: Array) -> Array:
    """[kinds, T, W] log probabilities of the kinds for inputs [inputs, T, W]; streams are dealt to the members."""
    if config.num_kinds == 1:
        return jnp.zeros((1, *inputs.shape[1:]))
    return jax.nn.log_softmax(members_apply(gate_network(config), parameters.gate, inputs), axis=0)


def engine_network(config: ImitationConfig) -> MLP:
    """The network that scores one node for one request."""
    return MLP(config.engine_hidden, 1, output_scale=0.1)


def init_generator(key: Array, cluster: Cluster, config: ImitationConfig) -> ResponseGenerator:
    """Random parameters."""
    key_answers, key_engine, key_gate = jax.random.split(key, 3)
    width = num_inputs(cluster) + (config.num_kinds if config.num_kinds > 1 else 0)
    init = partial(answers_network(config).init, inputs=jnp.zeros((width, 1)))
    members = jax.vmap(lambda one: init(one))(jax.random.split(key_answers, config.num_members))
    init_gate = partial(gate_network(config).init, inputs=jnp.zeros((num_inputs(cluster), 1)))
    gates = jax.vmap(lambda one: init_gate(one))(jax.random.split(key_gate, config.num_members))
    engine_width = len(NODE_FEATURES) + cluster.num_nodes + len(request_features(cluster))
    return ResponseGenerator(
        AnswerNetworks(members, gates), engine_network(config).init(key_engine, jnp.zeros((engine_width, 1)))
    )


def draw_noise(key: Array, num_steps: int, num_streams: int, num_nodes: int) -> Noise:
    """Noise of a rollout."""
    key_seeds, key_uniforms, key_gumbels = jax.random.split(key, 3)
    shape = (num_steps, num_streams)
    return Noise(
        draw_seeds(key_seeds, (num_streams,)),
        jax.random.uniform(key_uniforms, (NUM_UNIFORMS, *shape), minval=LEAST),
        jax.random.gumbel(key_gumbels, (num_nodes, *shape)),
    )


def with_kind(inputs: Array, kind: Array, config: ImitationConfig) -> Array:
    """Inputs [inputs, *batch] with the kind [*batch] beside them, if there is more than one."""
    if config.num_kinds == 1:
        return inputs
    return jnp.concatenate([inputs, one_hot(kind, config.num_kinds).astype(inputs.dtype)])


def answers_given(
    encoding: Encoding, config: ImitationConfig, parameters: AnswerNetworks, inputs: Array, kind: Array
) -> AnswerParameters:
    """Distributions of answers [T, W] for inputs [inputs, T, W]; the streams are dealt to the members."""
    outputs = members_apply(answers_network(config), parameters.answer, with_kind(inputs, kind, config))
    return answer_parameters(outputs, inputs, encoding)


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
    answers = generator.answers
    moved = shifted(answers.answer, f"Dense_{len(config.hidden)}", widening)
    return generator._replace(answers=answers._replace(answer=moved))


def straight_through(hard: Array, soft: Array) -> Array:
    """The value of `hard` with the gradient of `soft`."""
    return soft + jax.lax.stop_gradient(hard - soft)


def choose(logits: Array, gumbels: Array) -> Array:
    """One-hot choice [nodes, *batch] by the largest of logits plus Gumbel noise, its gradient that of the softmax."""
    noisy = logits + gumbels
    hard = one_hot(jnp.argmax(noisy, axis=0).astype(jnp.int32), logits.shape[0]).astype(jnp.float32)
    return straight_through(hard, jax.nn.softmax(noisy, axis=0))


def draw_again(parameters: AnswerParameters, uniforms: Array, unit_s: float, limits: Limits) -> DrawnAnswers:
    """`sample_answer` with gradients: flags are 0. or 1. and differentiable in their probabilities."""
    drawn = sample_answer(parameters, uniforms, unit_s, limits)

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


class _Memory(NamedTuple):
    seeds: Array  # uint32 [W]
    step: Array  # [] int32
    kind: Array  # [slots, W] int32: kinds of the agents met, -1 where none was


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
        config: For the networks and kinds.
        parameters: `ResponseGenerator.answers`.
        limits: Largest durations to draw.
        noise: The noise of a rollout, used step by step; drawn from the rollout's keys where None.

    Returns:
        The answers, for one stream axis whose length is a multiple of the number of members.
    """
    unit_s = encoding.problem.time_unit_s

    def init(key: Array, streams: Streams) -> _Memory:
        if len(streams) != 1 or streams[0] % config.num_members:
            raise ConfigError(
                f"{streams} streams cannot be dealt to {config.num_members} members", where="imitated_answers",
                allowed=f"one stream axis, a multiple of {config.num_members} long",
            )  # fmt: skip
        seeds = draw_seeds(key, streams) if noise is None else noise.seeds
        slots = NUM_SLOTS if config.num_kinds > 1 else 0
        return _Memory(seeds, jnp.int32(0), jnp.full((slots, *streams), -1, jnp.int32))

    def answer(
        key: Array, memory: _Memory, state: PlacementState, node: Array, pending: PendingFates
    ) -> tuple[_Memory, Fate]:
        seen = observe(encoding.cluster, state, unit_s, in_full=True, for_answers=True)
        inputs = answer_inputs(encoding.cluster, seen, node, pending, unit_s)
        memory, kind = _met(config, parameters, memory, slot_of(state.request.agent), inputs)
        if noise is None:
            uniforms = jax.random.uniform(key, (NUM_UNIFORMS, *node.shape), minval=LEAST)
        else:
            uniforms = jax.lax.dynamic_index_in_dim(noise.uniforms, memory.step, 1)
        answers = answers_given(encoding, config, parameters, inputs, kind)
        drawn = sample_answer(answers, uniforms, unit_s, limits.beyond(pending))
        fate = as_fate(drawn, jnp.broadcast_to(state.clock_s[None], node.shape))
        return memory._replace(step=memory.step + 1), fate

    answers = Answers(init, answer, partial(pending_fates, encoding.cluster))
    # The game's gradients do not pass through what moves
    return with_moved_fates(encoding.cluster, answers) if noise is None else answers


def _met(
    config: ImitationConfig, parameters: AnswerNetworks, memory: _Memory, slot: Array, inputs: Array
) -> tuple[_Memory, Array]:
    """The kinds [seats, W] of the agents in slots [seats, W] now, and the memory with those met first."""
    if config.num_kinds == 1:
        return memory, jnp.zeros_like(slot)
    luck = uniform_hash(memory.seeds, slot, memory.step)
    fresh = drawn_kind(kind_log_weights(config, parameters, inputs), luck)
    here = one_hot(slot, NUM_SLOTS)  # [slots, seats, W]
    known = jnp.max(jnp.where(here, memory.kind[:, None], -1), axis=0)
    kind = jnp.where(known >= 0, known, fresh)
    written = jnp.max(jnp.where(here, kind[None], -1), axis=1)
    return memory._replace(kind=jnp.maximum(memory.kind, written)), kind
