"""Golden questions: plain descriptions, what they become in arrays, and what is decided about them.

The golden arrays prove the network alone. What stands before and behind it (nodes and their capacities, vocabularies,
estimates, units, the names of decisions) is proved by plain descriptions taken through the whole path.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from logs_schema.errors import SchedtwinError
from offline_rl.bundle import QUESTIONS, TOLERANCE, first_disagreement
from offline_rl.contract import read_json, refusing
from offline_rl.runner.form import Answered, Question
from offline_rl.runner.forms import form_of
from offline_rl.runner.network import ExportedPolicy, differs

MIN_QUESTIONS = 4
"""Least number in a bundle."""


def answering_of(policy: ExportedPolicy) -> Callable[[Question], Answered] | None:
    """Takes questions through the whole path of a policy; None for problems that are decided from arrays only.

    Raises:
        ProductError: The contract's setting cannot be, or the features are none of this runner's.
    """
    form = form_of(policy.contract.problem)
    return None if form is None else form.answering(policy)


def read_questions(folder: Path) -> list[Question]:
    """Reads `questions.json`; ProductError where it is missing, damaged or holds too few."""
    path = folder / QUESTIONS
    with refusing("the golden questions cannot be read", path):
        questions = read_json(path)
        if not isinstance(questions, list) or len(questions) < MIN_QUESTIONS:
            raise ValueError(f"allowed: a list of at least {MIN_QUESTIONS} questions")
    return questions


def replay_questions(
    answer: Callable[[Question], Answered],
    questions: Sequence[Question],
    golden: Mapping[str, np.ndarray],
    *,
    where: str,
) -> None:
    """Compares the answers to questions with the first golden rows.

    Raises:
        ProductError: Features, legality or the decision are not those of the original.
    """
    if len(questions) > len(golden["action"]):
        raise differs(where, f"{len(questions)} golden questions, {len(golden['action'])} golden rows")
    for number, question in enumerate(questions):
        row = {name: array[number] for name, array in golden.items()}
        try:
            trouble = _disagreement(answer(question), row)
        except (SchedtwinError, TypeError, ValueError, LookupError, AttributeError) as error:
            trouble = f"{type(error).__name__}: {error}"
        if trouble:
            raise differs(where, f"golden question {number}: {trouble}")


def _disagreement(answered: Answered, row: Mapping[str, np.ndarray]) -> str:
    """How an answer differs from its golden row; empty where it does not."""
    width = len(answered.legal)
    if not np.array_equal(answered.legal, row["legal"][:width]) or row["legal"][width:].any():
        return "other choices are legal"
    for name, seen in (("choices", answered.choices), ("context", answered.context)):
        golden = row[name][: len(seen)]
        if not np.all(np.abs(seen - golden) <= TOLERANCE * np.maximum(1.0, np.abs(golden))):
            return f"other features ({name})"
    if not 0 <= answered.action < width:
        return f"decides {answered.action}, the original {row['action']}"
    expected = {name: row[name][:width][None] for name in ("logits", "legal")} | {
        "action": row["action"][None]
    }
    return first_disagreement(answered.logits[None], np.array([answered.action]), expected)
