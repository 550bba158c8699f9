"""Training with evaluations in between (`twin.fitting_loop`): the best state is kept.

What an evaluation measures must not be what is trained on: a member of the twin's ensemble held out, or days held out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from offline_rl.algorithm import Algorithm
from offline_rl.errors import TrainingError
from offline_rl.training_loop import (
    Experience,
    as_argument,
    first_updates,
    no_curves,
    refuse_divergence,
    train,
    updates,
)
from twin.contracts import Array, PyTree
from twin.fitting_loop import Checkpoint, fit_keeping_best


class Selected(NamedTuple):
    """The result of a run."""

    best: PyTree  # the state with the highest evaluation; the first of equals
    info: PyTree  # leaves [U], of every update
    evaluations: np.ndarray  # [L]: before the first update, then after every `updates_per_look`


def train_selecting(
    key: Array,
    algorithm: Algorithm,
    experience: Experience,
    num_updates: int,
    evaluate: Callable[[PyTree], float],
    *,
    updates_per_look: int = 5,
    checkpoint: Path | None = None,
    on_evaluation: Callable[[int, float], Any] = lambda done, seen: None,
) -> Selected:
    """Trains and keeps the best; killed at any moment, a second call with the same arguments finishes the run.

    Args:
        key: PRNG key.
        algorithm: What learns.
        experience: What it learns from.
        num_updates: Updates in all.
        evaluate: State -> how good it is; higher is better.
        updates_per_look: Updates between two evaluations.
        checkpoint: File (.npz) that keeps everything after every evaluation; resumed from where it exists.
        on_evaluation: Called with (updates done, what was seen) after every evaluation.

    Returns:
        The best state, bit-identical however often the run was killed.

    Raises:
        TrainingError: An evaluation is not a number, or training diverged.
        ProductError: The checkpoint cannot be read, or is of another key or configuration.
    """
    key_init, key_updates = jax.random.split(key)
    experience = as_argument(experience)
    run = updates(algorithm, updates_per_look)

    def advance(state: PyTree, done: int, count: int) -> tuple[PyTree, PyTree, float]:
        state, info = run(key_updates, state, experience, done, count)
        info = first_updates(info, count)
        refuse_divergence(state, info, done)
        return state, info, -_seen(evaluate, state, done + count)

    state = jax.jit(algorithm.init)(key_init)
    fit = fit_keeping_best(
        state,
        advance,
        num_updates,
        updates_per_look,
        curves=no_curves(run, key_updates, state, experience),
        first_evaluation=lambda: -_seen(evaluate, state, 0),
        checkpoint=Checkpoint(checkpoint, key),
        on_evaluation=lambda fit: on_evaluation(int(fit.done), -float(fit.losses[-1])),
    )
    return Selected(fit.best, fit.curves, -fit.losses)


def train_kept(
    key: Array,
    algorithm: Algorithm,
    experience: Experience,
    num_updates: int,
    checkpoint: Path | None,
    updates_per_save: int = 5,
) -> tuple[PyTree, PyTree]:
    """`training_loop.train`, to the same bits; killed at any moment, a second call with the same arguments goes on.

    Args:
        key, algorithm, experience, num_updates: As of `train`.
        checkpoint: File (.npz) that keeps everything every `updates_per_save` updates; None keeps nothing.
        updates_per_save: So much is lost at most.

    Returns:
        The last state, and the info of every update, leaves [U].

    Raises:
        ProductError: The checkpoint cannot be read, or is of another key or configuration.
    """
    if checkpoint is None:
        return train(key, algorithm, experience, num_updates)
    key_init, key_updates = jax.random.split(key)
    experience = as_argument(experience)
    run = updates(algorithm, updates_per_save)

    def advance(state: PyTree, done: int, count: int) -> tuple[PyTree, PyTree, float]:
        state, info = run(key_updates, state, experience, done, count)
        return state, first_updates(info, count), 0.0

    state = jax.jit(algorithm.init)(key_init)
    curves = no_curves(run, key_updates, state, experience)
    fit = fit_keeping_best(
        state,
        advance,
        num_updates,
        updates_per_save,
        curves=curves,
        kept=lambda _state: (),
        checkpoint=Checkpoint(checkpoint, key),
    )
    return fit.state, fit.curves


def _seen(evaluate: Callable[[PyTree], float], state: PyTree, done: int) -> float:
    seen = float(evaluate(state))
    if not np.isfinite(seen):
        raise TrainingError(
            f"what was looked at is not a number after {done} updates",
            advice="lower the learning rate, or look at this policy's values in the twin",
        )
    return seen
