"""Golden questions drawn for a bundle: systems half full, requests and jobs of all sizes. Needs NumPy only."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.errors import ProductError
from offline_rl.bundle import QUESTIONS
from offline_rl.contract import PolicyContract
from offline_rl.runner.questions import MIN_QUESTIONS, Answered, Question
from offline_rl.runner.setting import RESOURCES

MAX_QUESTIONS, MAX_DESCRIBED = 32, 20_000
"""Questions of a bundle, and the choices that all of them together describe."""
_MOST_HELD = 64
"""Requests that a question's nodes hold, on average at most."""
_MONDAY_S, _WEEK_S = 1_600_041_600.0, 604_800.0


def drawn_questions(
    contract: PolicyContract, asked: Callable[[Question], Answered], rng: np.random.Generator
) -> tuple[list[Question], list[Answered]]:
    """Questions in which something can be decided, and what becomes of them.

    Args:
        contract: Of a placement or an ordering policy.
        asked: Takes a question through the whole path (`offline_rl.runner.questions.asked_by`).
        rng: Of the draws.

    Raises:
        ProductError: Nothing can be decided under this contract, whatever is asked.
    """
    draw = _placement if contract.problem == "placement" else _ordering
    wanted = max(MIN_QUESTIONS, min(MAX_QUESTIONS, MAX_DESCRIBED // len(contract.choices)))
    questions, answers = [], []
    for _ in range(20 * wanted):
        question = draw(contract, rng)
        answered = asked(question)
        if answered.legal.any():
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


def write_questions(folder: Path, questions: Sequence[Question]) -> None:
    """Writes `questions.json`."""
    (folder / QUESTIONS).write_text(json.dumps(questions, allow_nan=False, separators=(",", ":")) + "\n")


def asked_rows(
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


def _placement(contract: PolicyContract, rng: np.random.Generator) -> Question:
    setting, clock_s = contract.setting, _clock_s(rng)
    nodes = setting["nodes"]
    busy = rng.random(len(nodes)) < min(0.7, _MOST_HELD / len(nodes))
    described = []
    for node, is_busy in zip(nodes, busy.tolist(), strict=True):
        one: dict[str, Any] = {"name": node["name"], "available": bool(rng.random() < 0.9)}
        if is_busy:
            one["held"] = [_held(node, setting, clock_s, rng) for _ in range(rng.integers(1, 4))]
            one["recent_wait_s"], one["recent_starts"] = _amounts(rng.random(2) * (60.0, 4.0))
        described.append(one)
    node, service = nodes[rng.integers(len(nodes))], int(rng.integers(len(setting["services"])))
    request = dict(zip(RESOURCES, _part_of(node, "machine_", rng), strict=True)) | {
        "site": _one_of(setting["sites"], rng),
        "service": setting["services"][service],
        "scenario": _one_of(setting["scenarios"], rng),
        "queue": _one_of(setting["queues"], rng),
        "agent": _one_of([None, *list(setting["acceptance_of_agent"])[:1000]], rng),
        "input_mib": _amounts(rng.exponential(20.0, 1))[0],
        "requested_run_s": None if rng.random() < 0.3 else _run_s(setting["run_of_service_s"][service], rng),
        "deadline_s": None if rng.random() < 0.5 else _run_s(setting["run_of_service_s"][service] * 3.0, rng),
        "candidates": None if rng.random() < 0.6 else _one_of(setting["candidate_sets"], rng),
    }
    return {"nodes": described, "request": request, "clock_s": clock_s}


def _held(
    node: dict[str, Any], setting: dict[str, Any], clock_s: float, rng: np.random.Generator
) -> dict[str, Any]:
    run_s, service = setting["run_of_service_s"], int(rng.integers(len(setting["services"])))
    since_s, waited_s = _amounts(rng.random(2) * (run_s[service] + 1.0))
    amounts = dict(zip(RESOURCES, _part_of(node, "", rng), strict=True))
    start_s = None if rng.random() < 0.3 else clock_s - since_s
    times = {"arrival_s": clock_s - since_s - waited_s, "start_s": start_s}
    return {**times, "service": setting["services"][service], **amounts}


def _part_of(node: dict[str, Any], prefix: str, rng: np.random.Generator) -> list[float]:
    """What something asks for that a node can hold, in the order of `RESOURCES`; 4 at most where no limit is known."""
    limits = [4.0 if node[f"{prefix}{name}"] is None else node[f"{prefix}{name}"] for name in RESOURCES]
    is_asked = rng.random(len(limits)) < (0.9, 0.9, 0.2)
    return _amounts(rng.random(len(limits)) * limits * is_asked)


def _ordering(contract: PolicyContract, rng: np.random.Generator) -> Question:
    setting, clock_s, num_places = contract.setting, _clock_s(rng), len(contract.choices)
    size, unit_s = setting["processors"], setting["time_unit_s"]
    least = 1 if contract.network.any_choices else num_places
    users = {
        f"user {index}": [int(rng.integers(1, 9)), *_amounts(rng.random(3))]
        for index in range(int(rng.integers(1, 6)))
    }
    names = [*users, "a new user", None]
    since_s = np.sort(rng.exponential(4.0 * unit_s, rng.integers(least, num_places + num_places // 4 + 2)))[
        ::-1
    ]
    waiting = [
        [clock_s - round(float(one), 3), *_job(size, unit_s, rng), _one_of(names, rng)] for one in since_s
    ]
    running, free = [], size
    for _ in range(int(rng.integers(0, 8))):
        processors, left_s = _job(free, unit_s, rng)
        running.append([processors, clock_s + left_s, _one_of(names, rng)])
        free -= processors
        if free < 1.0:
            break
    return {"waiting": waiting, "running": running, "users": users, "clock_s": clock_s}


def _job(size: float, unit_s: float, rng: np.random.Generator) -> tuple[float, float]:
    return max(1.0, float(np.floor(size * rng.random() ** 3))), _run_s(unit_s, rng)


def _run_s(typical_s: float, rng: np.random.Generator) -> float:
    return round(float(typical_s * np.exp(rng.normal())) + 0.001, 3)


def _clock_s(rng: np.random.Generator) -> float:
    return _MONDAY_S + round(float(rng.random()) * _WEEK_S, 3)


def _amounts(values: np.ndarray) -> list[float]:
    return [round(value, 3) for value in np.asarray(values, float).tolist()]


def _one_of(items: Sequence[Any], rng: np.random.Generator) -> Any:
    return items[int(rng.integers(len(items)))]
