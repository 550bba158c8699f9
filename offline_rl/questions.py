"""Golden questions drawn for a bundle, and their answers as rows of arrays. Needs NumPy only."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from logs_schema.errors import ProductError
from offline_rl.bundle import QUESTIONS, TOLERANCE
from offline_rl.contract import PolicyContract
from offline_rl.numpy_rules import rule_of
from offline_rl.runner.form import Answered, Question, ServingForm
from offline_rl.runner.network import ExportedPolicy
from offline_rl.runner.questions import MIN_QUESTIONS

MAX_QUESTIONS, MAX_DESCRIBED = 32, 20_000
"""Questions of a bundle, and the choices that all of them together describe."""
ROUNDING = 1e-6
"""By so much of itself a feature may be rounded; zeros are exact."""


def drawn_questions(
    exported: ExportedPolicy, form: ServingForm, rng: np.random.Generator
) -> tuple[list[Question], list[Answered]]:
    """Questions in which something can be decided, whatever is rounded, and their answers.

    Args:
        exported: The policy's network.
        form: Of its problem; it takes questions through the whole path.
        rng: Of the draws.

    Raises:
        ProductError: Nothing can be decided under this contract for any question.
    """
    contract, answer = exported.contract, form.answering(exported)
    wanted = max(MIN_QUESTIONS, min(MAX_QUESTIONS, MAX_DESCRIBED // len(contract.choices)))
    questions, answers = [], []
    for _ in range(20 * wanted):
        question = form.draw(contract, rng)
        answered = answer(question)
        rows = (one[None] for one in (answered.choices, answered.context, answered.legal))
        if answered.legal.any() and steady_rows(exported, *rows)[0]:
            questions.append(question)
            answers.append(answered)
        if len(answers) == wanted:
            return questions, answers
    raise ProductError(
        "no question could be drawn that this policy decides",
        where=f"{len(answers)} of {wanted}",
        allowed="nodes that can take requests",
        advice="check the capacities of the nodes",
    )


def steady_rows(
    exported: ExportedPolicy, choices: np.ndarray, context: np.ndarray, legal: np.ndarray
) -> np.ndarray:
    """Which observations lie on no step of a policy, where rounding decides what its copies say.

    Rules, and what corrects them, have such steps: a node has room for a request, or has not. Networks have none.

    Args:
        exported: The policy's network.
        choices, context, legal: [n, A, F], [n, R], [n, A].

    Returns:
        [n] bool.
    """
    steady = np.ones(len(legal), bool)
    if rule_of(exported.contract) is None:
        return steady
    logits = exported.network(choices, context, legal)
    allowed = 0.5 * TOLERANCE * np.maximum(1.0, np.abs(logits))
    num_features = choices.shape[-1]
    for part in np.random.default_rng(0).uniform(-ROUNDING, ROUNDING, (2, num_features + context.shape[-1])):
        for sign in (-1.0, 1.0):
            moved = (
                (seen * (1.0 + sign * of_feature)).astype(np.float32)
                for seen, of_feature in ((choices, part[:num_features]), (context, part[num_features:]))
            )
            away = np.abs(exported.network(next(moved), next(moved), legal) - logits)
            steady &= np.all(np.where(legal, away <= allowed, True), axis=1)
    return steady


def write_questions(folder: Path, questions: Sequence[Question]) -> None:
    """Writes `questions.json`."""
    (folder / QUESTIONS).write_text(json.dumps(questions, allow_nan=False, separators=(",", ":")) + "\n")


def rows_of_answers(
    answers: Sequence[Answered], contract: PolicyContract
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers as rows of arrays: choices [n, A, F], context [n, R], legal [n, A]; places without a job are zeros."""
    num_choices, num_features, num_context = contract.widths
    choices = np.zeros((len(answers), num_choices, num_features), np.float32)
    context = np.zeros((len(answers), num_context), np.float32)
    legal = np.zeros((len(answers), num_choices), bool)
    for row, one in enumerate(answers):
        width = len(one.legal)
        choices[row, :width], context[row], legal[row, :width] = one.choices, one.context, one.legal
    return choices, context, legal
