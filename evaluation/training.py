"""Trains the schedulers: a clone of the log, then policies in the twin that start from the clone and stay near it.

Everything a policy learns from is in the twin's folder, so training needs no archive. The clone stops where its
held-out windows like it best; a small log is learned by heart otherwise. Every seed of the twin-trained policy is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from evaluation.progress import Progress, Stage
from logs_schema.errors import ConfigError
from offline_rl.algorithm import time_as_stream
from offline_rl.algorithms import BehaviourCloningConfig, PPOConfig, behaviour_cloning, ppo
from offline_rl.losses import weighted_mean
from offline_rl.networks import Actor, Example, actor, example_in, joint_log_prob
from offline_rl.train import Experience, from_logs, updates
from twin.arrays import load_structure, save_arrays
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.networks import flatten_features
from twin.placement.encoding import Encoding
from twin.placement.history import replay_log
from twin.placement.learned import AnswerModel
from twin.placement.model import PlacementTwin, load_encoding
from twin.placement.windows import Windows, select
from twin.rollout import rollout


@dataclass(frozen=True)
class TrainingConfig:
    """How schedulers are trained.

    Attributes:
        seeds: One twin-trained policy for each.
        num_updates: PPO updates, each from a fresh rollout in the twin.
        num_streams: Parallel rollouts, a multiple of the ensemble's members and of PPO's minibatches.
        clone_updates: Gradient steps of the clone at most.
        clone_streams: Windows in each of them.
        held_out: Share of the windows that decide when the clone stops.
        kl_to_clone: Weight of `KL(policy || clone)`.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    num_updates: int = 25
    num_streams: int = 320
    clone_updates: int = 600
    clone_streams: int = 16
    held_out: float = 0.15
    kl_to_clone: float = 0.03

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ConfigError(f"seeds {list(self.seeds)}", allowed="one or more different seeds")
        if min(self.num_updates, self.num_streams, self.clone_updates, self.clone_streams) < 1:
            raise ConfigError("numbers of updates and streams must be positive", where="training")


class Schedulers(NamedTuple):
    """What training yields."""

    clone: PyTree  # parameters of the clone's actor
    trained: PyTree  # parameters of the twin-trained actors, leaves [seeds, ...]
    clone_curve: np.ndarray  # [looks, 2] mean cross-entropy of training and held-out windows, nats
    reward_curve: np.ndarray  # [seeds, updates] mean reward of a settled decision in the twin
    kl_curve: np.ndarray  # [seeds, updates] KL(policy || clone), nats


def example_for(encoding: Encoding, windows: Windows) -> Example:
    """The shapes a policy sees on this cluster, from a replay of one window."""
    return example_in(jax.eval_shape(lambda: replay_log(select(windows, np.arange(1)), encoding)))


def train_schedulers(
    key: Array, twin: PlacementTwin, config: TrainingConfig, progress: Progress
) -> Schedulers:
    """Trains the clone and one policy for each seed.

    Args:
        key: PRNG key; each seed's own key is folded in.
        twin: Where to train.
        config: How.
        progress: Where to show how far it is.

    Returns:
        Parameters and curves.
    """
    if config.num_streams % twin.config.num_members:
        raise ConfigError(
            f"{config.num_streams} streams cannot be dealt to the twin's {twin.config.num_members} members",
            where="[train] num_streams",
            allowed=f"multiples of {twin.config.num_members}",
        )
    key_clone, key_seeds = jax.random.split(key)
    history = replay_log(twin.disjoint_windows(), twin.encoding)
    example = example_in(history)
    with progress.stage("clone", total=config.clone_updates, unit="updates") as stage:
        clone, clone_curve = _fit_clone(key_clone, history, example, config, stage)
    settings = PPOConfig(horizon_s=2.0 * twin.encoding.problem.memory_s, kl_to_clone=config.kl_to_clone)
    algorithm = ppo(example, settings, clone=clone)
    experience = rollouts_in(twin, config.num_streams)
    trained, rewards, kls = [], [], []
    total = config.num_updates * len(config.seeds)
    with progress.stage("train in the twin", total=total, unit="updates") as stage:
        run = updates(algorithm, config.num_updates)
        for done, seed in enumerate(config.seeds):
            stage(done * config.num_updates, text=f"seed {seed}")
            key_init, key_updates = jax.random.split(jax.random.fold_in(key_seeds, seed))
            state, info = run(key_updates, algorithm.init(key_init), experience, 0)
            trained.append(jax.tree.map(np.asarray, state.params.actor))
            rewards.append(np.asarray(info.reward))
            kls.append(np.asarray(info.kl_to_clone))
            _check_finite(rewards[-1], seed)
        stage(total)
    return Schedulers(
        jax.tree.map(np.asarray, clone),
        jax.tree.map(lambda *leaves: np.stack(leaves), *trained),
        clone_curve,
        np.stack(rewards),
        np.stack(kls),
    )


def rollouts_in(twin: PlacementTwin, num_streams: int) -> Experience:
    """Experience from the twin: fresh windows in every stream, each stream with one member of the ensemble."""

    def act(windows: Windows, model: AnswerModel, key: Array, policy: Policy) -> Trajectory:
        system = PlacementTwin(twin.encoding, twin.config, model, windows, twin.report).environment()
        return rollout(key, system, policy, twin.windows.num_steps, (num_streams,))

    return Partial(act, jax.tree.map(jnp.asarray, twin.windows), jax.tree.map(jnp.asarray, twin.model))


