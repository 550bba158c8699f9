"""Deterministic policies of numbers and their pairs of values: what TD3 and TD3+BC share.

All action leaves are numbers in an `Interval`. Policy and values see them as one array [dimensions, seats, *streams] of
places in [-1, 1], 0 where the ends of an interval meet. Source: Fujimoto et al. 2018.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.errors import TrainingError
from offline_rl.losses import weighted_mean
from offline_rl.networks import Example
from offline_rl.transitions import Transitions
from twin.contracts import Array, Interval, Policy, PyTree
from twin.legality import leaves_of, like_action, num_trailing
from twin.networks import MLP, apply, flatten_features


class ActorAndPair(NamedTuple):
    """Parameters of a policy and a pair of values, leaves [2, ...]."""

    actor: PyTree
    pair: PyTree


class DeterministicNetworks(NamedTuple):
    """The policy and the pair of values, and what they are called with."""

    actor: MLP
    critic: MLP
    num_features: int

    @staticmethod
    def of(example: Example, hidden: tuple[int, ...]) -> "DeterministicNetworks":
        """Networks for the shapes of an example."""
        num_dimensions = len(leaves_of(example.legal))
        size = sum(leaf.size // leaf.shape[-1] for leaf in jax.tree.leaves(example.observation))
        return DeterministicNetworks(MLP(hidden, num_dimensions), MLP(hidden, 1), size)

    def init(self, key: Array) -> ActorAndPair:
        """First parameters."""
        key_actor, key_pair = jax.random.split(key)
        zeros = jnp.zeros((self.num_features, 1))
        both = jnp.zeros((self.num_features + self.actor.outputs, 1))
        pair = jax.vmap(lambda key: self.critic.init(key, both))(jax.random.split(key_pair))
        return ActorAndPair(self.actor.init(key_actor, zeros), pair)

    def act(self, params: PyTree, observation: PyTree, legal: PyTree) -> Array:
        """[dimensions, seats, *streams] the places that the policy takes."""
        place = jnp.tanh(apply(self.actor, params, flatten_features(observation, num_trailing(legal))))
        return within(place, legal)

    def policy(self, params: PyTree) -> Policy:
        """The policy without noise; its key is not used."""

        def decide(_key: Array, observation: PyTree, legal: PyTree) -> PyTree:
            return numbers(self.act(params, observation, legal), legal)

        return decide

    def values(self, pair: PyTree, observation: PyTree, action: Array) -> Array:
        """[2, seats, *streams] both values of an action."""
        inputs = jnp.concatenate([flatten_features(observation, action.ndim - 1), action])
        return jax.vmap(lambda params: apply(self.critic, params, inputs)[0])(pair)


def value_loss(
    networks: DeterministicNetworks,
    pair: PyTree,
    target: ActorAndPair,
    batch: Transitions,
    key: Array,
    noise: float,
    noise_clip: float,
) -> tuple[Array, Array]:
    """Squared distance of both values from `r + discount * min Q'(s', pi'(s') + clipped noise)`, and the mean value."""
    next_action = networks.act(target.actor, batch.next_observation, batch.next_legal)
    smoothing = jnp.clip(noise * jax.random.normal(key, next_action.shape), -noise_clip, noise_clip)
    next_action = within(jnp.clip(next_action + smoothing, -1.0, 1.0), batch.next_legal)
    next_value = jnp.min(networks.values(target.pair, batch.next_observation, next_action), axis=0)
    td_target = jax.lax.stop_gradient(batch.reward + batch.discount * next_value)
    value = networks.values(pair, batch.observation, places(batch.action, batch.legal))
    loss = weighted_mean(jnp.sum((value - td_target[None]) ** 2, axis=0), batch.weight)
    return loss, weighted_mean(value[0], batch.weight)


def half_widths(legal: PyTree) -> Array:
    """[dimensions, seats, *streams] half the widths of the intervals."""
    return jnp.stack([(entry.high - entry.low) / 2.0 for entry in leaves_of(legal)])


def within(place: Array, legal: PyTree) -> Array:
    """[dimensions, seats, *streams] places, 0 where the ends of an interval meet."""
    return jnp.where(half_widths(legal) > 0.0, place, 0.0)


def places(action: PyTree, legal: PyTree) -> Array:
    """[dimensions, seats, *streams] where the numbers of an action lie between the ends, -1 and 1."""
    middle, half = (
        jnp.stack([(entry.high + entry.low) / 2.0 for entry in leaves_of(legal)]),
        half_widths(legal),
    )
    number = jnp.stack(jax.tree.leaves(action))
    return jnp.where(half > 0.0, (number - middle) / jnp.where(half > 0.0, half, 1.0), 0.0)


def numbers(place: Array, legal: PyTree) -> PyTree:
    """The action, leaves [seats, *streams], whose `places` these are."""
    number = [
        jnp.clip((entry.high + entry.low) / 2.0 + half * one, entry.low, entry.high)
        for entry, half, one in zip(leaves_of(legal), half_widths(legal), place, strict=True)
    ]
    return like_action(legal, number)


def refuse_choices(example: Example, learner: str) -> None:
    """TrainingError where an action leaf is no number, which `learner` cannot learn."""
    kinds = [entry for entry in leaves_of(example.legal) if not isinstance(entry, Interval)]
    if kinds:
        raise TrainingError(
            f"{learner} learns numbers, and {len(kinds)} action leaves are not",
            allowed="an Interval for every action leaf",
            advice="conservative_q and implicit_q learn choices, ppo both",
        )
