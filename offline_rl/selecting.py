"""Training that is looked at from time to time and keeps the state that looked best, with an early stop.

What a look measures must not be what is trained on: a member of the twin's ensemble held out, or days held out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.algorithm import Algorithm
from offline_rl.errors import TrainingError
from offline_rl.training_loop import (
    Experience,
    as_argument,
    continued,
    first_updates,
    no_curves,
    refuse_divergence,
    refuse_other_key,
    updates,
)
from twin.arrays import load_arrays, save_arrays
from twin.contracts import Array, PyTree


class Selected(NamedTuple):
    """The result of a run."""

    best: PyTree  # the state with the highest look; the first of equals
    info: PyTree  # leaves [U], of every update that was done
    looks: np.ndarray  # [L]: before the first update, then after every `updates_per_look`


def train_selecting(
    key: Array,
    algorithm: Algorithm,
    experience: Experience,
    num_updates: int,
    look: Callable[[PyTree], float],
    *,
    updates_per_look: int = 5,
    patience: int | None = None,
    checkpoint: Path | None = None,
    on_look: Callable[[int, float], Any] | None = None,
) -> Selected:
    """Trains, looks, and keeps the best; killed at any moment, a second call with the same arguments finishes the run.

    Args:
        key: PRNG key.
        algorithm: What learns.
        experience: What it learns from.
        num_updates: Updates at most.
        look: State -> how good it is; higher is better.
        updates_per_look: Updates between two looks.
        patience: Looks in a row without improvement after which training stops; never if None.
        checkpoint: File (.npz) that keeps everything after every look; resumed from where it exists.
        on_look: Called with (updates done, what was seen) after every look.

    Returns:
        The best state, bit-identical however often the run was killed.

    Raises:
        TrainingError: The checkpoint belongs to another key, a look is not a number, or training diverged.
        ProductError: The checkpoint cannot be read, or its arrays have other shapes.
    """
    key_init, key_updates = jax.random.split(key)
    experience = as_argument(experience)
    run = updates(algorithm, updates_per_look)
    state = jax.jit(algorithm.init)(key_init)
    kept = {
        "key": jax.random.key_data(key),
        "state": state,
        "best": state,
        "curves": no_curves(run, key_updates, state, experience),
        "looks": np.zeros(0),
    }
    if checkpoint is not None and checkpoint.exists():
        kept = _resume(checkpoint, kept)
    else:
        kept["looks"] = np.array([_seen(look, state, 0)])
    while (done := len(jax.tree.leaves(kept["curves"])[0])) < num_updates:
        if patience is not None and len(kept["looks"]) - 1 - int(np.argmax(kept["looks"])) >= patience:
            break
        length = min(updates_per_look, num_updates - done)
        state, info = run(key_updates, kept["state"], experience, done, length)
        info = first_updates(info, length)
        refuse_divergence(state, info, done)
        seen = _seen(look, state, done + length)
        if seen > kept["looks"].max():
            kept["best"] = state
        kept["state"], kept["looks"] = state, np.append(kept["looks"], seen)
        kept["curves"] = continued(kept["curves"], info)
        if checkpoint is not None:
            save_arrays(checkpoint, kept)
        if on_look is not None:
            on_look(done + length, seen)
    return Selected(kept["best"], kept["curves"], kept["looks"])


def _seen(look: Callable[[PyTree], float], state: PyTree, done: int) -> float:
    seen = float(look(state))
    if not np.isfinite(seen):
        raise TrainingError(
            f"what was looked at is not a number after {done} updates",
            advice="lower the learning rate, or look at this policy's values in the twin",
        )
    return seen


def _resume(path: Path, like: dict[str, Any]) -> dict[str, Any]:
    found = load_arrays(path, like, growing=("curves", "looks"))
    refuse_other_key(path, found, like)
    as_arrays = {name: jax.tree.map(jnp.asarray, found[name]) for name in ("state", "best")}
    return {**found, **as_arrays}
