"""TD3+BC: offline learning of continuous actions, a deterministic policy held near the logged actions.

    policy <- maximise q_weight * Q(s, pi(s)) / mean |Q| - |pi(s) - a|^2
    Q_i    <- r + discount * min_i Q'_i(s', pi'(s') + clipped noise)

Policy and values are those of `offline_rl.deterministic`. Source: Fujimoto and Gu 2021, equation 3; Fujimoto et al.
2018 for the critic.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from offline_rl.algorithm import Algorithm
from offline_rl.deterministic import ActorAndPair, DeterministicNetworks, places, refuse_choices, value_loss
from offline_rl.losses import weighted_mean
from offline_rl.networks import Example
from offline_rl.transitions import Transitions, transitions
from offline_rl.values import polyak_update
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.descent import descend


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


class TD3BCState(NamedTuple):
    """The learner's state between updates."""

    params: ActorAndPair
    target: ActorAndPair
    actor_optimizer: PyTree
    pair_optimizer: PyTree
    updates: Array  # [] int32


class TD3BCInfo(NamedTuple):
    """Metrics of an update: means over the transitions that count."""

    value_loss: Array
    clone_loss: Array
    value: Array


def td3_bc(example: Example, config: TD3BCConfig | None = None) -> Algorithm:
    """Learns continuous actions from logs.

    Args:
        example: Shapes of the policy's observation.
        config: How to learn.

    Returns:
        The algorithm, to be fed trajectories of logs.

    Raises:
        TrainingError: An action leaf is no number.
    """
    refuse_choices(example, "td3_bc")
    config = config or TD3BCConfig()
    networks = DeterministicNetworks.of(example, config.hidden)
    optimizer = optax.adam(config.learning_rate)
    act, values = networks.act, networks.values

    def init(key: Array) -> TD3BCState:
        params = networks.init(key)
        return TD3BCState(
            params, params, optimizer.init(params.actor), optimizer.init(params.pair), jnp.int32(0)
        )

    def distance(action: Array, batch: Transitions) -> Array:
        logged = places(batch.action, batch.legal)
        return weighted_mean(jnp.mean((action - logged) ** 2, axis=0), batch.weight)

    def policy_loss(params: PyTree, pair: PyTree, batch: Transitions) -> tuple[Array, Array]:
        action = act(params, batch.observation, batch.legal)
        value = values(pair, batch.observation, action)[0]
        scale = config.q_weight / (weighted_mean(jnp.abs(jax.lax.stop_gradient(value)), batch.weight) + 1e-6)
        clone_loss = distance(action, batch)
        return clone_loss - scale * weighted_mean(value, batch.weight), clone_loss

    def step(key: Array, state: TD3BCState, trajectory: Trajectory) -> tuple[TD3BCState, TD3BCInfo]:
        batch = transitions(trajectory, config.horizon_s)
        (loss, value), gradient = jax.value_and_grad(
            lambda pair: value_loss(
                networks, pair, state.target, batch, key, config.noise, config.noise_clip
            ),
            has_aux=True,
        )(state.params.pair)
        pair, pair_optimizer = descend(optimizer, gradient, state.pair_optimizer, state.params.pair)

        def move(_: None) -> tuple[ActorAndPair, ActorAndPair, PyTree, Array]:
            (_, clone_loss), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
                state.params.actor, pair, batch
            )
            actor_params, actor_optimizer = descend(
                optimizer, gradient, state.actor_optimizer, state.params.actor
            )
            moved = ActorAndPair(actor_params, pair)
            return moved, polyak_update(state.target, moved, config.target_rate), actor_optimizer, clone_loss

        def stay(_: None) -> tuple[ActorAndPair, ActorAndPair, PyTree, Array]:
            clone_loss = distance(act(state.params.actor, batch.observation, batch.legal), batch)
            return state.params._replace(pair=pair), state.target, state.actor_optimizer, clone_loss

        is_due = (state.updates + 1) % config.policy_every == 0
        params, target, actor_optimizer, clone_loss = jax.lax.cond(is_due, move, stay, None)
        return (
            TD3BCState(params, target, actor_optimizer, pair_optimizer, state.updates + 1),
            TD3BCInfo(loss, clone_loss, value),
        )

    def policy(state: TD3BCState) -> Policy:
        return networks.policy(state.params.actor)

    return Algorithm(init, step, policy, policy)
