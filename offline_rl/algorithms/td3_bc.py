"""TD3+BC: offline learning of continuous actions, a deterministic policy held near the logged actions.

    policy <- maximise q_weight * Q(s, pi(s)) / mean |Q| - |pi(s) - a|^2
    Q_i    <- r + discount * min_i Q'_i(s', pi'(s') + clipped noise)

All action leaves are numbers in an `Interval`. Policy and values see them as one array [dimensions, seats, *streams] of
places in [-1, 1], 0 where the ends of an interval meet. Source: Fujimoto and Gu 2021, equation 3; Fujimoto et al. 2018
for the critic.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from offline_rl.algorithm import Algorithm
from offline_rl.descent import descend
from offline_rl.errors import TrainingError
from offline_rl.losses import weighted_mean
from offline_rl.networks import Example
from offline_rl.transitions import Transitions, transitions
from offline_rl.values import drift_towards
from twin.contracts import Array, Interval, Policy, PyTree, Trajectory
from twin.legality import leaves_of, like_action, num_trailing
from twin.networks import MLP, apply, flatten_features


@dataclass(frozen=True)
class TD3BCConfig:
    """How policy and values are learned.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        q_weight: alpha of the paper: weight of the value against the clone.
        policy_every: The policy and the target networks move in one update of so many.
        noise: Deviation of the noise on the next action, at most `noise_clip`.
        noise_clip: See `noise`.
        target_rate: How far the target networks follow in one step.
        learning_rate: Of Adam.
        hidden: Widths of the hidden layers.
    """

    horizon_s: float = 60.0
    q_weight: float = 2.5
    policy_every: int = 2
    noise: float = 0.2
    noise_clip: float = 0.5
    target_rate: float = 0.005
    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = (256, 256)


class TD3BCParams(NamedTuple):
    """Policy and a pair of values, leaves [2, ...]."""

    actor: PyTree
    pair: PyTree


class TD3BCState(NamedTuple):
    """What the next update needs."""

    params: TD3BCParams
    target: TD3BCParams
    actor_optimizer: PyTree
    pair_optimizer: PyTree
    updates: Array  # [] int32


class TD3BCInfo(NamedTuple):
    """What a person looks at; means over the transitions that count."""

    value_loss: Array
    clone_loss: Array
    value: Array


class _Networks(NamedTuple):
    """The policy and the pair of values, and what they are called with."""

    actor: MLP
    critic: MLP
    num_features: int

    @staticmethod
    def of(example: Example, config: TD3BCConfig) -> "_Networks":
        """Networks for the shapes of an example."""
        num_dimensions = len(leaves_of(example.legal))
        size = sum(leaf.size // leaf.shape[-1] for leaf in jax.tree.leaves(example.observation))
        return _Networks(MLP(config.hidden, num_dimensions), MLP(config.hidden, 1), size)

    def init(self, key: Array) -> TD3BCParams:
        """First parameters."""
        key_actor, key_pair = jax.random.split(key)
        zeros = jnp.zeros((self.num_features, 1))
        both = jnp.zeros((self.num_features + self.actor.outputs, 1))
        pair = jax.vmap(lambda key: self.critic.init(key, both))(jax.random.split(key_pair))
        return TD3BCParams(self.actor.init(key_actor, zeros), pair)

    def act(self, params: PyTree, observation: PyTree, legal: PyTree) -> Array:
        """[dimensions, seats, *streams] the places that the policy takes."""
        place = jnp.tanh(apply(self.actor, params, flatten_features(observation, num_trailing(legal))))
        return jnp.where(_half_widths(legal) > 0.0, place, 0.0)

    def values(self, pair: PyTree, observation: PyTree, action: Array) -> Array:
        """[2, seats, *streams] both values of an action."""
        inputs = jnp.concatenate([flatten_features(observation, action.ndim - 1), action])
        return jax.vmap(lambda params: apply(self.critic, params, inputs)[0])(pair)


def td3_bc(example: Example, config: TD3BCConfig | None = None) -> Algorithm:
    """Learns continuous actions from logs.

    Args:
        example: Shapes of what the policy sees.
        config: How to learn.

    Returns:
        The algorithm, to be fed trajectories of logs.

    Raises:
        TrainingError: An action leaf is no number.
    """
    _refuse_choices(example)
    config = config or TD3BCConfig()
    networks = _Networks.of(example, config)
    optimizer = optax.adam(config.learning_rate)
    act, values = networks.act, networks.values

    def init(key: Array) -> TD3BCState:
        params = networks.init(key)
        return TD3BCState(
            params, params, optimizer.init(params.actor), optimizer.init(params.pair), jnp.int32(0)
        )

    def value_loss(pair: PyTree, target: TD3BCParams, seen: Transitions, key: Array) -> tuple[Array, Array]:
        following = act(target.actor, seen.next_observation, seen.next_legal)
        noise = config.noise * jax.random.normal(key, following.shape)
        noise = jnp.clip(noise, -config.noise_clip, config.noise_clip)
        following = jnp.clip(following + noise, -1.0, 1.0)
        later = jnp.min(values(target.pair, seen.next_observation, following), axis=0)
        aim = jax.lax.stop_gradient(seen.reward + seen.discount * later)
        found = values(pair, seen.observation, _places(seen.action, seen.legal))
        loss = weighted_mean(jnp.sum((found - aim[None]) ** 2, axis=0), seen.weight)
        return loss, weighted_mean(found[0], seen.weight)

    def distance(action: Array, seen: Transitions) -> Array:
        logged = _places(seen.action, seen.legal)
        return weighted_mean(jnp.mean((action - logged) ** 2, axis=0), seen.weight)

    def policy_loss(params: PyTree, pair: PyTree, seen: Transitions) -> tuple[Array, Array]:
        action = act(params, seen.observation, seen.legal)
        value = values(pair, seen.observation, action)[0]
        scale = config.q_weight / (weighted_mean(jnp.abs(jax.lax.stop_gradient(value)), seen.weight) + 1e-6)
        away = distance(action, seen)
        return away - scale * weighted_mean(value, seen.weight), away

    def step(key: Array, state: TD3BCState, trajectory: Trajectory) -> tuple[TD3BCState, TD3BCInfo]:
        seen = transitions(trajectory, config.horizon_s)
        (loss, value), gradient = jax.value_and_grad(value_loss, has_aux=True)(
            state.params.pair, state.target, seen, key
        )
        pair, pair_memory = descend(optimizer, gradient, state.pair_optimizer, state.params.pair)

        def move(_: None) -> tuple[TD3BCParams, TD3BCParams, PyTree, Array]:
            (_, away), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
                state.params.actor, pair, seen
            )
            actor_params, memory = descend(optimizer, gradient, state.actor_optimizer, state.params.actor)
            moved = TD3BCParams(actor_params, pair)
            return moved, drift_towards(state.target, moved, config.target_rate), memory, away

        def stay(_: None) -> tuple[TD3BCParams, TD3BCParams, PyTree, Array]:
            away = distance(act(state.params.actor, seen.observation, seen.legal), seen)
            return state.params._replace(pair=pair), state.target, state.actor_optimizer, away

        is_due = (state.updates + 1) % config.policy_every == 0
        params, target, actor_memory, away = jax.lax.cond(is_due, move, stay, None)
        return (
            TD3BCState(params, target, actor_memory, pair_memory, state.updates + 1),
            TD3BCInfo(loss, away, value),
        )

    def policy(state: TD3BCState) -> Policy:
        def decide(_key: Array, observation: PyTree, legal: PyTree) -> PyTree:
            return _numbers(act(state.params.actor, observation, legal), legal)

        return decide

    return Algorithm(init, step, policy, policy)


def _half_widths(legal: PyTree) -> Array:
    """[dimensions, seats, *streams] half the widths of the intervals."""
    return jnp.stack([(entry.high - entry.low) / 2.0 for entry in leaves_of(legal)])


def _places(action: PyTree, legal: PyTree) -> Array:
    """[dimensions, seats, *streams] where the numbers of an action lie between the ends, -1 and 1."""
    middle, half = (
        jnp.stack([(entry.high + entry.low) / 2.0 for entry in leaves_of(legal)]),
        _half_widths(legal),
    )
    number = jnp.stack(jax.tree.leaves(action))
    return jnp.where(half > 0.0, (number - middle) / jnp.where(half > 0.0, half, 1.0), 0.0)


def _numbers(place: Array, legal: PyTree) -> PyTree:
    """The action, leaves [seats, *streams], whose `_places` these are."""
    number = [
        jnp.clip((entry.high + entry.low) / 2.0 + half * one, entry.low, entry.high)
        for entry, half, one in zip(leaves_of(legal), _half_widths(legal), place, strict=True)
    ]
    return like_action(legal, number)


def _refuse_choices(example: Example) -> None:
    kinds = [entry for entry in leaves_of(example.legal) if not isinstance(entry, Interval)]
    if kinds:
        raise TrainingError(
            f"td3_bc learns numbers, and {len(kinds)} action leaves are not",
            allowed="an Interval for every action leaf",
            advice="conservative_q and implicit_q learn choices, ppo both",
        )
