"""Plain questions of the ordering problem: the waiting and running jobs, their users, and the clock."""

from functools import partial

import numpy as np

from offline_rl.contract import PolicyContract
from offline_rl.runner.form import Answered, Question, ServingForm, amounts, one_of, some_clock_s, some_run_s
from offline_rl.runner.network import NOTHING_LEGAL, ExportedPolicy
from offline_rl.runner.queue import PROBLEM, QueuePolicy, scores_each
from offline_rl.runner.queue_descriptions import RunningJob, UserPast, WaitingJob


def _ordered(policy: QueuePolicy, question: Question) -> Answered:
    waiting = [WaitingJob(*one) for one in question["waiting"]]
    running = [RunningJob(*one) for one in question["running"]]
    users = {name: UserPast(*past) for name, past in question["users"].items()}
    state = waiting, running, users, question["clock_s"]
    choices, context = policy.features(*state)
    legal = np.ones(choices.shape[:2], bool)
    logits = policy.policy.logits(choices, context, legal)
    action = policy.decide(*state)
    return Answered(choices[0], context[0], legal[0], logits[0], NOTHING_LEGAL if action is None else action)


def _ordering(contract: PolicyContract, rng: np.random.Generator) -> Question:
    setting, clock_s, num_places = contract.setting, some_clock_s(rng), len(contract.choices)
    size, unit_s = setting["processors"], setting["time_unit_s"]
    least = 1 if contract.network.any_choices else num_places
    most = num_places if scores_each(setting) else num_places + num_places // 4 + 1
    users = {
        f"user {index}": [int(rng.integers(1, 9)), *amounts(rng.random(3))]
        for index in range(int(rng.integers(1, 6)))
    }
    if setting.get("predicts"):
        for past in list(users.values())[1:]:
            past += [some_run_s(unit_s, rng), some_run_s(unit_s, rng)]
    names = [*users, "a new user", None]
    since_s = np.sort(rng.exponential(4.0 * unit_s, rng.integers(least, most + 1)))[::-1]
    waiting = [
        [clock_s - round(float(one), 3), *_job(size, unit_s, rng), one_of(names, rng)] for one in since_s
    ]
    running, free = [], size
    for _ in range(int(rng.integers(0, 8))):
        processors, left_s = _job(free, unit_s, rng)
        running.append([processors, clock_s + left_s, one_of(names, rng)])
        free -= processors
        if free < 1.0:
            break
    return {"waiting": waiting, "running": running, "users": users, "clock_s": clock_s}


def _job(size: float, unit_s: float, rng: np.random.Generator) -> tuple[float, float]:
    return max(1.0, float(np.floor(size * rng.random() ** 3))), some_run_s(unit_s, rng)


def _answering(exported: ExportedPolicy) -> partial[Answered]:
    return partial(_ordered, QueuePolicy(exported))


ORDERING_FORM = ServingForm(PROBLEM, "which waiting job of a queue starts next", _answering, _ordering)
"""Questions hold `waiting`, `running` and `users` by name, as lists of what their dataclasses hold, and `clock_s`."""
