"""Trains an imitation: warm start, game, evaluations of held-out fidelity, guards, bit-identical resume.

Update `u` is driven by `fold_in(key, u)` and everything between two evaluations is one program, so a run that was
killed and started again computes the same bits. While warming, the best parameters are those of the highest held-out
likelihood; in the game, those of the smallest held-out state distance that have not lost in likelihood, the start of
the game included: a game that only harms gives its start back. A game may begin with an ensemble that is fitted
already; then only the engine is warmed.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, PyTree
from twin.fitting_loop import Checkpoint
from twin.imitation.config import ImitationConfig
from twin.imitation.decisions import LoggedDecisions, logged_decisions
from twin.imitation.errors import ImitationError
from twin.imitation.fidelity import STATES, repeated, state_distance, states_along_log
from twin.imitation.game import Likelihood
from twin.imitation.generator import Limits, ResponseGenerator, imitated_answers
from twin.imitation.guards import ImitationEvaluation, refuse_divergence, stop_reason
from twin.imitation.updates import (
    ENGINE,
    GAME,
    WARM,
    ImitationData,
    State,
    Updates,
    at_start_of_game,
    fitted_likelihood,
    init_state,
    updates,
)
from twin.placement.encoding import Encoding
from twin.placement.outcome_model import NUM_OUTPUTS
from twin.placement.types import Leaf
from twin.placement.windows import Windows, select

MIN_WINDOWS = 4


class ImitationModel(NamedTuple):
    """An imitation to play with: `imitated_answers(encoding, config, model.generator.answers, model.limits)`."""

    generator: ResponseGenerator
    limits: Limits


class Fitted(NamedTuple):
    """An ensemble that is fitted already, for a game to begin with."""

    answers: PyTree  # leaves [members, ...], as they draw
    limits: Limits
    widening: Leaf  # [NUM_OUTPUTS] what `placement.spread` added to the outputs once they were fitted


class Fidelity(NamedTuple):
    """What parameters are worth on the held-out windows."""

    distance: Leaf  # of states along the logged decisions
    likelihood: Leaf  # log likelihood per logged answer


class ImitationReport(NamedTuple):
    """How it went: one entry an evaluation, and where and why it ended."""

    evaluations: tuple[ImitationEvaluation, ...]
    start: Fidelity  # when the game began; NaN where there was no game
    kept: Fidelity  # of the model; the start's own where the game only harmed
    best_step: int
    stopped: str  # empty if it ran to its end


class _Training(NamedTuple):
    state: State
    best: ResponseGenerator
    best_score: Leaf
    best_step: Leaf
    start: Fidelity
    kept: Fidelity
    curves: ImitationEvaluation  # leaves [evaluations]


def fit_imitation(
    key: Array,
    windows: Windows,
    encoding: Encoding,
    config: ImitationConfig,
    *,
    fitted: Fitted | None = None,
    held_out: np.ndarray | None = None,
    checkpoint: Path | None = None,
    on_evaluation: Callable[[ImitationEvaluation], object] = lambda evaluation: None,
) -> tuple[ImitationModel, ImitationReport]:
    """Imitates answers and engine from logged windows alone (Xiong et al., algorithm 2, or a steadier variant).

    Args:
        key: PRNG key; the same key gives the same bits.
        windows: Logged windows, at least `MIN_WINDOWS`.
        encoding: What they mean.
        config: Which variant.
        fitted: Answers to begin with, of `config`'s members and widths; random ones by default.
        held_out: The windows that are only looked at; by default the last ones, a share of `config.held_out`.
        checkpoint: File (.npz) kept after every evaluation; a second call with the same arguments resumes from it.
        on_evaluation: Called with every evaluation.

    Returns:
        The best model met and the curves.

    Raises:
        ImitationError: Too few windows or answers, or numbers that are not finite.
        ProductError: The checkpoint cannot be read, or is of another key or configuration.
    """
    if windows.num_windows < MIN_WINDOWS:
        raise ImitationError(
            f"{windows.num_windows} windows are too few to imitate from",
            allowed=f"at least {MIN_WINDOWS}",
            advice="use more days, or shorter windows",
        )
    if held_out is None:
        num_held = min(max(1, round(config.held_out * windows.num_windows)), windows.num_windows - 1)
        held_out = np.arange(windows.num_windows - num_held, windows.num_windows)
    seen = np.setdiff1d(np.arange(windows.num_windows), held_out)
    data, limits = _data(select(windows, seen), encoding)
    key_init, key_updates = jax.random.split(key)
    state = init_state(key_init, encoding, config)
    phases = (WARM, GAME)
    if fitted is not None:
        phases, limits, data = (ENGINE, GAME), fitted.limits, data._replace(widening=fitted.widening)
        answers = jax.tree.map(jnp.asarray, fitted.answers)
        state = at_start_of_game(state, state.generator._replace(answers=answers), config)
    held = _held_out(select(windows, held_out), encoding, config, limits, data.widening)
    unknown = Fidelity(np.float64(np.nan), np.float64(np.nan))
    run = _Training(
        state, state.generator, np.float64(np.inf), np.int64(0), unknown, unknown, _no_evaluations()
    )
    kept = Checkpoint(checkpoint, key)
    programs = tuple(updates(encoding, config, limits, phase) for phase in phases)
    return _train(key_updates, kept.resumed(run), data, limits, held, programs, config, kept, on_evaluation)


def _train(
    key_updates: Array,
    run: _Training,
    data: ImitationData,
    limits: Limits,
    held: "_HeldOut",
    programs: tuple[Updates, ...],
    config: ImitationConfig,
    checkpoint: Checkpoint,
    on_evaluation: Callable[[ImitationEvaluation], object],
) -> tuple[ImitationModel, ImitationReport]:
    warm, game = programs
    done, stopped = _position(run, config)
    while not stopped and done < config.num_warm + config.num_steps:
        is_game = done >= config.num_warm
        end = config.num_warm + config.num_steps if is_game else config.num_warm
        length = min(config.evaluate_every, end - done)
        if done == config.num_warm:
            run = _at_start_of_game(run, held, config)
        state, info = (game if is_game else warm)(key_updates, run.state, data, done, length)
        refuse_divergence(state, info, done, length)
        done += length
        evaluation = held.evaluate(state.mean, jax.tree.map(lambda leaf: float(leaf), info), done, is_game)
        score = evaluation.distance if is_game else -evaluation.held_out_likelihood
        least = run.start.likelihood - config.guards.likelihood_lost
        if score < run.best_score and not (is_game and evaluation.held_out_answers < least):
            kept = Fidelity(np.float64(evaluation.distance), np.float64(evaluation.held_out_answers))
            run = run._replace(
                best=state.mean, best_score=np.float64(score), best_step=np.int64(done), kept=kept
            )
        curves = ImitationEvaluation(
            *(np.append(past, new) for past, new in zip(run.curves, evaluation, strict=True))
        )
        run = run._replace(state=state, curves=curves)
        checkpoint.save(run)
        on_evaluation(evaluation)
        done, stopped = _position(run, config)
    model = ImitationModel(jax.tree.map(np.asarray, run.best), limits)
    every = tuple(
        ImitationEvaluation(*(float(leaf[i]) for leaf in run.curves)) for i in range(len(run.curves.step))
    )
    start, kept = (Fidelity(*(float(leaf) for leaf in one)) for one in (run.start, run.kept))
    return model, ImitationReport(every, start, kept, int(run.best_step), stopped)


def _position(run: _Training, config: ImitationConfig) -> tuple[int, str]:
    """How many steps are behind a run, and why it stops there, if it does; a warm start that stops begins the game."""
    if not len(run.curves.step):
        return 0, ""
    done, reason = int(run.curves.step[-1]), stop_reason(run.curves, int(run.best_step), config)
    if reason and done <= config.num_warm and config.num_steps:
        return config.num_warm, ""
    return done, reason


def _at_start_of_game(run: _Training, held: "_HeldOut", config: ImitationConfig) -> _Training:
    """The game starts from the best warm start (without one: as it is), and has to beat its held-out fidelity."""
    start = held.fidelity(run.best)
    state = at_start_of_game(run.state, run.best, config)
    return run._replace(state=state, start=start, kept=start, best_score=start.distance)


class _HeldOut(NamedTuple):
    """Held-out windows and the programs that look at them."""

    logged: LoggedDecisions
    refused: float
    likelihood: Callable[[ResponseGenerator, LoggedDecisions], Likelihood]
    states: Callable[[ResponseGenerator], Array]
    real: np.ndarray

    def distance(self, generator: ResponseGenerator) -> float:
        return state_distance(self.real, np.asarray(self.states(generator)))

    def fidelity(self, generator: ResponseGenerator) -> Fidelity:
        likelihood = self.likelihood(generator, self.logged).answers
        return Fidelity(np.float64(self.distance(generator)), np.float64(likelihood))

    def evaluate(
        self, generator: ResponseGenerator, info: dict[str, float], step: int, is_game: bool
    ) -> ImitationEvaluation:
        likelihood = self.likelihood(generator, self.logged)
        answers, both = float(likelihood.answers), float(likelihood.answers + likelihood.engine)
        distance = self.distance(generator) if is_game else float("nan")
        return ImitationEvaluation(
            step,
            info["likelihood"],
            both,
            answers,
            distance,
            info["accuracy_logged"],
            info["accuracy_generated"],
            info["refused"] - self.refused if is_game else float("nan"),
        )


def _data(windows: Windows, encoding: Encoding) -> tuple[ImitationData, Limits]:
    logged = logged_decisions(windows, encoding)
    if not logged.known.any():
        raise ImitationError(
            "no decision of these windows has a known answer",
            where=f"{windows.num_windows} windows",
            advice="look at the capability matrix of `schedtwin check`",
        )
    observed, fate = logged.observed, windows.fate
    limits = Limits(
        float(np.max(observed.wait_s[logged.valid & observed.started], initial=1.0)),
        float(np.max(observed.run_s[logged.valid & observed.finished], initial=1.0)),
    )
    ends_s = np.where(np.isfinite(fate.finish_s) & windows.valid(), fate.finish_s, -np.inf) + windows.origin_s
    last_s = max(float(ends_s.max()), float((windows.arrival_s + windows.origin_s).max()))
    known_until_s = (last_s - windows.origin_s).astype(np.float32)
    return ImitationData(logged, windows, known_until_s, np.zeros(NUM_OUTPUTS, np.float32)), limits


def _held_out(
    windows: Windows, encoding: Encoding, config: ImitationConfig, limits: Limits, widening: Leaf
) -> _HeldOut:
    times = config.num_members
    # One short window would end all evaluations early
    windows = select(windows, 2 * windows.length >= windows.length.max())
    logged = logged_decisions(windows, encoding)
    shortest = int(windows.length.min())
    horizons = sorted(
        {max(1, shortest // 4), max(1, shortest // 2), max(1, shortest - 1)} & set(range(shortest))
    )
    horizons = horizons or [0]
    real = logged.full.node[STATES][:, :, horizons]
    real = np.moveaxis(real, 2, 0)
    spread = repeated(windows, times)
    logged_of_members = jax.tree.map(
        lambda leaf: jnp.concatenate([jnp.asarray(leaf)] * times, axis=-1), logged
    )

    @jax.jit
    def states(generator: ResponseGenerator, limits: Limits, windows: Windows) -> Array:
        answers = imitated_answers(encoding, config, generator.answers, limits)
        return states_along_log(jax.random.key(1), encoding, answers, windows, horizons)

    @jax.jit
    def mean(generator: ResponseGenerator, some: LoggedDecisions, widening: Leaf) -> Likelihood:
        return fitted_likelihood(encoding, config, generator, some, widening)

    refused = float(np.mean(~logged.observed.accepted[logged.valid])) if logged.valid.any() else 0.0
    return _HeldOut(
        logged_of_members,
        refused,
        partial(mean, widening=widening),
        partial(states, limits=limits, windows=spread),
        real,
    )


def _no_evaluations() -> ImitationEvaluation:
    return ImitationEvaluation(*(np.zeros(0) for _ in ImitationEvaluation._fields))
