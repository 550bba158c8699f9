"""Twins of a whole day and of its parts, with one engine in all of them: the clone of that day's behaviour.

All twins of a day share its vocabulary (and its expected run times), so that they share programs too; the answers of a
part are fitted on the part alone. A part is cut into `PART_WINDOWS` windows for any length, and padded to the longest:
twelve parts are fitted and simulated by the programs of one.
"""

import datetime as dt
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.judges.judge import Program, twin_program
from evaluation.judges.players import SAMPLED, players_of
from evaluation.reproduction.offload import DayParts, ratios
from logs_schema import Archive
from logs_schema.calendar import DAY, DAY_S
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.networks import Actor, Example
from offline_rl.recipes.cloning import fit_clone
from offline_rl.recipes.config import NETWORKS, TrainingConfig
from offline_rl.recipes.schedulers import example_for
from twin.contracts import Array, PyTree
from twin.placement.encode import EncodedRows, cut_windows, read_rows
from twin.placement.encoding import Encoding, day_start_s, fit_encoding
from twin.placement.fit import MIN_ROWS, FitProgram, fit_answers, fit_program
from twin.placement.history import labelled_offers, replay_log
from twin.placement.learned import AnswerConfig, AnswerModel
from twin.placement.windows import Windows, pad_windows, select

PART_WINDOWS = 16
"""Of them 12 are enough for whole windows to be held out of a fit (`twin.placement.fit`)."""


class LoggedDay(NamedTuple):
    """A logged day."""

    rows: EncodedRows
    wanted: np.ndarray  # [rows] bool: arrived on that day
    midnight_s: float  # seconds since 1970

    def in_part(self, parts: DayParts) -> np.ndarray:
        """[rows] the part of the day that every wanted row is in; -1 for the others."""
        return np.where(self.wanted, parts.of(self.rows.arrival_s - self.midnight_s), -1)


class Learning(NamedTuple):
    """What all twins of a day have in common: the day, how they are learned, and the programs for it."""

    encoding: Encoding
    learned: LoggedDay
    answers: AnswerConfig
    training: TrainingConfig
    num_steps: int
    example: Example
    network: Actor
    fit: FitProgram
    program: Program  # simulates windows


def read_day(
    archive: Archive, encoding: Encoding, day: dt.date, *, known_until_s: float = np.inf
) -> LoggedDay:
    """A day of an archive, and what is known of it until `known_until_s`."""
    rows, wanted = read_rows(archive, encoding, [day], known_until_s=known_until_s)
    return LoggedDay(rows, wanted, day_start_s(day))


def prepare(
    archive: Archive, day: dt.date, answers: AnswerConfig, training: TrainingConfig, num_steps: int
) -> Learning:
    """Everything to learn twins of a day with.

    Args:
        archive: Of the log.
        day: To learn from; what happened after it is not looked at.
        answers: Of every ensemble.
        training: How the engine is cloned.
        num_steps: Requests a window of the whole day.
    """
    encoding = fit_encoding(archive, [day], view="full")
    learned = read_day(archive, encoding, day, known_until_s=day_start_s(day + DAY))
    example = example_for(encoding, cut_windows(learned.rows, learned.wanted, encoding, num_steps=num_steps))
    network = NETWORKS[training.network](example)
    fit = fit_program(encoding, answers)
    program = twin_program(encoding, answers, players_of(encoding.cluster, network))
    return Learning(encoding, learned, answers, training, num_steps, example, network, fit, program)


def clone_engine(key: Array, how: Learning, progress: Progress) -> PyTree:
    """Parameters of `how.network`: the clone of the training day's behaviour."""
    clone = how.training
    history = replay_log(_day_windows(how), how.encoding)
    with progress.stage("clone", total=clone.clone_updates, unit="updates") as stage:
        engine, _ = fit_clone(
            key, history, how.example, how.network, clone.clone_updates, clone.clone_streams, clone.held_out, stage
        )  # fmt: skip
    return engine


