"""The loop behind every trained population: rounds, evaluations, the best parameters kept, resumed to the bit.

Round `u` is driven by `fold_in(key, u)`, and how many rounds a call takes is an argument of its program; so a fit that
was killed at any moment and started again computes the same bits as one that was not. At every evaluation the generator
is held against agents that it has not seen, with the same random numbers each time; the best evaluation's parameters
are the result, and after `patience` evaluations without a better one the search ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree
from twin.fitting_loop import Checkpoint, FitProgress, fit_keeping_best, is_finite
from twin.population.errors import PopulationError
from twin.population.fidelity import GeneratorFidelity

OnEvaluation = Callable[[int, int, dict[str, float]], Any]
"""(steps done, steps in all, figures): told of every evaluation."""
ACCURACY_BAND = (0.35, 0.95)
"""Where an adversary's accuracy ought to lie; evaluations outside it are reported."""
LOW_COVERAGE = 0.9
"""Less of the real mass on levels that are generated at all is reported as collapse."""
DIVERGED = 1e6
ADVICE = (
    "lower learning_rate and discriminator_rate, raise the weight of the KL terms (pairs, rows), or lower adversary; "
    "look for amounts that are constant but for a few rows"
)


@dataclass(frozen=True)
class SearchConfig:
    """How long a population is trained.

    Attributes:
        num_rounds: At most.
        rounds_a_look: Between two evaluations.
        patience: Evaluations without a better one, after which the search ends.
        held_out: Share of the agents that evaluations are judged by.
    """

    num_rounds: int = 4000
    rounds_a_look: int = 100
    patience: int = 10
    held_out: float = 0.15

    def __post_init__(self) -> None:
        if min(self.num_rounds, self.rounds_a_look, self.patience) < 1 or not 0.0 < self.held_out < 1.0:
            raise ConfigError(
                f"num_rounds={self.num_rounds}, rounds_a_look={self.rounds_a_look}, patience={self.patience}, "
                f"held_out={self.held_out:g}",
                where="search of a population",
                allowed="whole numbers from 1, held_out between 0 and 1",
            )


class Search(NamedTuple):
    """What is trained; pure functions, `judge` apart."""

    init: Callable[[Array], PyTree]
    round: Callable[[Array, PyTree, PyTree], tuple[PyTree, PyTree]]  # (key, state, data) -> state, metrics
    chosen: Callable[[PyTree], PyTree]  # state -> parameters to sample with
    judge: Callable[[Array, PyTree], GeneratorFidelity]  # on the host


def train(
    key: Array,
    search: Search,
    data: PyTree,
    config: SearchConfig,
    on_evaluation: OnEvaluation | None = None,
    checkpoint: Path | None = None,
) -> tuple[PyTree, dict[str, Any]]:
    """Trains until the search is over.

    Args:
        key: PRNG key; the same key gives the same bits.
        search: What is trained.
        data: Arguments of every round.
        config: Length and evaluations.
        on_evaluation: Called with (rounds done, rounds in all, the evaluation's metrics).
        checkpoint: File (.npz) kept after every evaluation; a second call with the same arguments goes on from it.

    Returns:
        The parameters of the best evaluation, and the record: curves, best evaluation, warnings.

    Raises:
        PopulationError: Training diverged.
    """
    key_init, key_rounds, key_judge = jax.random.split(key, 3)
    state = jax.jit(search.init)(key_init)
    run = _rounds(search)
    names = (*jax.eval_shape(run, key_rounds, state, data, 0, 0)[1]._fields, "held_out_pairs", "coverage")

    def advance(state: PyTree, done: int, count: int) -> tuple[PyTree, dict[str, np.ndarray], float]:
        state, metrics = run(key_rounds, state, data, jnp.int32(done), jnp.int32(count))
        _check(state, metrics, done, count)
        judged = search.judge(key_judge, search.chosen(state))
        seen = zip(names, (*metrics, judged.pairs, judged.coverage), strict=True)
        return state, {name: np.array([float(value)]) for name, value in seen}, judged.pairs

    def show(fit: FitProgress) -> None:
        if on_evaluation is not None:
            on_evaluation(
                int(fit.done), config.num_rounds, {name: float(fit.curves[name][-1]) for name in names}
            )

    fit = fit_keeping_best(
        state,
        advance,
        config.num_rounds,
        config.rounds_a_look,
        curves={name: np.zeros(0) for name in names},
        kept=search.chosen,
        patience=config.patience,
        checkpoint=Checkpoint(checkpoint, key),
        on_evaluation=show,
    )
    curves = {name: fit.curves[name].tolist() for name in names}
    return jax.tree.map(np.asarray, fit.best), _record(curves, int(fit.best_look) - 1)


def _rounds(search: Search) -> Callable[..., tuple[PyTree, Any]]:
    """The jitted `(key, state, data, first, count) -> state, mean metrics` of `count` rounds."""

    @jax.jit
    def run(key: Array, state: PyTree, data: PyTree, first: Array, count: Array) -> tuple[PyTree, PyTree]:
        def one(state: PyTree, number: Array) -> tuple[PyTree, PyTree]:
            return search.round(jax.random.fold_in(key, number), state, data)

        def body(index: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            state, sums = carry
            state, metrics = one(state, first + index)
            return state, jax.tree.map(jnp.add, sums, metrics)

        shapes = jax.eval_shape(one, state, jnp.int32(0))[1]
        zero = jax.tree.map(jnp.zeros_like, shapes)
        state, sums = jax.lax.fori_loop(0, count, body, (state, zero))
        return state, jax.tree.map(lambda leaf: leaf / jnp.maximum(count, 1), sums)

    return run


def _check(state: PyTree, metrics: PyTree, done: int, count: int) -> None:
    finite = is_finite((state, metrics))
    if not finite or not max(abs(float(value)) for value in metrics) < DIVERGED:
        raise PopulationError(
            "training diverged: " + ("losses grew beyond all bounds" if finite else "numbers are not finite"),
            where=f"rounds {done} to {done + count - 1}; what was kept before them is intact",
            advice=ADVICE,
        )


def _record(curves: dict[str, list[float]], best: int) -> dict[str, Any]:
    low, high = ACCURACY_BAND
    outside = [number for number, value in enumerate(curves["accuracy"]) if not low <= value <= high]
    warnings = []
    if 2 * len(outside) > len(curves["accuracy"]):
        warnings.append(
            f"the adversary's accuracy left {low:g} to {high:g} on {len(outside)} of {len(curves['accuracy'])} "
            "evaluations: it learns too fast or not at all; change discriminator_rate or discriminator_steps"
        )
    if curves["coverage"][best] < LOW_COVERAGE:
        warnings.append(
            f"only {curves['coverage'][best]:.0%} of the real mass is on levels that are generated (collapse): raise "
            "pairs or rows, or lower adversary"
        )
    return {"curves": curves, "best_look": best, "looks": len(curves["coverage"]), "warnings": warnings}
