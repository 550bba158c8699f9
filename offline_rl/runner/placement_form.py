"""Plain questions of the placement problem: all nodes and what they hold, the request in hand, and the clock."""

from functools import partial
from typing import Any

import numpy as np

from logs_schema.errors import ProductError
from offline_rl.contract import PolicyContract
from offline_rl.runner.form import Answered, Question, ServingForm, amounts, one_of, some_clock_s, some_run_s
from offline_rl.runner.network import NOTHING_LEGAL, ExportedPolicy
from offline_rl.runner.policy import PROBLEM, Policy
from offline_rl.runner.setting import RESOURCES

_MOST_HELD = 64
"""Requests that a question's nodes hold, on average at most."""


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


def _placement(contract: PolicyContract, rng: np.random.Generator) -> Question:
    setting, clock_s = contract.setting, some_clock_s(rng)
    nodes = setting["nodes"]
    busy = rng.random(len(nodes)) < min(0.7, _MOST_HELD / len(nodes))
    described = []
    for node, is_busy in zip(nodes, busy.tolist(), strict=True):
        one: dict[str, Any] = {"name": node["name"], "available": bool(rng.random() < 0.9)}
        if is_busy:
            one["held"] = [_held(node, setting, clock_s, rng) for _ in range(rng.integers(1, 4))]
            one["recent_wait_s"], one["recent_starts"] = amounts(rng.random(2) * (60.0, 4.0))
        described.append(one)
    agents = [*setting["acceptance_of_agent"], *(setting.get("run_habits") or ())]
    node, service = nodes[rng.integers(len(nodes))], int(rng.integers(len(setting["services"])))
    request = dict(zip(RESOURCES, _part_of(node, "machine_", rng), strict=True)) | {
        "site": one_of(setting["sites"], rng),
        "service": setting["services"][service],
        "scenario": one_of(setting["scenarios"], rng),
        "queue": one_of(setting["queues"], rng),
        "agent": one_of([None, *agents[:1000]], rng),
        "input_mib": amounts(rng.exponential(20.0, 1))[0],
        "requested_run_s": None
        if rng.random() < 0.3
        else some_run_s(setting["run_of_service_s"][service], rng),
        "deadline_s": None
        if rng.random() < 0.5
        else some_run_s(setting["run_of_service_s"][service] * 3.0, rng),
        "candidates": None if rng.random() < 0.6 else one_of(setting["candidate_sets"], rng),
    }
    return {"nodes": described, "request": request, "clock_s": clock_s}


def _held(
    node: dict[str, Any], setting: dict[str, Any], clock_s: float, rng: np.random.Generator
) -> dict[str, Any]:
    run_s, service = setting["run_of_service_s"], int(rng.integers(len(setting["services"])))
    since_s, waited_s = amounts(rng.random(2) * (run_s[service] + 1.0))
    requested = dict(zip(RESOURCES, _part_of(node, "", rng), strict=True))
    start_s = None if rng.random() < 0.3 else clock_s - since_s
    times = {"arrival_s": clock_s - since_s - waited_s, "start_s": start_s}
    labels = {"service": setting["services"][service]}
    if setting.get("run_labels") is not None:
        labels |= {"scenario": one_of(setting["scenarios"], rng), "queue": one_of(setting["queues"], rng)}
    return {**times, **labels, **requested}


def _part_of(node: dict[str, Any], prefix: str, rng: np.random.Generator) -> list[float]:
    """Random amounts that a node can hold, in the order of `RESOURCES`; 4 at most where no limit is known."""
    limits = [4.0 if node[f"{prefix}{name}"] is None else node[f"{prefix}{name}"] for name in RESOURCES]
    is_requested = rng.random(len(limits)) < (0.9, 0.9, 0.2)
    return amounts(rng.random(len(limits)) * limits * is_requested)


def _answering(exported: ExportedPolicy) -> partial[Answered]:
    return partial(_placed, Policy(exported))


PLACEMENT_FORM = ServingForm(PROBLEM, "which node takes an arriving request", _answering, _placement)
"""Questions hold `nodes` (all choices of the contract, in order), `request` and `clock_s`."""
