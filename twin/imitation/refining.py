"""The twin that policies are trained in, its answers imitated adversarially (MAIL-MMSG, Xiong et al., section 3.4).

What plays the game is the twin's own ensemble: the same inputs, the same networks, the same draws. So a twin after the
game can be used wherever a twin can be; only its parameters differ.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema import Archive
from twin.contracts import Array
from twin.imitation.config import ANCHORED, GameConfig, ImitationConfig
from twin.imitation.generator import Limits
from twin.imitation.guards import ImitationEvaluation
from twin.imitation.training import Fitted, ImitationReport, fit_imitation
from twin.placement.encoding import Encoding
from twin.placement.fit import FitReport, held_out_windows
from twin.placement.learned import AnswerConfig, AnswerModel
from twin.placement.log_windows import training_windows
from twin.placement.model import PlacementTwin
from twin.placement.outcome_model import NUM_OUTPUTS, RUN_SCALES, WAIT_SCALES
from twin.placement.windows import Windows, select

MAX_WINDOWS = 512
"""Windows of a longer log are thinned out evenly to at most so many: the states of all of them are held at once."""


class Refined(NamedTuple):
    """The result of a game."""

    model: AnswerModel
    report: FitReport  # of the supervised fit; its spread is that of the model
    evaluations: ImitationEvaluation  # leaves [evaluations]
    facts: dict[str, Any]  # for a manifest; `in_words` is one line for reports and certificates


def imitated_twin(
    key: Array,
    twin: PlacementTwin,
    archive: Archive,
    config: GameConfig,
    *,
    checkpoint: Path | None = None,
    on_evaluation: Callable[[ImitationEvaluation], object] = lambda evaluation: None,
) -> tuple[PlacementTwin, Refined]:
    """The twin after an adversarial game on its training days, and how that went.

    Args:
        key: That of `fit_twin`.
        twin: As fitted.
        archive: The one it was fitted on.
        config: Which game.
        checkpoint: File (.npz) kept after every evaluation; a second call with the same arguments resumes from it.
        on_evaluation: Called with every evaluation.

    Raises:
        ConfigError: No game is wanted.
        ImitationError: Too few windows, or numbers that are not finite.
    """
    days = twin.encoding.train_days
    (logged,) = training_windows(archive, twin.encoding, days, num_steps=twin.windows.num_steps)
    played = refined(
        key, twin.model, twin.report, logged, twin.encoding, twin.config, config,
        checkpoint=checkpoint, on_evaluation=on_evaluation,
    )  # fmt: skip
    return replace(twin, model=played.model, report=played.report), played


def refined(
    key: Array,
    model: AnswerModel,
    report: FitReport,
    windows: Windows,
    encoding: Encoding,
    answers: AnswerConfig,
    config: GameConfig,
    *,
    checkpoint: Path | None = None,
    on_evaluation: Callable[[ImitationEvaluation], object] = lambda evaluation: None,
) -> Refined:
    """An ensemble after the game; the windows that its fit held out decide what is kept.

    Args:
        key: That of `fit_answers`.
        model, report: As `fit_answers` gave them.
        windows: Those it was fitted on.
        encoding: What they mean.
        answers: Of the ensemble.
        config: Which game.
        checkpoint, on_evaluation: As for `fit_imitation`.
    """
    settings, anchored = config.of_ensemble(answers), config.kind == ANCHORED
    labelled = np.flatnonzero((windows.valid() & (windows.node >= 0)).any(axis=0))
    windows, aside = thinned(windows, held_out_windows(key, labelled, answers))
    imitation, how = fit_imitation(
        jax.random.fold_in(key, 2),
        windows,
        encoding,
        settings,
        fitted=_as_fitted(model, report) if anchored else None,
        held_out=aside if len(aside) else None,
        checkpoint=checkpoint,
        on_evaluation=on_evaluation,
    )
    spread = report.spread if anchored else np.ones_like(report.spread)
    supervised = float(np.mean(np.nanmax(report.held_out_log_likelihood, axis=0)))
    return Refined(
        model._replace(parameters=imitation.generator.answers),
        report._replace(spread=spread),
        ImitationEvaluation(*(np.array(leaves) for leaves in zip(*how.evaluations, strict=True))),
        _facts(config, settings, how, supervised),
    )


def _as_fitted(model: AnswerModel, report: FitReport) -> Fitted:
    on_wait, on_run = np.log(report.spread)
    widening = np.zeros(NUM_OUTPUTS, np.float32)
    widening[WAIT_SCALES], widening[RUN_SCALES] = on_wait, on_run
    limits = Limits(model.longest_wait_s, model.longest_run_s)
    return Fitted(jax.tree.map(jnp.asarray, model.parameters), limits, widening)


def thinned(windows: Windows, aside: np.ndarray) -> tuple[Windows, np.ndarray]:
    """Every so many windows, and which of those are among `aside`."""
    kept = np.arange(0, windows.num_windows, -(-windows.num_windows // MAX_WINDOWS))
    return select(windows, kept), np.flatnonzero(np.isin(kept, aside))


def _facts(
    config: GameConfig, settings: ImitationConfig, report: ImitationReport, supervised: float
) -> dict[str, Any]:
    step = max(0, report.best_step - settings.num_warm)
    start, kept = report.start, report.kept
    fate = f"kept step {step} of {config.num_steps}"
    if config.kind == ANCHORED:
        sentence = "answers: supervised ensemble, refined adversarially, "
        sentence += fate if step else "but the game only harmed and gave its start back"
    else:
        sentence = (
            "answers: imitated adversarially from scratch, without likelihood (algorithm 2 of Xiong et al.), "
        )
        sentence += fate if step else "but no step was better than random networks"
    sentence += (
        f"; on held-out windows the state distance is {kept.distance:.3f} ({start.distance:.3f} when the game began), "
        f"the log likelihood an answer {kept.likelihood:.3f} (supervised {supervised:.3f})"
    )
    return {
        "kind": config.kind,
        "steps": int(report.evaluations[-1].step) - settings.num_warm,
        "kept_step": step,
        "stopped": report.stopped,
        "state_distance": {"start": start.distance, "kept": kept.distance},
        "log_likelihood": {"supervised": supervised, "start": start.likelihood, "kept": kept.likelihood},
        "in_words": sentence + (f"; stopped early: {report.stopped}" if report.stopped else ""),
    }
