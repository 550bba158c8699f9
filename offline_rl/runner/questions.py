"""Golden questions: plain descriptions, what they become in arrays, and what is decided about them.

The golden arrays prove the network alone. What stands before and behind it (nodes and their capacities, vocabularies,
estimates, units, the names of decisions) is proved by plain descriptions taken through the whole path.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logs_schema.errors import ProductError, SchedtwinError
from offline_rl.bundle import QUESTIONS, TOLERANCE, first_disagreement
from offline_rl.contract import read_json, refusing
from offline_rl.runner.network import NOTHING_LEGAL, ExportedPolicy, differs
from offline_rl.runner.policy import Policy
from offline_rl.runner.queue import QueuePolicy, RunningJob, UserPast, WaitingJob

MIN_QUESTIONS = 4
"""Least number in a bundle."""
Question = Mapping[str, Any]
"""Plain JSON. Placement: `nodes` (all choices of the contract, in order), `request`, `clock_s`. Ordering: `waiting`,
`running` and `users` by name, as lists of what their dataclasses hold, and `clock_s`."""


class Answered(NamedTuple):
    """What became of a question."""

    choices: np.ndarray  # [rows, F] float32; fewer rows than the contract's choices where fewer jobs wait
    context: np.ndarray  # [R] float32
    legal: np.ndarray  # [rows] bool
    logits: np.ndarray  # [rows] float32
    action: int  # the contract's choice; NOTHING_LEGAL where there is none


def asked_by(policy: ExportedPolicy) -> Callable[[Question], Answered] | None:
    """Takes questions through the whole path of a policy; None for problems that are decided from arrays only.

    Raises:
        ProductError: The contract's setting cannot be, or the features are none of this runner's.
    """
    if policy.contract.problem == "placement":
        return partial(_placed, Policy(policy))
    return partial(_ordered, QueuePolicy(policy)) if policy.contract.problem == "ordering" else None


def read_questions(folder: Path) -> list[Question]:
    """Reads `questions.json`; ProductError where it is missing, damaged or holds too few."""
    path = folder / QUESTIONS
    with refusing("the golden questions cannot be read", path):
        questions = read_json(path)
        if not isinstance(questions, list) or len(questions) < MIN_QUESTIONS:
            raise ValueError(f"allowed: a list of at least {MIN_QUESTIONS} questions")
    return questions


def replay_questions(
    asked: Callable[[Question], Answered],
    questions: Sequence[Question],
    golden: Mapping[str, np.ndarray],
    *,
    where: str,
) -> None:
    """Holds what questions become against the first golden rows.

    Args:
        asked: Of `asked_by`.
        questions: In the order of the golden rows.
        golden: The golden arrays.
        where: The bundle, for the error.

    Raises:
        ProductError: Features, legality or the decision are not those of the original.
    """
    if len(questions) > len(golden["action"]):
        raise differs(where, f"{len(questions)} golden questions, {len(golden['action'])} golden rows")
    for number, question in enumerate(questions):
        row = {name: array[number] for name, array in golden.items()}
        try:
            trouble = _disagreement(asked(question), row)
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
        told = row[name][: len(seen)]
        if not np.all(np.abs(seen - told) <= TOLERANCE * np.maximum(1.0, np.abs(told))):
            return f"other features ({name})"
    if not 0 <= answered.action < width:
        return f"decides {answered.action}, the original {row['action']}"
    expected = {name: row[name][:width][None] for name in ("logits", "legal")} | {
        "action": row["action"][None]
    }
    return first_disagreement(answered.logits[None], np.array([answered.action]), expected)


def _placed(policy: Policy, question: Question) -> Answered:
    nodes, request, clock_s = question["nodes"], question["request"], question["clock_s"]
    names = tuple(node["name"] for node in nodes)
    if names != policy.contract.choices:
        raise ProductError("a golden question is about other nodes than the contract's")
    explained = policy.explain(nodes, request, clock_s)
    decision = explained.decision
    choices = [list(explained.features[name].values()) for name in names]
    return Answered(
        np.array(choices, np.float32),
        np.array(list(explained.request.values()), np.float32),
        decision.legal,
        decision.scores,
        NOTHING_LEGAL if decision.node is None else names.index(decision.node),
    )


def _ordered(policy: QueuePolicy, question: Question) -> Answered:
    waiting = [WaitingJob(*one) for one in question["waiting"]]
    running = [RunningJob(*one) for one in question["running"]]
    users = {name: UserPast(*past) for name, past in question["users"].items()}
    told = waiting, running, users, question["clock_s"]
    choices, context = policy.features(*told)
    legal = np.ones(choices.shape[:2], bool)
    logits = policy.policy.logits(choices, context, legal)
    action = policy.decide(*told)
    return Answered(choices[0], context[0], legal[0], logits[0], NOTHING_LEGAL if action is None else action)
