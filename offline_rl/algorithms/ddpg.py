"""DDPG: one agent's deterministic policy climbs the gradient of one action value, from a replay buffer.

    Q      <- u + discount * Q'(s', mu'(s'))
    policy <- maximise Q(s, mu(s))

What TD3 adds is not there: one value, no noise on the next action, policy and targets move in every update. The agent
decides for all seats at once: policy and value see what all seats see, the value has a part for every seat, and the sum
of the parts is maximised. A choice is a unit vector, of the best score, and zero of a seat that has none; its gradient
is that of the softmax of the scores, so that Q is read only where it was learned. Sources: Lillicrap et al. 2016; Lowe
et al. 2017, for choices; compared with in Huang et al., figures 8 to 11.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm
from offline_rl.distributions import sample
from offline_rl.errors import TrainingError
from offline_rl.losses import is_choice, mask_logits, weighted_mean
from offline_rl.networks import (
    ACTOR_HIDDEN,
    CRITIC_HIDDEN,
    Actor,
    Example,
    actor,
    greedy_policy,
    refuse_other_than_choices,
)
from offline_rl.replay import ReplayBuffer, empty_buffer, sample_batch, subsample, with_transitions
from offline_rl.transitions import Transitions, transitions
from offline_rl.values import polyak_update
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.descent import clipped_adam, descend
from twin.networks import MLP, apply, flatten_features

TRAJECTORIES_KEPT = 4
"""Trajectories that a full buffer holds moments of, at least: of a longer one only some are kept, from all of it."""


@dataclass(frozen=True)
class DDPGConfig:
    """How policy and value are learned.

    Attributes:
        horizon_s: Seconds after which a reward counts 1/e.
        capacity: Moments (all seats of a step in a stream) that are kept.
        batch: Moments of an update.
        updates: Updates after every trajectory.
        exploration: Share of choices that are drawn from all legal ones while experience is collected.
        target_rate: How far the target networks follow in one step.
        learning_rate: Of Adam, for policy and value.
        max_gradient_norm: Gradients are scaled down to this global norm.
        actor_hidden, critic_hidden: Widths of the hidden layers.
    """

    horizon_s: float = 25.0
    capacity: int = 4096
    batch: int = 128
    updates: int = 20
    exploration: float = 0.1
    target_rate: float = 0.01
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    actor_hidden: tuple[int, ...] = ACTOR_HIDDEN
    critic_hidden: tuple[int, ...] = CRITIC_HIDDEN

    def __post_init__(self) -> None:
        if min(self.capacity, self.batch, self.updates) < 1:
            raise TrainingError("a capacity, batch or number of updates below 1", allowed="1 or more")


class DDPGParams(NamedTuple):
    """The trained parameters."""

    actor: PyTree
    critic: PyTree


class DDPGState(NamedTuple):
    """The learner's state between updates."""

    params: DDPGParams
    target: DDPGParams
    optimizer: DDPGParams  # the optimizers' states
    buffer: ReplayBuffer


class DDPGInfo(NamedTuple):
    """Metrics of an update: means over the updates after one trajectory."""

    value_loss: Array
    value: Array  # of what was taken
    reward: Array  # mean of the trajectory's settled rewards


