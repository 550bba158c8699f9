"""Metrics of a game for display, and when it is stopped."""

from typing import Any, NamedTuple

import numpy as np

from twin.contracts import PyTree
from twin.fitting_loop import is_finite
from twin.imitation.config import ImitationConfig
from twin.imitation.errors import ImitationError


class ImitationEvaluation(NamedTuple):
    """Figures of one evaluation; NaN where a phase has no such number."""

    step: Any
    likelihood: Any  # mean log likelihood per logged decision, answers and engine, last step
    held_out_likelihood: Any
    held_out_answers: Any  # the same of the answers alone
    distance: Any  # held-out state distance along the logged decisions
    accuracy_logged: Any  # the discriminator's, mean since the last evaluation
    accuracy_generated: Any
    refused: Any  # generated less logged share of refused offers


def refuse_divergence(state: PyTree, info: PyTree, begin: int, length: int) -> None:
    """Makes sure that parameters and numbers are finite.

    Raises:
        ImitationError: They are not.
    """
    if is_finite((state, info["likelihood"])):
        return
    raise ImitationError(
        "the imitation diverged: numbers are not finite",
        where=f"steps {begin} to {begin + length - 1}; what was kept before them is intact",
        advice="lower learning_rate or game_learning_rate, raise anchor or the gradient penalty",
    )


def stop_reason(curves: ImitationEvaluation, best_step: int, config: ImitationConfig) -> str:
    """Why to stop now; empty if it goes on.

    Args:
        curves: All evaluations so far, leaves [evaluations].
        best_step: Where the best parameters were met.
        config: With the guards.
    """
    guards, patience = config.guards, config.guards.patience
    steps = np.asarray(curves.step)
    game = steps > config.num_warm
    same_phase = game if game.any() else ~game
    worse = int(np.sum(same_phase & (steps > max(best_step, config.num_warm if game.any() else 0))))
    if worse >= patience:
        return f"no better held-out {'fidelity' if game.any() else 'likelihood'} in {worse} evaluations"
    if int(game.sum()) < patience:
        return ""
    recent = [np.asarray(leaf)[-patience:] for leaf in curves]
    last = ImitationEvaluation(*recent)
    accuracy = 0.5 * (last.accuracy_logged + last.accuracy_generated)
    low, high = guards.accuracy
    if (accuracy > high).all():
        return (
            f"the discriminator is right for {accuracy.mean():.0%} in {patience} evaluations: raise its gradient "
            "penalty, lower its learning rate, or warm up longer"
        )
    if (accuracy < low).all():
        return (
            f"the discriminator is right for only {accuracy.mean():.0%} in {patience} evaluations: "
            "raise its learning rate"
        )
    if (np.abs(last.refused) > guards.refusals).all():
        return (
            f"the imitation refuses {last.refused.mean():+.0%} more offers than the log for {patience} evaluations: "
            "raise anchor, or lower adversary"
        )
    return ""