def simulate_whole(
    key: Array,
    how: Learning,
    engine: PyTree,
    held: LoggedDay,
    parts: DayParts,
    num_replications: int,
    progress: Progress,
) -> np.ndarray:
    """[replications, parts] offload ratios of `held` in one twin of the whole day, simulated in one piece.

    Args:
        key: PRNG key.
        how: The day that is learned from, and the rest.
        engine: The deciding policy, from `clone_engine`.
        held: The day whose requests are simulated.
        parts: Number of parts of the day.
        num_replications: Replications of the day, a multiple of the ensemble's members, which share them.
        progress: Progress display.

    Returns:
        NaN in parts where nothing started.
    """
    key_learn, key_simulate = jax.random.split(key)
    model = _learn(key_learn, _day_windows(how), how, progress)
    whole = cut_windows(held.rows, held.wanted, how.encoding, num_steps=int(held.wanted.sum()))
    with progress.stage("simulate the day"):
        return _simulate(key_simulate, how, engine, model, whole, parts, num_replications)


def simulate_parts(
    key: Array,
    how: Learning,
    engine: PyTree,
    held: LoggedDay,
    parts: DayParts,
    num_replications: int,
    progress: Progress,
) -> np.ndarray:
    """As `simulate_whole`, in a twin for every part, which begins with the logged state of its time.

    Raises:
        ConfigError: A part holds too few requests to learn from.
    """
    learned, simulated = how.learned.in_part(parts), held.in_part(parts)
    counts, simulated_counts = (
        np.bincount(part[part >= 0], minlength=parts.num) for part in (learned, simulated)
    )
    if counts.min() < MIN_ROWS:
        raise ConfigError(
            f"part {int(counts.argmin()) + 1} of {parts.num} of the day holds {counts.min()} requests",
            allowed=f"{MIN_ROWS} or more, to fit answers to",
            advice="take fewer parts, or a preset with more requests a day",
        )
    longest, longest_simulated = int(counts.max()), int(simulated_counts.max())
    found = np.full((num_replications, parts.num), np.nan)
    with progress.stage("parts of the day", total=parts.num, unit="parts") as stage:
        for part in range(parts.num):
            key_learn, key_simulate = jax.random.split(jax.random.fold_in(key, part))
            model = _learn(key_learn, _part_windows(how, learned == part, longest), how, progress)
            if np.any(simulated == part):
                window = cut_windows(held.rows, simulated == part, how.encoding, num_steps=longest_simulated)
                replications = _simulate(key_simulate, how, engine, model, window, parts, num_replications)
                found[:, part] = replications[:, part]
            stage(part + 1.0)
    return found


def _day_windows(how: Learning) -> Windows:
    return cut_windows(how.learned.rows, how.learned.wanted, how.encoding, num_steps=how.num_steps)


def _part_windows(how: Learning, wanted: np.ndarray, longest: int) -> Windows:
    """The wanted rows as `PART_WINDOWS` windows (fewer where there are fewer than 226 rows), as long as the longest
    part's."""
    own = max(1, -(-int(wanted.sum()) // PART_WINDOWS))
    windows = cut_windows(how.learned.rows, wanted, how.encoding, num_steps=own)
    return pad_windows(windows, -(-longest // PART_WINDOWS), windows.num_windows)


def _learn(key: Array, windows: Windows, how: Learning, progress: Progress) -> AnswerModel:
    """Fits answers to logged windows that do not overlap."""
    with progress.stage("answers"):
        offers = labelled_offers(windows, how.encoding)
        model, _ = fit_answers(key, offers, how.encoding, how.answers, how.fit)
    return model


def _simulate(
    key: Array,
    how: Learning,
    engine: PyTree,
    model: AnswerModel,
    windows: Windows,
    parts: DayParts,
    num_replications: int,
) -> np.ndarray:
    """[replications, parts] offload ratios of the requests of one window, decided by the engine and answered by the
    model."""
    kind = jnp.int32(how.program.kinds.index(SAMPLED))
    engines = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], engine)
    copies = jax.tree.map(jnp.asarray, select(windows, np.zeros(num_replications, int)))
    simulated = how.program.run(key, kind, engines, copies, model, {})
    active, away, start_s = (
        np.asarray(leaf)[0, :, 0]
        for leaf in (simulated.active, simulated.decision_info.off_site, simulated.outcome.start_s)
    )
    started = active & np.isfinite(start_s)
    part = parts.of((windows.arrival_s[:, 0] + windows.origin_s[0]) % DAY_S)
    return np.stack([ratios(part, *each, parts.num) for each in zip(started.T, away.T, strict=True)])
