"""The loop of fits that are judged on held-out data while they run: early stopping, best so far, checkpoints.

Every few steps a loss is measured on data that nothing is trained on: an evaluation. The loop keeps the state of the
lowest loss, ends after `patience` evaluations without a lower one, and resumes from a checkpoint. Steps are numbered: a
program that takes the key of a step by `fold_in(key, step)` computes the same bits however often it was killed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ProductError
from twin.arrays import load_arrays, save_arrays
from twin.contracts import PyTree

Record = TypeVar("Record", bound=NamedTuple)


class Checkpoint(NamedTuple):
    """A file (.npz) that keeps the fit of one key; with no path nothing is kept."""

    path: Path | None = None
    key: Any = None

    def save(self, record: NamedTuple) -> None:
        """Keeps a fit in place of what was kept before."""
        if self.path is not None:
            save_arrays(self.path, self._with_key(record))

    def resumed(self, start: Record) -> Record:
        """What is kept, or `start` if nothing is.

        Args:
            start: Structure, shapes and types; of the fields `curves` and `losses` axis 0 may have grown.

        Raises:
            ProductError: The file cannot be read, or is of another key or configuration.
        """
        if self.path is None or not self.path.exists():
            return start
        found = load_arrays(self.path, self._with_key(start), growing=("curves", "losses"))
        if not np.array_equal(found.pop("key"), jax.random.key_data(self.key)):
            raise ProductError(
                "the checkpoint belongs to a run with another key",
                where=str(self.path),
                advice="use the key it was started with, or give another checkpoint file",
            )
        return jax.tree.map(
            lambda old, new: jnp.asarray(new) if isinstance(old, jax.Array) else new[()],
            start,
            start._replace(**found),
        )

    def _with_key(self, record: NamedTuple) -> dict[str, PyTree]:
        return {"key": jax.random.key_data(self.key), **record._asdict()}


NO_CHECKPOINT = Checkpoint()


class FitProgress(NamedTuple):
    """A fit after some evaluation."""

    state: PyTree
    best: PyTree  # what was kept of the state with the lowest loss
    best_look: np.int64  # evaluations up to that one; 0: none
    losses: np.ndarray  # [evaluations] held-out
    curves: PyTree  # leaves [any, ...]: what else was recorded
    done: np.int64  # steps

    @property
    def evaluations_since_best(self) -> int:
        """Evaluations without a lower loss."""
        return len(self.losses) - int(self.best_look)


def fit_keeping_best(
    state: PyTree,
    advance: Callable[[PyTree, int, int], tuple[PyTree, PyTree, float]],
    num_steps: int,
    steps_per_evaluation: int,
    *,
    curves: PyTree = (),
    kept: Callable[[PyTree], PyTree] = lambda state: state,
    first_evaluation: Callable[[], float] | None = None,
    patience: int | None = None,
    last_of_equals: bool = False,
    checkpoint: Checkpoint = NO_CHECKPOINT,
    on_evaluation: Callable[[FitProgress], object] = lambda progress: None,
) -> FitProgress:
    """Fits until the steps are done or patience ends.

    Args:
        state: To begin with.
        advance: (state, steps done, how many more) -> state, what is recorded of them (leaves of the curves, to be
            concatenated), held-out loss.
        num_steps: At most.
        steps_per_evaluation: Between two evaluations.
        curves: What is recorded of no steps, leaves [0, ...].
        kept: State -> what is kept of it if it is the best.
        first_evaluation: The held-out loss of the state to begin with, not asked for on resuming; none if None.
        patience: Evaluations without a lower loss after which the fit ends; never if None.
        last_of_equals: Whether the last of equal losses is the best, instead of the first.
        checkpoint: Kept after every evaluation, resumed from if it is there.
        on_evaluation: Called after every evaluation but the first.

    Returns:
        The fit after its last evaluation.

    Raises:
        ProductError: The checkpoint cannot be read, or is of another key or configuration.
    """
    start = FitProgress(state, kept(state), np.int64(0), np.zeros(0), curves, np.int64(0))
    progress = checkpoint.resumed(start)
    if first_evaluation is not None and not len(progress.losses):
        progress = progress._replace(losses=np.array([first_evaluation()]), best_look=np.int64(1))
    while progress.done < num_steps and (patience is None or progress.evaluations_since_best < patience):
        count = min(steps_per_evaluation, num_steps - int(progress.done))
        state, recorded, loss = advance(progress.state, int(progress.done), count)
        least = progress.losses[progress.best_look - 1] if progress.best_look else np.inf
        progress = progress._replace(
            state=state,
            losses=np.append(progress.losses, loss),
            curves=jax.tree.map(lambda past, new: np.concatenate([past, new]), progress.curves, recorded),
            done=progress.done + count,
        )
        if loss < least or (last_of_equals and loss == least):
            progress = progress._replace(best=kept(state), best_look=np.int64(len(progress.losses)))
        checkpoint.save(progress)
        on_evaluation(progress)
    return progress


def is_finite(tree: PyTree) -> bool:
    """Whether all floating-point numbers of a pytree are finite."""
    leaves = map(np.asarray, jax.tree.leaves(tree))
    return all(np.isfinite(leaf).all() for leaf in leaves if np.issubdtype(leaf.dtype, np.floating))
