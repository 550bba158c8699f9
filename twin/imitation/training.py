"""Trains an imitation: warm start, game, looks at held-out fidelity, guards, bit-identical resume.

Update `u` is driven by `fold_in(key, u)` and everything between two looks is one program, so a run that was killed and
started again computes the same bits. While warming, the best parameters are those of the highest held-out likelihood;
in the game, those of the smallest held-out state distance, the start of the game included: a game that only harms
gives its start back.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import first
from twin.arrays import load_arrays, save_arrays
from twin.contracts import Array, PyTree
from twin.imitation.config import ImitationConfig
from twin.imitation.decisions import Decisions, logged_decisions
from twin.imitation.errors import ImitationError
from twin.imitation.fidelity import STATES, repeated, state_distance, states_along_log
from twin.imitation.game import likelihood
from twin.imitation.generator import Generator, Limits, imitated_answers
from twin.imitation.guards import Look, refuse_divergence, stop_reason
from twin.imitation.updates import Data, State, init_state, updates
from twin.placement.encoding import Encoding
from twin.placement.types import Leaf
from twin.placement.windows import Windows, select

MIN_WINDOWS = 4


class ImitationModel(NamedTuple):
    """An imitation to play with: `imitated_answers(encoding, config, model.generator.answers, model.limits)`."""

    generator: Generator
    limits: Limits


class ImitationReport(NamedTuple):
    """How it went: one entry a look, and where and why it ended."""

    looks: tuple[Look, ...]
    best_step: int
    stopped: str  # empty if it ran to its end


class _Run(NamedTuple):
    state: State
    best: Generator
    best_score: Leaf
    best_step: Leaf
    curves: Look  # leaves [looks]


def fit_imitation(
    key: Array,
    windows: Windows,
    encoding: Encoding,
    config: ImitationConfig,
    *,
    checkpoint: Path | None = None,
    on_look: Callable[[Look], object] = lambda look: None,
) -> tuple[ImitationModel, ImitationReport]:
    """Imitates answers and engine from logged windows alone (paper 000, algorithm 2, or a steadier variant).

    Args:
        key: PRNG key; the same key gives the same bits.
        windows: Logged windows, at least `MIN_WINDOWS`; the last `config.held_out` of them are only looked at.
        encoding: What they mean.
        config: Which variant.
        checkpoint: File (.npz) kept after every look; a second call with the same arguments resumes from it.
        on_look: Told of every look.

    Returns:
        The best model met and the curves.

    Raises:
        ImitationError: Too few windows or answers, or numbers that are not finite.
    """
    if windows.num_windows < MIN_WINDOWS:
        raise ImitationError(
            f"{windows.num_windows} windows are too few to imitate from",
            allowed=f"at least {MIN_WINDOWS}", advice="use more days, or shorter windows",
        )  # fmt: skip
    num_held = min(max(1, round(config.held_out * windows.num_windows)), windows.num_windows - 1)
    cut = windows.num_windows - num_held
    data, limits = _data(select(windows, np.arange(cut)), encoding)
    held = _held_out(select(windows, np.arange(cut, windows.num_windows)), encoding, config, limits)
    key_init, key_updates = jax.random.split(key)
    state = init_state(key_init, encoding, config)
    run = _Run(state, state.generator, np.float64(np.inf), np.int64(0), _no_looks())
    if checkpoint is not None and checkpoint.exists():
        run = _resumed(checkpoint, key, run)
    return _train(key, key_updates, run, data, limits, held, encoding, config, checkpoint, on_look)


def _train(
    key: Array,
    key_updates: Array,
    run: _Run,
    data: Data,
    limits: Limits,
    held: "_HeldOut",
    encoding: Encoding,
    config: ImitationConfig,
    checkpoint: Path | None,
    on_look: Callable[[Look], object],
) -> tuple[ImitationModel, ImitationReport]:
    warm, game = (updates(encoding, config, limits, is_game=flag) for flag in (False, True))
    done, stopped = _position(run, config)
    while not stopped and done < config.num_warm + config.num_steps:
        is_game = done >= config.num_warm
        end = config.num_warm + config.num_steps if is_game else config.num_warm
        length = min(config.evaluate_every, end - done)
        if done == config.num_warm:
            run = _at_start_of_game(run, held)
        state, info = (game if is_game else warm)(key_updates, run.state, data, done, length)
        refuse_divergence(state, info, done, length)
        done += length
        look = held.look(state.generator, jax.tree.map(lambda leaf: float(leaf), info), done, is_game)
        score = look.distance if is_game else -look.held_out_likelihood
        if score < run.best_score:
            run = run._replace(best=state.generator, best_score=np.float64(score), best_step=np.int64(done))
        curves = Look(*(np.append(past, new) for past, new in zip(run.curves, look, strict=True)))
        run = run._replace(state=state, curves=curves)
        if checkpoint is not None:
            save_arrays(checkpoint, _record(key, run))
        on_look(look)
        done, stopped = _position(run, config)
    model = ImitationModel(jax.tree.map(np.asarray, run.best), limits)
    every = tuple(Look(*(float(leaf[i]) for leaf in run.curves)) for i in range(len(run.curves.step)))
    return model, ImitationReport(every, int(run.best_step), stopped)


def _position(run: _Run, config: ImitationConfig) -> tuple[int, str]:
    """How many steps are behind a run, and why it stops there, if it does; a warm start that stops begins the game."""
    if not len(run.curves.step):
        return 0, ""
    done, reason = int(run.curves.step[-1]), stop_reason(run.curves, int(run.best_step), config)
    if reason and done <= config.num_warm and config.num_steps:
        return config.num_warm, ""
    return done, reason


def _at_start_of_game(run: _Run, held: "_HeldOut") -> _Run:
    """The game starts from the best warm start, and has to beat its held-out fidelity."""
    if not np.isfinite(run.best_score):
        return run
    score = np.float64(held.distance(run.best))
    return run._replace(state=run.state._replace(generator=run.best), best_score=score)


class _HeldOut(NamedTuple):
    """Held-out windows and the programs that look at them."""

    logged: Decisions
    refused: float
    likelihood: Callable[[Generator, Decisions], Array]
    states: Callable[[Generator], Array]
    real: np.ndarray

    def distance(self, generator: Generator) -> float:
        return state_distance(self.real, np.asarray(self.states(generator)))

    def look(self, generator: Generator, info: dict[str, float], step: int, is_game: bool) -> Look:
        held_out = float(self.likelihood(generator, self.logged))
        distance = self.distance(generator) if is_game else float("nan")
        return Look(
            step, info["likelihood"], held_out, distance, info["accuracy_logged"], info["accuracy_generated"],
            info["refused"] - self.refused if is_game else float("nan"),
        )  # fmt: skip


def _data(windows: Windows, encoding: Encoding) -> tuple[Data, Limits]:
    logged = logged_decisions(windows, encoding)
    if not logged.known.any():
        raise ImitationError(
            "no decision of these windows has a known answer", where=f"{windows.num_windows} windows",
            advice="look at the capability matrix of `schedtwin check`",
        )  # fmt: skip
    observed, fate = logged.observed, windows.fate
    limits = Limits(
        float(np.max(observed.wait_s[logged.valid & observed.started], initial=1.0)),
        float(np.max(observed.run_s[logged.valid & observed.finished], initial=1.0)),
    )
    ends_s = np.where(np.isfinite(fate.finish_s) & windows.valid(), fate.finish_s, -np.inf) + windows.origin_s
    last_s = max(float(ends_s.max()), float((windows.arrival_s + windows.origin_s).max()))
    return Data(logged, windows, (last_s - windows.origin_s).astype(np.float32)), limits


def _held_out(windows: Windows, encoding: Encoding, config: ImitationConfig, limits: Limits) -> _HeldOut:
    times = config.num_members
    logged = logged_decisions(windows, encoding)
    shortest = int(windows.length.min())
    horizons = sorted(
        {max(1, shortest // 4), max(1, shortest // 2), max(1, shortest - 1)} & set(range(shortest))
    )
    horizons = horizons or [0]
    real = logged.full.node[STATES][:, :, horizons]
    real = np.moveaxis(real, 2, 0)
    spread = repeated(windows, times)
    told = jax.tree.map(lambda leaf: jnp.concatenate([jnp.asarray(leaf)] * times, axis=-1), logged)

    def states(generator: Generator) -> Array:
        answers = imitated_answers(encoding, config, generator.answers, limits)
        return states_along_log(jax.random.key(1), encoding, answers, spread, horizons)

    def mean(generator: Generator, some: Decisions) -> Array:
        both = likelihood(encoding, config, generator, some)
        return both.answers + both.engine

    refused = float(np.mean(~logged.observed.accepted[logged.valid])) if logged.valid.any() else 0.0
    return _HeldOut(told, refused, jax.jit(mean), jax.jit(states), real)


def _no_looks() -> Look:
    return Look(*(np.zeros(0) for _ in Look._fields))


def _record(key: Array, run: _Run) -> dict[str, PyTree]:
    return {"key": jax.random.key_data(key), **run._asdict()}


def _resumed(path: Path, key: Array, run: _Run) -> _Run:
    found = load_arrays(path, _record(key, run), growing=("curves",))
    if not np.array_equal(found.pop("key"), jax.random.key_data(key)):
        raise ImitationError(
            "the checkpoint belongs to a run with another key", where=first([path]),
            advice="use the key it was started with, or give another file",
        )  # fmt: skip
    state = jax.tree.map(jnp.asarray, found["state"])
    best = jax.tree.map(jnp.asarray, found["best"])
    return _Run(state, best, found["best_score"][()], found["best_step"][()], found["curves"])