def _fit_clone(
    key: Array, history: Trajectory, example: Example, config: TrainingConfig, stage: Stage
) -> tuple[PyTree, np.ndarray]:
    """The clone with the best held-out likelihood, and the curve of both likelihoods."""
    algorithm = behaviour_cloning(example, BehaviourCloningConfig())
    train, held_out = _split(history, config.held_out)
    num_streams = min(config.clone_streams, train.active.shape[-1])
    network = actor(example)
    look_every = max(1, min(25, config.clone_updates))
    run = updates(algorithm, look_every)
    experience = from_logs(train, num_streams)
    score = jax.jit(lambda params: _mean_cross_entropy(network, params, held_out))
    key_init, key_updates = jax.random.split(key)
    state, curve = algorithm.init(key_init), []
    best, best_loss, looks_since = state.actor, np.inf, 0
    for first in range(0, config.clone_updates, look_every):
        state, info = run(key_updates, state, experience, first)
        loss = float(score(state.actor))
        curve.append((float(np.mean(info.loss)), loss))
        stage(min(first + look_every, config.clone_updates), text=f"held-out loss {loss:.3f}")
        looks_since += 1
        if loss < best_loss:
            best, best_loss, looks_since = state.actor, loss, 0
        if looks_since >= 6:
            break
    return best, np.array(curve)


def _split(history: Trajectory, share: float) -> tuple[Trajectory, Trajectory]:
    """Training and held-out streams; the held-out ones are spread evenly over time."""
    num_streams = history.active.shape[-1]
    every = max(2, round(1.0 / share))
    if num_streams < 2:
        return history, history
    every = min(every, num_streams)
    is_held = np.arange(num_streams) % every == every - 1

    def part(chosen: np.ndarray) -> Trajectory:
        index = np.flatnonzero(chosen)
        return jax.tree.map(lambda leaf: jnp.take(leaf, index, axis=-1), history)

    return part(~is_held), part(is_held)


def _mean_cross_entropy(network: Actor, params: PyTree, trajectory: Trajectory) -> Array:
    observation, legal, action, active, illegal = time_as_stream(
        (trajectory.observation, trajectory.legal, trajectory.action, trajectory.active, trajectory.illegal)
    )
    log_prob = joint_log_prob(network.logits(params, observation, legal), action)
    return -weighted_mean(log_prob, (active & ~illegal).astype(jnp.float32))


def _check_finite(curve: np.ndarray, seed: int) -> None:
    if not np.isfinite(curve).all():
        raise ConfigError(
            f"training diverged with seed {seed}", where=f"update {int(np.argmin(np.isfinite(curve)))}",
            advice="use another seed, or look at the twin's fit",
        )  # fmt: skip


def save_schedulers(schedulers: Schedulers, twin: PlacementTwin, folder: Path) -> None:
    """Writes schedulers, observations and the encoding they belong to into an existing folder; no pickle."""
    save_arrays(folder / "schedulers.npz", schedulers)
    save_arrays(folder / "observed.npz", {"features": observed_features(twin)})
    low, high = feature_ranges(twin)
    save_arrays(folder / "ranges.npz", {"low": low, "high": high})
    (folder / "encoding.json").write_text(twin.encoding.to_json())


def observed_features(twin: PlacementTwin, num_wanted: int = 256) -> np.ndarray:
    """Observations of logged requests as a bundle reads them, [n <= num_wanted, features], spread over the windows."""
    spread = np.linspace(0, twin.windows.num_windows - 1, min(8, twin.windows.num_windows)).astype(int)
    history = replay_log(select(twin.windows, spread), twin.encoding)
    features = np.asarray(jax.vmap(lambda seen: flatten_features(seen, 2))(history.observation))
    rows = np.moveaxis(features, 1, -1)[np.asarray(history.active)]
    return rows[np.linspace(0, len(rows) - 1, min(num_wanted, len(rows))).astype(int)]


def feature_ranges(twin: PlacementTwin) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest value of every feature at the logged decisions, [features] each."""
    history = replay_log(twin.disjoint_windows(), twin.encoding)
    features = jax.vmap(lambda seen: flatten_features(seen, 2))(history.observation)  # [T, features, seats, W]
    active = history.active[:, None]
    low = jnp.min(jnp.where(active, features, jnp.inf), axis=(0, 2, 3))
    high = jnp.max(jnp.where(active, features, -jnp.inf), axis=(0, 2, 3))
    return np.asarray(low), np.asarray(high)


def load_ranges(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """The ranges that `save_schedulers` kept; None in policies of before there were any."""
    path = folder / "ranges.npz"
    if not path.exists():
        return None
    ranges = load_structure(path, {"low": 0, "high": 0})
    return ranges["low"], ranges["high"]


def load_observed(folder: Path) -> np.ndarray:
    """The observations that `save_schedulers` kept; ProductError where there are none."""
    return load_structure(folder / "observed.npz", {"features": 0})["features"]


def load_schedulers(folder: Path) -> tuple[Schedulers, Encoding]:
    """Reads what `save_schedulers` wrote.

    Raises:
        ProductError: A file is missing or of another kind.
    """
    encoding = load_encoding(folder)
    params = {"params": {f"Dense_{layer}": {"bias": 0, "kernel": 0} for layer in range(4)}}
    structure = Schedulers(params, params, 0, 0, 0)  # type: ignore[arg-type]
    return load_structure(folder / "schedulers.npz", structure), encoding


def best_seed(schedulers: Schedulers, seeds: Sequence[int]) -> int:
    """The seed whose policy earned most in the twin over the last fifth of training; ties to the first."""
    tail = max(1, schedulers.reward_curve.shape[1] // 5)
    return seeds[int(np.argmax(schedulers.reward_curve[:, -tail:].mean(axis=1)))]
