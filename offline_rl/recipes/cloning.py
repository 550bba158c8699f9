"""The clone of the log: behaviour cloning, stopped at the lowest loss on held-out windows."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Stage
from offline_rl.algorithm import choices_of, time_as_stream
from offline_rl.algorithms import BehaviourCloningConfig, behaviour_cloning
from offline_rl.distributions import joint_log_prob
from offline_rl.losses import weighted_mean
from offline_rl.networks import Actor, Example
from offline_rl.training_loop import from_logs, updates
from twin.contracts import Array, PyTree, Trajectory
from twin.fitting_loop import Checkpoint, fit_keeping_best
from twin.placement.history import fewer_of
from twin.placement.windows import take

PATIENCE = 6
"""Evaluations without a lower held-out loss after which cloning stops."""


def fit_clone(
    key: Array,
    history: Trajectory,
    example: Example,
    network: Actor,
    num_updates: int,
    num_streams: int,
    held_out_share: float,
    stage: Stage,
    checkpoint: Path | None = None,
) -> tuple[PyTree, np.ndarray]:
    """The clone with the best held-out likelihood.

    Args:
        key: PRNG key.
        history: The log as a trajectory of disjoint windows.
        example, network: Shapes and actor.
        num_updates: Gradient steps at most.
        num_streams: Windows in each of them; of very many choices fewer, see `affordable`.
        held_out_share: Share of the windows that decide when to stop.
        stage: Called with the progress.
        checkpoint: File (.npz) kept after every evaluation; a second call with the same arguments goes on from it.

    Returns:
        The actor's parameters, and the curve [evaluations, 2] of mean cross-entropy of training and held-out windows,
        nats.
    """
    algorithm = behaviour_cloning(example, BehaviourCloningConfig(), network)
    history = history._replace(global_observation=None)  # no clone sees it, and it is half of the memory
    train, held_out = split_windows(history, held_out_share)
    num_streams = min(affordable(num_streams, example), train.active.shape[-1])
    num_evaluations, look_every = evaluations_of(num_updates)
    run = updates(algorithm, look_every)
    experience = from_logs(train, num_streams)
    score = jax.jit(partial(_mean_cross_entropy, network))  # windows are its data, not its constants
    key_init, key_updates = jax.random.split(key)

    def advance(state: PyTree, first: int, _: int) -> tuple[PyTree, np.ndarray, float]:
        state, info = run(key_updates, state, experience, first)
        return state, np.array([float(np.mean(info.loss))]), float(score(state.actor, held_out))

    fit = fit_keeping_best(
        jax.jit(algorithm.init)(key_init),
        advance,
        num_evaluations * look_every,
        look_every,
        curves=np.zeros(0),
        kept=lambda state: state.actor,
        patience=PATIENCE,
        checkpoint=Checkpoint(checkpoint, key),
        on_evaluation=lambda fit: stage(int(fit.done), text=f"held-out loss {fit.losses[-1]:.3f}"),
    )
    return fit.best, np.stack([fit.curves, fit.losses], axis=1)


def affordable(num_streams: int, example: Example) -> int:
    """So many windows of a gradient step, or fewer (two at least) of very many choices."""
    num_choices = jax.tree.leaves(example.legal)[0].shape[0]
    return min(num_streams, max(2, fewer_of(num_streams, num_choices)))


def evaluations_of(num_updates: int) -> tuple[int, int]:
    """How often a clone that has at most so many gradient steps is looked at, and after how many steps each: 25, or
    fewer where none are to be left over."""
    num_evaluations = -(-num_updates // 25)
    return num_evaluations, num_updates // num_evaluations


def split_windows(history: Trajectory, share: float) -> tuple[Trajectory, Trajectory]:
    """Training and held-out streams, spread evenly over time; of a single one the same, twice."""
    num_streams = history.active.shape[-1]
    every = max(2, round(1.0 / share))
    if num_streams < 2:
        return history, history
    every = min(every, num_streams)
    is_held = np.arange(num_streams) % every == every - 1

    def part(chosen: np.ndarray) -> Trajectory:
        return jax.jit(take)(history, np.flatnonzero(chosen))

    return part(~is_held), part(is_held)


def _mean_cross_entropy(network: Actor, params: PyTree, trajectory: Trajectory) -> Array:
    observation, legal, action = choices_of(trajectory)
    active, illegal = time_as_stream((trajectory.active, trajectory.illegal))
    log_prob = joint_log_prob(network.logits(params, observation, legal), action)
    return -weighted_mean(log_prob, (active & ~illegal).astype(jnp.float32))
