"""Which jobs start, at the size of a large machine: the same ones as by asking the rule anew for every job."""

import numpy as np
import pytest

from offline_rl.runner import queue_rules
from offline_rl.runner.queue_descriptions import RunningJob, UserPast, WaitingJob
from offline_rl.runner.queue_starting import in_order_of_rule, parts_of, reservation, rule_inputs, starting

CLOCK_S = 1e6
NUMBERS = {"run_weight": 1.0, "width_weight": -0.5, "ageing": 0.3}
USERS = {"ann": UserPast(last_s=30.0, before_s=70.0), "bob": UserPast(last_s=5000.0, before_s=9000.0)}
RULES = [*queue_rules.SCORES, queue_rules.WEIGHTED]
ORDERS = [*queue_rules.BACKFILLING, queue_rules.BY_PREDICTED_RUN, queue_rules.BY_WEIGHTED]


def anew_for_every_job(setting, waiting, users):
    def following(left, _):
        jobs = rule_inputs([waiting[place] for place in left], users, CLOCK_S, setting)
        return int(np.argmin(queue_rules.places(setting, jobs)))

    return following


def reservation_end_by_end(needed, running, setting):
    """The first instant at which so many parts are free, from the sum over all that has ended by each of them."""
    ends_s = [max(one.expected_end_s, CLOCK_S) for one in running]
    free = parts_of(setting["processors"]) - sum(parts_of(one.processors) for one in running)
    for until_s in [CLOCK_S, *sorted(ends_s)]:
        ended = [
            parts_of(one.processors) for one, end_s in zip(running, ends_s, strict=True) if end_s <= until_s
        ]
        if free + sum(ended) >= needed:
            return free, until_s, free + sum(ended) - needed
    raise AssertionError


def made_queue(rng, num_waiting, num_running):
    """Jobs with many ties: of arrivals, of sizes and of ends."""
    arrivals_s = CLOCK_S - np.sort(rng.integers(0, 30, num_waiting))[::-1] * 60.0
    waiting = [
        WaitingJob(
            float(arrival_s),
            float(rng.choice([0.5, 1.0, 2.0, 4.0, 40.0])),
            float(rng.choice([60.0, 600.0, 3600.0])),
            (None, "ann", "bob")[rng.integers(3)],
            (None, 45.0)[rng.integers(2)],
        )
        for arrival_s in arrivals_s
    ]
    ends_s = CLOCK_S + rng.integers(-2, 20, num_running) * 60.0
    return waiting, [RunningJob(float(rng.choice([0.5, 1.0, 3.0])), float(end_s)) for end_s in ends_s]


@pytest.mark.parametrize("rule", RULES)
def test_the_same_jobs_start_as_by_asking_the_rule_anew_for_every_one(rule):
    rng, num_started = np.random.default_rng(RULES.index(rule)), 0
    for _ in range(60):
        waiting, running = made_queue(rng, int(rng.integers(0, 40)), int(rng.integers(0, 12)))
        predicts = bool(rng.integers(2))
        setting = {
            "processors": float(rng.choice([4.0, 16.0, 32.0])),
            "easy": bool(rng.integers(4)),
            "rule": rule,
            "backfill": str(rng.choice(ORDERS)),
            "numbers": NUMBERS,
            "predicts": predicts,
            "reserves": predicts,
        }
        asked = waiting, running, USERS, CLOCK_S
        found = starting(setting, in_order_of_rule(setting, waiting, USERS, CLOCK_S), *asked)
        assert found == starting(setting, anew_for_every_job(setting, waiting, USERS), *asked)
        num_started += len(found)
    assert num_started > 200


def test_a_reservation_is_at_the_first_end_that_gives_back_enough():
    rng = np.random.default_rng(0)
    for _ in range(300):
        _, running = made_queue(rng, 0, int(rng.integers(0, 15)))
        setting = {"processors": sum(one.processors for one in running) + float(rng.integers(0, 3)) + 0.5}
        needed = int(rng.integers(1, parts_of(setting["processors"]) + 1))
        assert reservation(needed, running, CLOCK_S, setting) == reservation_end_by_end(
            needed, running, setting
        )


def test_the_rule_sorts_the_jobs_once(monkeypatch):
    setting = {"processors": 100.0, "easy": True, "rule": "fcfs", "backfill": "by_arrival"}
    waiting = [WaitingJob(1000.0 + one, 1.0, 1.0) for one in range(80)]
    running = [RunningJob(1.0, CLOCK_S + 1.0 + one) for one in range(50)]
    places, asked = queue_rules.places, []
    monkeypatch.setattr(queue_rules, "places", lambda *given: asked.append(given) or places(*given))
    found = starting(setting, in_order_of_rule(setting, waiting, {}, CLOCK_S), waiting, running, {}, CLOCK_S)
    assert found == list(range(50))
    assert len(asked) == 1
