"""One network for all deployments, trained by PPO in the twin: from nothing, or on from a network that imitates.

Each deployment learns from its own rewards (`offline_rl.independent`): by those of all of them PPO ends far behind.
What is played are the medians of the policy. They have the form of the teacher of TD3, and are handed over as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax.numpy as jnp

from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.autoscaling.teaching import HIDDEN, HORIZON_S
from offline_rl.independent import independent
from offline_rl.networks import example_of
from offline_rl.training_loop import in_twin, train
from twin.contracts import Array, Environment, PyTree
from twin.networks import with_layer


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
            horizon_s=HORIZON_S, entropy=0.0, kl_to_clone=0.03, num_epochs=4, learning_rate=1e-3,
            actor_hidden=HIDDEN, critic_hidden=HIDDEN,
        )
    )  # fmt: skip


def train_by_gradients(
    key: Array,
    environment: Environment,
    config: PolicyGradientConfig,
    start: PyTree = None,
) -> PyTree:
    """Parameters of a network, in the form of the teacher of TD3.

    Args:
        key: Of chance.
        environment: The twin.
        config: How to train.
        start: Parameters of such a network, to start from and to stay near.
    """
    clone = None if start is None else around(start, config.log_deviation)
    algorithm = independent(lambda one: ppo(one, config.ppo, clone), example_of(environment))
    experience = in_twin(environment, config.steps, (config.streams,))
    state, _ = train(key, algorithm, experience, config.updates)
    return medians(state.params.actor)


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
