"""TD3: continuous actions learned from one's own experience, kept in a replay buffer.

    Q_i    <- r + discount * min_i Q'_i(s', pi'(s') + clipped noise)
    policy <- maximise Q_1(s, pi(s)), once in `policy_every` updates of the values

Every step of the algorithm stores the transitions of a trajectory that the exploring policy made, then updates from
batches of what is stored. Source: Fujimoto et al. 2018; algorithm 3 of paper DRPC.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from offline_rl.algorithm import Algorithm
from offline_rl.deterministic import (
    ActorAndPair,
    DeterministicNetworks,
    numbers,
    refuse_choices,
    value_loss,
    within,
)
from offline_rl.errors import TrainingError
from offline_rl.losses import weighted_mean
from offline_rl.networks import Example
from offline_rl.replay import ReplayBuffer, empty_buffer, sample_batch, with_transitions
from offline_rl.transitions import Transitions, transitions
from offline_rl.values import polyak_update
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.descent import descend


@dataclass(frozen=True)
class TD3Config:
    """How policy and values are learned.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        capacity: Moments (all seats of a step in a stream) that are kept.
        batch: Moments of an update.
        updates: Updates after every trajectory.
        exploration: Deviation of the noise on actions while experience is collected, as a share of half their range.
        random_share: Share of actions that are drawn uniformly while experience is collected.
        policy_every: The policy and the target networks move in one update of so many.
        noise: Deviation of the noise on the next action, at most `noise_clip`.
        noise_clip: See `noise`.
        target_rate: How far the target networks follow in one step.
        learning_rate: Of Adam.
        hidden: Widths of the hidden layers.
    """

    horizon_s: float = 60.0
    capacity: int = 100_000
    batch: int = 256
    updates: int = 20
    exploration: float = 0.1
    random_share: float = 0.0
    policy_every: int = 2
    noise: float = 0.2
    noise_clip: float = 0.5
    target_rate: float = 0.005
    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = (256, 256)

    def __post_init__(self) -> None:
        if min(self.capacity, self.batch, self.updates, self.policy_every) < 1:
            raise TrainingError(
                "a capacity, batch, number of updates or policy_every below 1", allowed="1 or more"
            )


class TD3State(NamedTuple):
    """The learner's state between updates."""

    params: ActorAndPair
    target: ActorAndPair
    actor_optimizer: PyTree
    pair_optimizer: PyTree
    buffer: ReplayBuffer
    updates: Array  # [] int32


class TD3Info(NamedTuple):
    """Metrics of an update: means over the updates after one trajectory."""

    value_loss: Array
    value: Array
    reward: Array  # mean of the trajectory's settled rewards


def td3(example: Example, config: TD3Config | None = None) -> Algorithm:
    """Learns continuous actions in an environment.

    Args:
        example: Shapes of the policy's observation.
        config: How to learn.

    Returns:
        The algorithm, to be fed trajectories of its own exploring policy.

    Raises:
        TrainingError: An action leaf is no number.
    """
    refuse_choices(example, "td3")
    config = config or TD3Config()
    networks = DeterministicNetworks.of(example, config.hidden)
    optimizer = optax.adam(config.learning_rate)

    def init(key: Array) -> TD3State:
        params = networks.init(key)
        return TD3State(
            params,
            params,
            optimizer.init(params.actor),
            optimizer.init(params.pair),
            empty_buffer(example, config.capacity),
            jnp.int32(0),
        )

    def policy_loss(params: PyTree, pair: PyTree, batch: Transitions) -> Array:
        action = networks.act(params, batch.observation, batch.legal)
        return -weighted_mean(networks.values(pair, batch.observation, action)[0], batch.weight)

    def update(state: TD3State, key: Array) -> tuple[TD3State, tuple[Array, Array]]:
        key_batch, key_noise = jax.random.split(key)
        batch = sample_batch(state.buffer, key_batch, config.batch)
        (loss, value), gradient = jax.value_and_grad(
            lambda pair: value_loss(
                networks, pair, state.target, batch, key_noise, config.noise, config.noise_clip
            ),
            has_aux=True,
        )(state.params.pair)
        pair, pair_optimizer = descend(optimizer, gradient, state.pair_optimizer, state.params.pair)

        def move(_: None) -> tuple[ActorAndPair, ActorAndPair, PyTree]:
            gradient = jax.grad(policy_loss)(state.params.actor, pair, batch)
            actor, actor_optimizer = descend(optimizer, gradient, state.actor_optimizer, state.params.actor)
            moved = ActorAndPair(actor, pair)
            return moved, polyak_update(state.target, moved, config.target_rate), actor_optimizer

        def stay(_: None) -> tuple[ActorAndPair, ActorAndPair, PyTree]:
            return state.params._replace(pair=pair), state.target, state.actor_optimizer

        is_due = (state.updates + 1) % config.policy_every == 0
        params, target, actor_optimizer = jax.lax.cond(is_due, move, stay, None)
        following = state._replace(
            params=params,
            target=target,
            actor_optimizer=actor_optimizer,
            pair_optimizer=pair_optimizer,
            updates=state.updates + 1,
        )
        return following, (loss, value)

    def step(key: Array, state: TD3State, trajectory: Trajectory) -> tuple[TD3State, TD3Info]:
        buffer = with_transitions(state.buffer, transitions(trajectory, config.horizon_s))
        keys = jax.random.split(key, config.updates)
        state, (loss, value) = jax.lax.scan(update, state._replace(buffer=buffer), keys)
        reward = weighted_mean(trajectory.reward, trajectory.settled.astype(jnp.float32))
        return state, TD3Info(jnp.mean(loss), jnp.mean(value), reward)

    def exploring(state: TD3State) -> Policy:
        def decide(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
            return numbers(
                _explored(key, networks.act(state.params.actor, observation, legal), legal, config), legal
            )

        return decide

    return Algorithm(init, step, exploring, lambda state: networks.policy(state.params.actor))


def _explored(key: Array, place: Array, legal: PyTree, config: TD3Config) -> Array:
    """Places in the intervals, from -1 to 1, with noise, or now and then any others."""
    key_noise, key_random, key_share = jax.random.split(key, 3)
    place = jnp.clip(place + config.exploration * jax.random.normal(key_noise, place.shape), -1.0, 1.0)
    anywhere = jax.random.uniform(key_random, place.shape, minval=-1.0)
    is_random = jax.random.uniform(key_share, place.shape[1:]) < config.random_share
    place = jnp.where(is_random[None], anywhere, place)
    return within(place, legal)
