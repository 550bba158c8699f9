"""The shared masked actor and the centralised critic.

One actor serves every seat: it gets that seat's observation and returns a distribution for every leaf of the action.
The critic gets the global observation and values the stream. Learners hand both the observation pytree as it is, so
that a network may be made for sets, graphs or sequences; the perceptrons of this file flatten it to one feature axis.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm
from offline_rl.distributions import SquashedNormal, greedy, sample
from offline_rl.errors import TrainingError
from offline_rl.losses import mask_logits
from twin.contracts import Array, Environment, Given, Interval, Policy, PyTree, Trajectory
from twin.legality import leaves_of, like_action, num_trailing
from twin.networks import MLP, flatten_features

ACTOR_HIDDEN = (256, 128, 32)
"""Widths of the actor's hidden layers (KMPS, section IV, training settings)."""
CRITIC_HIDDEN = (256, 128, 64, 32)
"""Widths of the critic's hidden layers (the same)."""
LOG_DEVIATION = (-3.0, 1.0)
"""Least and largest logarithm of a `SquashedNormal`'s deviation."""


class Example(NamedTuple):
    """Shapes of the observations of a policy and a critic in one stream at one step (leaves are
    `jax.ShapeDtypeStruct`)."""

    observation: PyTree  # leaves [..., seats]
    legal: PyTree  # leaves [..., seats], see `Problem.legal`
    global_observation: PyTree  # leaves [...]


class Actor(NamedTuple):
    """A masked policy network as pure functions."""

    init: Callable[[Array], PyTree]  # key -> params
    # (params, observation, legal) -> the distribution of the action (`offline_rl.distributions`): for a categorical
    # leaf masked logits [choices, seats, *streams]
    logits: Callable[[PyTree, PyTree, PyTree], PyTree]


class Critic(NamedTuple):
    """A value network as pure functions."""

    init: Callable[[Array], PyTree]  # key -> params
    # (params, observation, number of trailing axes) -> [*trailing]; trailing are streams, or seats and streams
    value: Callable[[PyTree, PyTree, int], Array]


def parts_of(observation: PyTree) -> tuple[Array, Array]:
    """An observation of choices as (features [F, choices, *batch] of each, [R, *batch] of the request)."""
    choices, request = jax.tree.leaves(observation)
    return choices.astype(jnp.float32), request.astype(jnp.float32)


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


def actor(example: Example, hidden: Sequence[int] = ACTOR_HIDDEN, *, joint: bool = False) -> Actor:
    """The actor for these shapes: an MLP with one output for each choice of each action leaf, two for a number, and so
    many for every choice of the leaf before where one depends on it.

    A legal choice's probability is its share of the sum of `exp(output)` over legal choices: the context filtering of
    KaiS and KMPS, which want outputs made positive (Han et al. 2021, equations 4 and 5; Huang et al., equation 2).

    With `joint` one agent decides for all seats: the network gets what all of them see, and has outputs for each.
    """
    num_seats = jax.tree.leaves(example.legal)[0].shape[-1] if joint else 1
    sizes = [num_seats * _num_outputs(entry) for entry in leaves_of(example.legal)]
    network = MLP(tuple(hidden), sum(sizes), output_scale=0.01)

    def features(observation: PyTree, num_trailing: int) -> Array:
        return _features(observation, num_trailing - 1 if joint else num_trailing)

    def init(key: Array) -> PyTree:
        return network.init(key, features(jax.tree.map(jnp.zeros_like, example.observation), 1))

    def logits(params: PyTree, observation: PyTree, legal: PyTree) -> PyTree:
        scores = jnp.asarray(network.apply(params, features(observation, num_trailing(legal))))
        parts, start = [], 0
        for entry, size in zip(leaves_of(legal), sizes, strict=True):
            parts.append(_distribution(scores[start : start + size], entry))
            start += size
        return like_action(legal, parts)

    return Actor(init, logits)


def critic(example: Example, hidden: Sequence[int] = CRITIC_HIDDEN) -> Critic:
    """The critic for these shapes: an MLP of the global observation with one output."""
    return _critic(example.global_observation, 0, hidden)


def seat_critic(example: Example, hidden: Sequence[int] = CRITIC_HIDDEN) -> Critic:
    """A critic of one seat's view: an MLP of its observation with one output."""
    return _critic(example.observation, 1, hidden)


def _critic(shapes: PyTree, num_trailing: int, hidden: Sequence[int]) -> Critic:
    network = MLP(tuple(hidden), 1)

    def init(key: Array) -> PyTree:
        return network.init(key, _features(jax.tree.map(jnp.zeros_like, shapes), num_trailing))

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


def actor_algorithm(
    init: Callable[[Array], PyTree],
    step: Callable[[Array, PyTree, Trajectory], tuple[PyTree, PyTree]],
    network: Actor,
    params_of: Callable[[PyTree], PyTree],
) -> Algorithm:
    """The learner of an actor: draws from its distribution to learn, and is deployed greedily.

    Args:
        init, step: As in `Algorithm`.
        network: The actor.
        params_of: State -> the actor's parameters.
    """
    return Algorithm(
        init,
        step,
        lambda state: sampling_policy(network, params_of(state)),
        lambda state: greedy_policy(network, params_of(state)),
    )


def near_best_policy(network: Actor, params: PyTree, margin: float = 0.3) -> Policy:
    """The policy that draws evenly among choices whose logits are at most `margin` below the best.

    A site that observes others only in summary cannot distinguish their nodes. The first of equals would get all
    requests; a draw among them spreads the load.

    Args:
        network: Its action leaves are choices that depend on no other.
        params: Of the network.
        margin: In nats.
    """

    def policy(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
        def even(logits: Array) -> Array:
            return mask_logits(
                jnp.zeros_like(logits), logits >= jnp.max(logits, axis=0, keepdims=True) - margin
            )

        return sample(key, jax.tree.map(even, network.logits(params, observation, legal)))

    return policy


def refuse_other_than_choices(example: Example, learner: str) -> None:
    """Makes sure that every action leaf is a choice that depends on no other.

    Raises:
        TrainingError: One is not; `learner` values choices and nothing else.
    """
    others = [
        type(entry).__name__ for entry in leaves_of(example.legal) if isinstance(entry, Interval | Given)
    ]
    if others:
        raise TrainingError(
            f"{learner} learns of choices, and the action has leaves of kind {', '.join(others)}",
            allowed="a mask [choices, seats] for every action leaf",
            advice="ppo, behaviour_cloning and advantage_weighted learn all kinds of leaves, td3_bc numbers",
        )


def _num_outputs(entry: PyTree) -> int:
    """Outputs of a network for an action leaf."""
    shapes = jax.tree.leaves(entry)
    num_seats = shapes[0].shape[-1]
    is_number = isinstance(entry.table if isinstance(entry, Given) else entry, Interval)
    return 2 * shapes[0].size // num_seats if is_number else shapes[0].size // num_seats


def _distribution(scores: Array, entry: PyTree) -> PyTree:
    """The distribution of an action leaf, from outputs [size, seats, *streams]."""
    if isinstance(entry, Given):
        return Given(_distribution(scores, entry.table))
    if isinstance(entry, Interval):
        mean, log_deviation = scores.reshape(2, *entry.low.shape)
        return SquashedNormal(mean, jnp.clip(log_deviation, *LOG_DEVIATION), entry)
    return mask_logits(scores.reshape(entry.shape), entry)


def _features(observation: PyTree, num_trailing: int) -> Array:
    return flatten_features(observation, num_trailing).astype(jnp.float32)
