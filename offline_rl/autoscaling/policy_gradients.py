"""One network for all deployments, trained by PPO in the twin: from nothing, or on from a network that imitates.

Each deployment learns from its own rewards, valued by a critic that sees what it sees (independent learners that share
their parameters; de Witt et al. 2020): what the others earn is noise to it, and the more so the more of them there are.
What is played are the medians of the policy. They have the form of the teacher of TD3, and are handed over as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.networks import Example, example_of
from offline_rl.selecting import train_kept
from offline_rl.training_loop import Experience
from twin.contracts import Array, Environment, Policy, PyTree, Trajectory
from twin.networks import with_layer
from twin.rollout import rollout

UPDATES_PER_SAVE = 25


@dataclass(frozen=True)
class PolicyGradientConfig:
    """How the network is trained.

    Attributes:
        updates: Trajectories collected.
        streams: Copies of the twin side by side.
        steps: Intervals of a trajectory; the last one is only looked at.
        log_deviation: Of the actions of a network that is trained on, before they are squashed: its logarithm.
        ppo: How it learns from them.
    """

    updates: int = 150
    streams: int = 32
    steps: int = 41
    log_deviation: float = -1.5
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(
            horizon_s=300.0, entropy=0.0, kl_to_clone=0.03, num_epochs=4, learning_rate=1e-3,
            actor_hidden=(64, 64), critic_hidden=(64, 64),
        )
    )  # fmt: skip


def train_by_gradients(
    key: Array,
    environment: Environment,
    config: PolicyGradientConfig | None = None,
    start: PyTree = None,
    checkpoint: Path | None = None,
) -> PyTree:
    """Parameters of a network, in the form of the teacher of TD3.

    Args:
        key: Of chance.
        environment: The twin.
        config: How to train.
        start: Parameters of such a network, to start from and to stay near.
        checkpoint: As of `train_kept`.

    Raises:
        TrainingError: Training diverged.
        ProductError: The checkpoint cannot be read, or is of another key or configuration.
    """
    config = config or PolicyGradientConfig()
    clone = None if start is None else around(start, config.log_deviation)
    algorithm = ppo(_alone(example_of(environment)), config.ppo, clone)
    experience = _in_twin(environment, config.steps, config.streams)
    state, _ = train_kept(key, algorithm, experience, config.updates, checkpoint, UPDATES_PER_SAVE)
    return medians(state.params.actor)


def by_deployment(trajectory: Trajectory) -> Trajectory:
    """Every seat of every stream as a stream of one seat, leaves [T - 1, ..., 1, seats * B]; the critic sees what the
    seat sees, and of the last step no more than that is left."""
    num_seats = trajectory.active.shape[1]

    def own(leaf: Array) -> Array:
        return leaf[:-1].reshape(len(leaf) - 1, *leaf.shape[1:-2], 1, -1)

    def shared(leaf: Array) -> Array:
        beside = jnp.broadcast_to(leaf[:-1, None], (len(leaf) - 1, num_seats, leaf.shape[-1]))
        return beside.reshape(len(leaf) - 1, -1)

    observation, legal, action = jax.tree.map(
        own, (trajectory.observation, trajectory.legal, trajectory.action)
    )
    return Trajectory(
        observation=observation,
        global_observation=jax.tree.map(
            lambda leaf: leaf.reshape(*leaf.shape[:-2], -1), trajectory.observation
        ),
        legal=legal,
        active=own(trajectory.active),
        action=action,
        reward=own(trajectory.reward),
        settled=own(trajectory.settled),
        decision_info=(),
        outcome=(),
        elapsed_s=shared(trajectory.elapsed_s),
        terminated=shared(trajectory.terminated),
        done=shared(trajectory.done),
        illegal=own(trajectory.illegal),
    )


def around(deterministic: PyTree, log_deviation: float) -> PyTree:
    """Parameters of an actor of numbers whose medians are a network's of `offline_rl.deterministic` (`medians`)."""

    def beside(name: str, leaf: Array) -> Array:
        other = jnp.full_like(leaf, log_deviation if name == "bias" else 0.0)
        return jnp.stack([2.0 * leaf, other], axis=-1).reshape(*leaf.shape[:-1], -1)

    return _with_outputs(deterministic, beside)


def medians(actor: PyTree) -> PyTree:
    """Parameters of the network of `offline_rl.deterministic` that takes the medians of an actor of numbers.

    An actor has a mean and a deviation for each number, and its median is at `sigmoid(mean)` of the interval; the
    other's output is at `tanh(output)` of half the interval, from its middle: `2 sigmoid(x) - 1 = tanh(x / 2)`.
    """
    return _with_outputs(actor, lambda _, leaf: leaf[..., ::2] / 2.0)


def _with_outputs(params: PyTree, change: Callable[[str, Array], Array]) -> PyTree:
    """The parameters with another output layer."""
    layers = params["params"]
    last = max(layers, key=lambda name: int(name.rsplit("_", 1)[1]))
    return with_layer(params, last, {name: change(name, leaf) for name, leaf in layers[last].items()})


def _alone(example: Example) -> Example:
    """The shapes of an environment, as of `by_deployment`."""

    def of_one(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*leaf.shape[:-1], 1), leaf.dtype)

    observation, legal = jax.tree.map(of_one, (example.observation, example.legal))
    seen = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype), observation)
    return Example(observation, legal, seen)


def _in_twin(environment: Environment, num_steps: int, num_streams: int) -> Experience:
    def act(key: Array, policy: Policy) -> Trajectory:
        return by_deployment(rollout(key, environment, policy, num_steps, (num_streams,), over_devices=True))

    return Partial(act)
