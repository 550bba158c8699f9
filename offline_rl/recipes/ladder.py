"""The ladder: rules, tuned rules, learners and networks in turn; a rung is taken only where it is surely better.

The referee is the member of the ensemble that no policy was trained or tuned with. Every policy plays the twin's
disjoint windows under the same keys, so two policies differ by their decisions alone; the windows' differences give the
mean gain over the rung that is held, and the lower end of its 95 % interval (Student's t). A rung is taken where that
end is above zero, and where the twin need not guess: no more of its decisions than `MAX_OUT_OF_SUPPORT` (or than the
held rung's) go to nodes with longer queues than the log knows. With too few windows nothing is taken: the first rung
stays.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import stdtrit

from offline_rl.networks import Actor, greedy_policy
from twin.contracts import Array, PyTree
from twin.placement.learned import AnswerModel
from twin.placement.model import PlacementTwin
from twin.placement.windows import Windows
from twin.rollout import rollout

MAX_OUT_OF_SUPPORT = 0.05
"""Share of decisions on queues that the log does not know, above which the twin only guesses."""
NUM_PLAYS = 256
"""Windows played by every policy, each window several times where there are fewer."""
_LEVEL = 0.975


class Rung(NamedTuple):
    """A policy that may be taken: its name in comparisons, its seed's row (else 0), what it decides by."""

    name: str
    row: int
    network: Actor
    params: PyTree


class RungResult(NamedTuple):
    """What came of a policy before the referee."""

    value: np.ndarray  # [windows] mean reward of settled decisions; NaN where none was
    out_of_support: float


class RungStep(NamedTuple):
    """One rung as the referee saw it."""

    value: float  # mean over windows
    gain: float  # over the rung that was held then; 0 of the first
    low: float  # lower end of its interval
    out_of_support: float
    taken: bool
    row: int
    is_chosen: bool


Judge = Callable[[Actor, PyTree], RungResult]
"""(network, parameters) -> what came of its greedy policy."""


class Referee(NamedTuple):
    """Two judges of different luck: one chooses seeds, the other rungs, so that no choice judges itself."""

    select: Judge
    judge: Judge


def referee(key: Array, twin: PlacementTwin, model: AnswerModel) -> Referee:
    """Plays policies in the twin with one member of its ensemble: the same windows and keys for all.

    Args:
        key: PRNG key, of nothing else.
        twin: Whose windows.
        model: The member, best one that no policy was trained with.

    Returns:
        The judges; one program is compiled for each network.
    """
    disjoint = twin.disjoint_windows()
    width = disjoint.num_windows
    keys = jax.random.split(key, (2, -(-NUM_PLAYS // width)))
    arrays = jax.tree.map(jnp.asarray, disjoint)

    @lru_cache
    def program(network: Actor) -> Callable[..., tuple[Array, Array]]:
        def play(windows: Windows, model: AnswerModel, params: PyTree, key: Array) -> tuple[Array, Array]:
            system = PlacementTwin(twin.encoding, twin.config, model, windows, twin.report).environment()
            episodes = rollout(key, system, greedy_policy(network, params), windows.num_steps, (width,))
            told = (episodes.active & episodes.settled).astype(jnp.float32)
            reward = jnp.sum(episodes.reward * told, axis=(0, 1)) / jnp.sum(told, axis=(0, 1))
            far = episodes.response_aux > jnp.asarray(model.support_limit_s)[episodes.action]
            return reward, jnp.sum(far & episodes.active) / jnp.maximum(jnp.sum(episodes.active), 1)

        return jax.jit(jax.vmap(play, in_axes=(None, None, None, 0)))

    def judge(keys: Array, network: Actor, params: PyTree) -> RungResult:
        reward, out_of_support = program(network)(arrays, model, params, keys)
        return RungResult(np.asarray(reward).mean(axis=0), float(np.mean(out_of_support)))

    return Referee(partial(judge, keys[0]), partial(judge, keys[1]))


def climb(rungs: Sequence[Rung], judge: Judge) -> dict[str, RungStep]:
    """Takes one rung after another where it is better with confidence than the one held.

    Args:
        rungs: From the simplest; the first is held until another is taken.
        judge: Of a referee.

    Returns:
        Name -> step, in the order of the rungs; exactly one is chosen.
    """
    held, best, steps = "", RungResult(np.zeros(0), 0.0), {}
    for rung in rungs:
        played = judge(rung.network, rung.params)
        gain, low = (0.0, 0.0) if not held else gain_of(played.value, best.value)
        sure = played.out_of_support <= max(MAX_OUT_OF_SUPPORT, best.out_of_support)
        taken = not held or bool(low > 0.0 and sure)
        value = float(np.nanmean(played.value)) if np.isfinite(played.value).any() else float("nan")
        steps[rung.name] = RungStep(value, gain, low, played.out_of_support, taken, rung.row, False)
        if taken:
            held, best = rung.name, played
    return {name: step._replace(is_chosen=name == held) for name, step in steps.items()}


def gain_of(values: np.ndarray, held: np.ndarray) -> tuple[float, float]:
    """Mean difference of two policies over the windows that both settled, and the lower end of its interval.

    Minus infinity is the lower end of fewer than two windows.
    """
    difference = (values - held)[np.isfinite(values - held)]
    if len(difference) < 2:
        return float(difference.mean()) if len(difference) else 0.0, -np.inf
    error = float(np.std(difference, ddof=1)) / np.sqrt(len(difference))
    mean = float(difference.mean())
    return mean, float(mean - stdtrit(len(difference) - 1, _LEVEL) * error)


def select_row(judge: Judge, network: Actor, stacked: PyTree) -> int:
    """The seed that does best before a referee, of parameters with leaves [seeds, ...]; ties to the first."""
    num_seeds = len(jax.tree.leaves(stacked)[0])
    if num_seeds == 1:
        return 0
    each = [jax.tree.map(lambda leaf, row=row: leaf[row], stacked) for row in range(num_seeds)]
    return int(np.argmax([np.nanmean(judge(network, params).value) for params in each]))


def in_words(steps: Mapping[str, RungStep]) -> str:
    """Which rung won, and by how much over the first."""
    first, chosen = next(iter(steps)), chosen_of(steps)[0]
    if chosen == first:
        return f"{first}: no other rung was better with confidence"
    step = steps[chosen]
    return (
        f"{chosen}: {step.gain:+.4f} over the rung below, at least {step.low:+.4f}, with the member held out"
    )


def rungs_of(steps: Mapping[str, RungStep]) -> list[dict[str, float | str | bool | None]]:
    """The steps as plain values, in their order; `low` is None where there were too few windows for an interval."""
    return [
        {
            "policy": name, "value": step.value, "gain": step.gain,
            "low": step.low if np.isfinite(step.low) else None,
            "out_of_support": step.out_of_support, "taken": bool(step.taken), "chosen": bool(step.is_chosen),
        }
        for name, step in steps.items()
    ]  # fmt: skip


def chosen_of(steps: Mapping[str, RungStep]) -> tuple[str, int]:
    """Name and seed's row of the rung that was chosen."""
    return next((name, int(step.row)) for name, step in steps.items() if step.is_chosen)