def ddpg(example: Example, config: DDPGConfig | None = None, network: Actor | None = None) -> Algorithm:
    """Learns choices from its own experience in an environment.

    Args:
        example: Shapes of the policy's observation.
        config: How to learn.
        network: The policy's scores; an MLP of what all seats see, of the configured widths, if not given.

    Returns:
        The algorithm, to be fed trajectories of its own exploring policy.

    Raises:
        TrainingError: An action leaf is no choice.
    """
    refuse_other_than_choices(example, "ddpg")
    config = config or DDPGConfig()
    network = network or actor(example, config.actor_hidden, joint=True)
    critic = MLP(config.critic_hidden, jax.tree.leaves(example.legal)[0].shape[-1])
    optimizer = clipped_adam(config.learning_rate, config.max_gradient_norm)
    max_kept = max(config.capacity // TRAJECTORIES_KEPT, 1)

    def init(key: Array) -> DDPGState:
        key_actor, key_critic = jax.random.split(key)
        size = sum(leaf.size for leaf in jax.tree.leaves((example.observation, example.legal)))
        params = DDPGParams(network.init(key_actor), critic.init(key_critic, jnp.zeros((size, 1))))
        optimizers = DDPGParams(*map(optimizer.init, params))
        return DDPGState(params, params, optimizers, empty_buffer(example, config.capacity))

    def decided(params: PyTree, observation: PyTree, legal: PyTree) -> PyTree:
        return jax.tree.map(_best, network.logits(params, observation, legal), legal)

    def value(params: PyTree, observation: PyTree, action: PyTree) -> Array:
        """[seats, *streams] of actions as unit vectors."""
        inputs = flatten_features((observation, action), 2)
        return apply(critic, params, inputs.astype(jnp.float32))

    def value_loss(params: PyTree, target: DDPGParams, batch: Transitions) -> tuple[Array, Array]:
        next_action = decided(target.actor, batch.next_observation, batch.next_legal)
        next_value = value(target.critic, batch.next_observation, next_action)
        td_target = jax.lax.stop_gradient(batch.reward + batch.discount * next_value)
        taken = jax.tree.map(_unit, batch.action, batch.legal)
        found = value(params, batch.observation, taken)
        return weighted_mean((found - td_target) ** 2, batch.weight), weighted_mean(found, batch.weight)

    def policy_loss(params: PyTree, critic_params: PyTree, batch: Transitions) -> Array:
        action = decided(params, batch.observation, batch.legal)
        return -weighted_mean(value(critic_params, batch.observation, action), batch.weight)

    def update(state: DDPGState, key: Array) -> tuple[DDPGState, tuple[Array, Array]]:
        batch = sample_batch(state.buffer, key, config.batch)
        found, gradient = jax.value_and_grad(value_loss, has_aux=True)(
            state.params.critic, state.target, batch
        )
        critic_params, critic_state = descend(
            optimizer, gradient, state.optimizer.critic, state.params.critic
        )
        gradient = jax.grad(policy_loss)(state.params.actor, critic_params, batch)
        actor_params, actor_state = descend(optimizer, gradient, state.optimizer.actor, state.params.actor)
        params = DDPGParams(actor_params, critic_params)
        target = polyak_update(state.target, params, config.target_rate)
        return DDPGState(params, target, DDPGParams(actor_state, critic_state), state.buffer), found

    def step(key: Array, state: DDPGState, trajectory: Trajectory) -> tuple[DDPGState, DDPGInfo]:
        key_kept, key_updates = jax.random.split(key)
        found = transitions(trajectory, config.horizon_s, between=True)
        buffer = with_transitions(state.buffer, subsample(found, key_kept, max_kept))
        keys = jax.random.split(key_updates, config.updates)
        state, (loss, value) = jax.lax.scan(update, state._replace(buffer=buffer), keys)
        reward = weighted_mean(trajectory.reward, trajectory.settled.astype(jnp.float32))
        return state, DDPGInfo(jnp.mean(loss), jnp.mean(value), reward)

    return Algorithm(
        init,
        step,
        lambda state: _exploring(network, state.params.actor, config.exploration),
        lambda state: greedy_policy(network, state.params.actor),
    )


def _exploring(network: Actor, params: PyTree, share: float) -> Policy:
    """The policy, or with a probability any legal choice."""
    usual = greedy_policy(network, params)

    def decide(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
        key_any, key_which = jax.random.split(key)
        even = jax.tree.map(lambda mask: mask_logits(jnp.zeros(mask.shape), mask), legal)
        anything, action = sample(key_any, even), usual(key, observation, legal)
        explores = jax.random.uniform(key_which, jax.tree.leaves(action)[0].shape) < share
        return jax.tree.map(lambda other, own: jnp.where(explores, other, own), anything, action)

    return decide


def _unit(chosen: Array, legal: Array) -> Array:
    """[choices, seats, *streams] choices [seats, *streams] as unit vectors, 0 where nothing is legal."""
    is_chosen = is_choice(chosen, len(legal)) & jnp.any(legal, axis=0)[None]
    return is_chosen.astype(jnp.float32)


def _best(logits: Array, legal: Array) -> Array:
    """The unit vector of the best logit, with the gradient of the softmax; 0 where nothing is legal."""
    soft = jnp.where(jnp.any(legal, axis=0)[None], jax.nn.softmax(logits, axis=0), 0.0)
    return _unit(jnp.argmax(logits, axis=0), legal) + soft - jax.lax.stop_gradient(soft)
