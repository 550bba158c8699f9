"""A rule's numbers tuned by successive halving: many candidates played a little, the better half played on.

Every round plays as many (candidate, key) pairs as there were candidates, so one compiled program serves all rounds. In
a round all candidates are given the same keys: they differ by what they decide, not by luck. A candidate's value is the
mean over all its plays (K. Jamieson and A. Talwalkar, Non-stochastic best arm identification, 2016).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Stage, unseen
from offline_rl.errors import TrainingError
from twin.contracts import Array, PyTree

Play = Callable[[PyTree, Array], Array]
"""(parameters, leaves [C, ...]; keys [C]) -> value of each [C]."""


class Tuned(NamedTuple):
    """What tuning found."""

    best: int  # index of the candidate that was left
    values: np.ndarray  # [candidates] mean value of every candidate's plays
    num_plays: np.ndarray  # [candidates] how many


def successive_halving(key: Array, play: Play, candidates: Sequence[PyTree], stage: Stage = unseen) -> Tuned:
    """The best of some candidates.

    Args:
        key: PRNG key; every round folds in its number.
        play: Plays candidates; called once a round, always with as many rows as there are candidates.
        candidates: Parameters of one structure; a power of two of them.
        stage: Told how many rounds are done.

    Returns:
        The one that is left, ties to the first, and what all were worth.

    Raises:
        TrainingError: The number of candidates is not a power of two.
    """
    total = len(candidates)
    if total < 1 or total & (total - 1):
        raise TrainingError(f"{total} candidates cannot be halved", allowed="1, 2, 4, 8, ...")
    summed, num_plays, alive = np.zeros(total), np.zeros(total, int), np.arange(total)
    num_rounds = max(1, total.bit_length() - 1)
    for number in range(num_rounds):
        copies = total // len(alive)
        rows = np.repeat(alive, copies)
        keys = jnp.tile(jax.random.split(jax.random.fold_in(key, number), copies), len(alive))
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(candidates[row] for row in rows.tolist()))
        np.add.at(summed, rows, np.asarray(play(params, keys), float))
        np.add.at(num_plays, rows, 1)
        ranked = np.argsort(-summed[alive] / num_plays[alive], kind="stable")
        alive = np.sort(alive[ranked[: max(1, len(alive) // 2)]])
        stage(number + 1.0, float(num_rounds))
    return Tuned(int(alive[0]), summed / np.maximum(num_plays, 1), num_plays)
