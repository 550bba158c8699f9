"""The shared masked actor and the centralised critic.

One actor serves every seat: it sees that seat's observation and scores the choices of every leaf of the action. The
critic sees the global observation and values the stream. Learners hand both the observation pytree as it is, so that a
network may be made for sets, graphs or sequences; the perceptrons of this file flatten it to one feature axis.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.losses import entropy, kl_divergence, log_prob, mask_logits
from twin.contracts import Array, Environment, Policy, PyTree, Trajectory
from twin.networks import MLP, flatten_features

ACTOR_HIDDEN = (256, 128, 32)
"""Widths of the actor's hidden layers (paper 003, section IV, training settings)."""
CRITIC_HIDDEN = (256, 128, 64, 32)
"""Widths of the critic's hidden layers (the same)."""


class Example(NamedTuple):
    """Shapes of what a policy and a critic see in one stream at one step (leaves are
    `jax.ShapeDtypeStruct`)."""

    observation: PyTree  # leaves [..., seats]
    legal: PyTree  # leaves [choices, seats]
    global_observation: PyTree  # leaves [...]


class Actor(NamedTuple):
    """A masked policy network as pure functions."""

    init: Callable[[Array], PyTree]  # key -> params
    logits: Callable[[PyTree, PyTree, PyTree], PyTree]
    # (params, observation, legal) -> masked logits, leaves as `legal`: [choices, seats, *streams]


class Critic(NamedTuple):
    """A value network as pure functions."""

    init: Callable[[Array], PyTree]  # key -> params
    value: Callable[[PyTree, PyTree, int], Array]
    # (params, observation, number of trailing axes) -> [*trailing]; trailing are streams, or seats and streams


def example_of(environment: Environment) -> Example:
    """The shapes of an environment, found without running it."""
    problem = environment.problem

    def look(key: Array) -> Example:
        state = environment.reset(key, ()).problem
        return Example(problem.observe(state), problem.legal(state), problem.observe_global(state))

    return jax.eval_shape(look, jax.random.key(0))


def example_in(trajectory: Trajectory) -> Example:
    """The shapes found in a trajectory of streams `(B,)`, for example one encoded from logs."""

    def one(leaf: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape[1:-1], leaf.dtype)

    seen = Example(trajectory.observation, trajectory.legal, trajectory.global_observation)
    return jax.tree.map(one, seen)


def actor(example: Example, hidden: Sequence[int] = ACTOR_HIDDEN) -> Actor:
    """The actor for these shapes: an MLP with one output for each choice of each action leaf."""
    masks, structure = jax.tree.flatten(example.legal)
    num_choices = [mask.shape[0] for mask in masks]
    network = MLP(tuple(hidden), sum(num_choices), output_scale=0.01)

    def init(key: Array) -> PyTree:
        return network.init(key, _features(_zeros(example.observation), 1))

    def logits(params: PyTree, observation: PyTree, legal: PyTree) -> PyTree:
        masks = jax.tree.leaves(legal)
        scores = jnp.asarray(network.apply(params, _features(observation, masks[0].ndim - 1)))
        parts, start = [], 0
        for mask, width in zip(masks, num_choices, strict=True):
            parts.append(mask_logits(scores[start : start + width], mask))
            start += width
        return jax.tree.unflatten(structure, parts)

    return Actor(init, logits)


def critic(example: Example, hidden: Sequence[int] = CRITIC_HIDDEN) -> Critic:
    """The critic for these shapes: an MLP of the global observation with one output."""
    return _critic(example.global_observation, 0, hidden)


def seat_critic(example: Example, hidden: Sequence[int] = CRITIC_HIDDEN) -> Critic:
    """A critic of what a seat sees: an MLP of its observation with one output."""
    return _critic(example.observation, 1, hidden)


def _critic(shapes: PyTree, num_trailing: int, hidden: Sequence[int]) -> Critic:
    network = MLP(tuple(hidden), 1)

    def init(key: Array) -> PyTree:
        return network.init(key, _features(_zeros(shapes), num_trailing))

    def value(params: PyTree, observation: PyTree, num_trailing: int) -> Array:
        return jnp.asarray(network.apply(params, _features(observation, num_trailing)))[0]

    return Critic(init, value)


def sampling_policy(network: Actor, params: PyTree) -> Policy:
    """The policy that draws from the actor's distribution."""

    def policy(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
        return sample(key, network.logits(params, observation, legal))

    return policy


def greedy_policy(network: Actor, params: PyTree) -> Policy:
    """The policy that takes the likeliest choice (the first of equals); its key is not used."""

    def policy(_key: Array, observation: PyTree, legal: PyTree) -> PyTree:
        return greedy(network.logits(params, observation, legal))

    return policy


def sample(key: Array, logits: PyTree) -> PyTree:
    """Draws every action leaf by the inverse of its distribution function, from one uniform number for each
    seat.

    Args:
        key: PRNG key.
        logits: Leaves [choices, seats, *streams], masked.

    Returns:
        Leaves [seats, *streams] int32; never a choice of zero probability.
    """
    leaves, structure = jax.tree.flatten(logits)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(
        structure, [_inverse(one, leaf) for one, leaf in zip(keys, leaves, strict=True)]
    )


def greedy(logits: PyTree) -> PyTree:
    """The likeliest choice of every action leaf: [choices, ...] -> [...] int32."""
    return jax.tree.map(lambda leaf: jnp.argmax(leaf, axis=0).astype(jnp.int32), logits)


def joint_log_prob(logits: PyTree, action: PyTree) -> Array:
    """Log-probability of a whole action, summed over its leaves: [seats, *streams]."""
    return _total(jax.tree.map(log_prob, logits, action))


def joint_entropy(logits: PyTree) -> Array:
    """Entropy of a whole action, summed over its leaves: [seats, *streams]."""
    return _total(jax.tree.map(entropy, logits))


def joint_kl(logits_p: PyTree, logits_q: PyTree) -> Array:
    """`KL(p || q)` of a whole action, summed over its leaves: [seats, *streams]."""
    return _total(jax.tree.map(kl_divergence, logits_p, logits_q))


def agreement(logits: PyTree, action: PyTree) -> Array:
    """Whether the likeliest action is the one taken, in all leaves: [seats, *streams] bool."""
    same = jax.tree.leaves(jax.tree.map(lambda best, taken: best == taken, greedy(logits), action))
    return jnp.all(jnp.stack(same), axis=0)


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _features(observation: PyTree, num_trailing: int) -> Array:
    return flatten_features(observation, num_trailing).astype(jnp.float32)


def _total(parts: PyTree) -> Array:
    leaves = jax.tree.leaves(parts)
    return leaves[0] if len(leaves) == 1 else jnp.sum(jnp.stack(leaves), axis=0)


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
