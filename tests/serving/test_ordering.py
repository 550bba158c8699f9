"""`POST /order`: which waiting jobs start now, who says so, and what is kept between questions."""

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.contract import FeatureFacts, NetworkFacts, PolicyContract
from offline_rl.numpy_networks import numpy_network, wanted_shapes
from offline_rl.runner import QueuePolicy, RunningJob, WaitingJob
from offline_rl.runner.network import ExportedPolicy
from offline_rl.runner.queue_rules import BY_PREDICTED_RUN, WEIGHTED
from offline_rl.serving import ordering, server, worker
from offline_rl.serving.app import App
from offline_rl.serving.config import ServerConfig, ServiceConfig
from offline_rl.serving.errors import ServingError
from offline_rl.serving.policies import OF_PROBLEM, BundleSource, ServedPolicy
from offline_rl.serving.server import load_served
from tests.serving.making import asked, call, made_policy, made_service, metric

SETTING = {
    "processors": 4.0, "easy": True, "num_visible": 8, "queue_size": 8, "running_size": 8, "tick_s": 1.0,
    "time_unit_s": 60.0, "slowdown_floor_s": 10.0, "rule": WEIGHTED, "rule_origin_s": 0.0, "predicts": True,
    "numbers": {"run_weight": 1.0, "width_weight": 0.0, "ageing": 1e-6}, "reserves": True, "corrections_s": [60.0],
    "backfill": BY_PREDICTED_RUN, "fallback": {"rule": "fcfs", "backfill": "by_arrival", "easy": True},
}  # fmt: skip


def queue_policy(network=None, **setting):
    """Shortest predicted run first on four processors; or what `network` answers."""
    contract = PolicyContract(
        "ordering",
        (FeatureFacts("rule_place", "share"),),
        (FeatureFacts("free", "share"),),
        tuple(f"place {place}" for place in range(8)),
        NetworkFacts("scorer", (1,), identity=False),
        "",
        setting=SETTING | setting,
    )
    arrays = {name: np.zeros(shape, np.float32) for name, shape in wanted_shapes(contract).items()}
    arrays["choice/kernel"][:], arrays["choice/bias"][:], arrays["score/kernel"][:] = -1.0, 8.0, 1.0
    return QueuePolicy(ExportedPolicy(contract, "made", network or numpy_network(arrays, contract)))


def app_of(policy, **settings):
    served = ServedPolicy("made", (), lambda known, clock_s: None, queue=policy)
    return App(made_service(served, ServiceConfig(**{"deadline_s": 5.0} | settings)))


def job(name, arrival, processors=3, requested_s=3600, user=None):
    return {
        "job": name,
        "arrival": arrival,
        "processors": processors,
        "requested_s": requested_s,
        "user": user,
    }


def question(waiting, running=(), ended=(), clock=100):
    return {"waiting": waiting, "running": list(running), "ended": list(ended), "clock": clock}


def test_a_user_s_last_two_runs_put_the_job_first_and_are_kept_from_question_to_question():
    app = app_of(queue_policy())
    waiting = [job("long", 10, user="bob"), job("short", 20, user="ann")]
    full = [{"job": "now", "processors": 4, "started": 0, "requested_s": 500}]
    ended = [{"user": "ann", "run_s": run_s, "requested_s": 3600} for run_s in (30, 50)]
    assert asked(app, "/order", question(waiting[:1], full, ended, clock=15))[1]["start"] == []
    status, answer = asked(app, "/order", question(waiting, ()))
    assert (status, answer["start"], answer["arm"]) == (200, ["short"], "policy")
    assert answer["predicted_s"] == {"long": 3600.0, "short": 40.0}
    # who runs longer than predicted holds the head back by one correction, and a narrow job fills the gap before it
    running = [{"job": "short", "processors": 3, "started": 100, "requested_s": 3600, "user": "ann"}]
    later = [waiting[0], job("narrow", 130, 1, 55), job("too long", 131, 1, 600)]
    assert asked(app, "/order", question(later, running, clock=141))[1]["start"] == ["narrow"]


def test_the_rule_answers_where_the_policy_fails_or_is_late(capsys):
    def fail(*_):
        raise RuntimeError("broken")

    def sleep(choices, *_):
        time.sleep(0.3)
        return choices[..., 0]

    waiting = [job("first", 10, 4), job("second", 20, 4, 60)]
    for network, settings in ((fail, {}), (sleep, {"deadline_s": 0.05})):
        answer = asked(app_of(queue_policy(network), **settings), "/order", question(waiting))[1]
        assert (answer["start"], answer["arm"], answer["policy_start"]) == (["first"], "rule", None)
    assert "the rule answers: RuntimeError" in capsys.readouterr().err


def test_another_kind_of_error_is_said_although_one_was_said_before(capsys):
    errors = [RuntimeError("one"), RuntimeError("two"), MemoryError("three")]

    def fail(*_):
        raise errors.pop(0)

    app = app_of(queue_policy(fail))
    for _ in range(3):
        asked(app, "/order", question([job("first", 10, 4)]))
    said = capsys.readouterr().err.splitlines()
    failed = "schedtwin serve: the policy failed, the rule answers"
    assert said == [f"{failed}: RuntimeError: one", f"{failed}: MemoryError: three"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (question([job("a", 10), job("a", 20)]), "stands twice"),
        (
            question([job("a", 10)], [{"job": "a", "processors": 1, "started": 0, "requested_s": 9}]),
            "both waits and runs",
        ),
        (
            question([], [{"job": "wide", "processors": 5, "started": 0, "requested_s": 9}]),
            "running job 'wide' is larger",
        ),
        (question([job("a", 10, processors=0)]), "cannot be used"),
        (question([job("a", None)]), "an instant"),
        (question([job("b", 50), job("a", 10)]), "in order of arrival"),
        (question([job("a", 500)]), "has not arrived"),
        (question([job("a", 10) | {"colour": 1}]), "unknown keys"),
        (question([], ended=[{"run_s": 1, "requested_s": 2}]), "whose job"),
        ([], "JSON object"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_of_it_is_remembered(content, said):
    app = app_of(queue_policy())
    ended = [{"user": "ann", "run_s": 30, "requested_s": 3600}] * 2
    if isinstance(content, dict) and not content["ended"]:
        content = content | {"ended": ended}
    status, answer = asked(app, "/order", content)
    assert status == 400
    assert said in answer["error"]
    told = asked(app, "/order", question([job("new", 20, user="ann")]))[1]
    assert told["predicted_s"] == {"new": 3600.0}


def test_a_name_that_stands_twice_in_a_long_queue_is_found_soon():
    jobs = [job(f"a job of some name {number}", 10) for number in range(10_000)]
    jobs[-1]["job"] = jobs[0]["job"]
    begun_s = time.monotonic()
    assert "stands twice" in asked(app_of(queue_policy()), "/order", question(jobs))[1]["error"]
    assert (
        time.monotonic() - begun_s < 3.0
    )  # other endpoints wait meanwhile; compared with each other it took eight


def test_every_door_is_of_one_problem(monkeypatch):
    assert asked(App(made_service(made_policy())), "/order", question([]))[0] == 404
    app = app_of(queue_policy())
    status, answer = asked(app, "/decide", {})
    assert status == 404
    assert "/order" in answer["error"]
    assert "/decide" not in answer["error"]
    monkeypatch.setattr(ordering, "MAX_JOBS", 1)
    assert asked(app, "/order", question([job("a", 1), job("b", 2)]))[0] == 400


def test_users_beyond_a_number_are_forgotten_the_longest_ago_first(monkeypatch):
    monkeypatch.setattr(ordering, "MAX_USERS", 1)
    app = app_of(queue_policy())
    ended = [{"user": user, "run_s": 30, "requested_s": 60} for user in ("ann", "ann", "bob", "bob")]
    waiting = [job("a", 1, user="ann"), job("b", 2, user="bob")]
    assert asked(app, "/order", question(waiting, ended=ended))[1]["predicted_s"] == {"a": 3600.0, "b": 30.0}


def test_a_job_that_ended_within_the_second_counts_as_one_second():
    app = app_of(queue_policy())
    ended = [{"user": "ann", "run_s": 0, "requested_s": 60}] * 2
    status, answer = asked(app, "/order", question([job("a", 1, user="ann")], ended=ended))
    assert status == 200
    assert answer["predicted_s"] == {"a": 1.0}
    error = asked(app, "/order", question([job("a", 1, requested_s=0)]))[1]["error"]
    assert "1e-06 to 1e+12" in error


def test_in_shadow_the_rule_answers_and_what_the_policy_would_start_stands_beside():
    app, plain = app_of(queue_policy(), shadow=True), app_of(queue_policy())
    waiting = [job("first", 10, 4), job("second", 20, 4, 60)]
    answer = asked(app, "/order", question(waiting))[1]
    assert (answer["start"], answer["arm"], answer["policy_start"]) == (["first"], "rule", ["second"])
    asked(app, "/order", question(waiting[:1]))
    assert [metric(app.service, name) for name in ("compared_total", "disagreements_total")] == [2.0, 1.0]
    assert metric(app.service, 'decisions_total{arm="rule"}') == 2.0
    answer = asked(plain, "/order", question(waiting))[1]
    assert (answer["start"], answer["arm"], answer["policy_start"]) == (["second"], "policy", ["second"])


def test_a_canary_gives_the_policy_its_share_of_the_questions_drawn_by_the_seed():
    waiting = [job("first", 10, 4), job("second", 20, 4, 60)]

    def arms(app, num_questions):
        answers = [asked(app, "/order", question(waiting))[1] for _ in range(num_questions)]
        assert all(one["start"] == (["second"] if one["arm"] == "policy" else ["first"]) for one in answers)
        return [one["arm"] for one in answers]

    drawn = arms(app_of(queue_policy(), canary=0.25, seed=1), 40)
    assert 4 <= drawn.count("policy") <= 16
    assert arms(app_of(queue_policy(), canary=0.25, seed=1), 20) == drawn[:20]
    assert set(arms(app_of(queue_policy(), canary=0.0), 5)) == {"rule"}


@pytest.mark.parametrize(
    ("asked_for", "said"),
    [
        ({"log": "decisions"}, "--log decisions"),
        ({"service": ServiceConfig(explore=0.1)}, "--explore 0.1"),
        ({"service": ServiceConfig(fallback="any")}, "--fallback"),
    ],
)
def test_a_queue_s_bundle_is_not_served_with_what_would_be_ignored(asked_for, said, monkeypatch, tmp_path):
    served = ServedPolicy("made", (), lambda known, clock_s: None, queue=queue_policy())
    monkeypatch.setattr(server, "load_policy", lambda *_, **__: served)
    for service in (ServiceConfig(shadow=True), ServiceConfig(canary=0.5)):
        assert load_served(ServerConfig(tmp_path, service=service)) is served
    with pytest.raises(ServingError, match=said) as refused:
        load_served(ServerConfig(tmp_path, **asked_for))
    assert "--shadow, --canary" in str(refused.value)
    monkeypatch.setattr(server, "load_policy", lambda *_, **__: made_policy())
    load_served(ServerConfig(tmp_path, **asked_for))


def test_no_job_is_predicted_to_run_longer_than_it_asks_for():
    app = app_of(queue_policy())
    ended = [{"user": "ann", "run_s": 3000, "requested_s": 3600}] * 2
    told = [asked(app, "/order", question([job("a", 1, 3, asks, "ann")], ended=ended)) for asks in (3600, 60)]
    assert [answer["predicted_s"] for _, answer in told] == [{"a": 3000.0}, {"a": 60.0}]
    # what a caller says of a job that waits or runs is bounded as well
    policy = queue_policy()
    assert policy.expected_end_s(0.0, 3000.0, 60.0, 10.0) == 60.0
    head, narrow = WaitingJob(0.0, 4.0, 600.0), WaitingJob(1.0, 1.0, 55.0, predicted_s=3000.0)
    running = [RunningJob(3.0, 100.0)]
    assert policy.starting([head, narrow], running, {}, 20.0) == [1]


def test_where_nothing_is_predicted_a_job_is_ordered_by_what_it_asks_for_now():
    apps = app_of(queue_policy(predicts=False)), app_of(queue_policy())
    asks = [[job("a", 10, 3, requested_s), job("b", 20, 3, 600)] for requested_s in (60, 3600)]
    said = [[asked(app, "/order", question(waiting))[1] for waiting in asks] for app in apps]
    assert [one["start"] for one in said[0]] == [["a"], ["b"]]
    assert [one["predicted_s"]["a"] for one in said[0]] == [60.0, 3600.0]
    assert [one["predicted_s"]["a"] for one in said[1]] == [60.0, 60.0]  # a prediction is kept


@pytest.mark.parametrize(
    "setting",
    [
        {"backfill": "by_moon"},
        {"fallback": {"rule": "fcfs", "backfill": "by_moon"}},
        {"fallback": {"rule": "moon", "backfill": "by_arrival"}},
    ],
)
def test_orders_that_are_unknown_are_refused_before_a_queue_needs_them(setting):
    with pytest.raises(ProductError, match=r"unknown here: '(by_)?moon'"):
        queue_policy(**setting)


def test_a_bundle_of_slots_is_refused_with_what_runs_it(tmp_path):
    source = BundleSource(tmp_path, "numpy", None, None, None)
    contract = replace(queue_policy().policy.contract, problem="orchestration")
    with pytest.raises(
        ProductError, match=r"(?s)of the problem 'orchestration'.*schedtwin orchestrate runs this one"
    ):
        OF_PROBLEM[contract.problem](ExportedPolicy(contract, "made", lambda *_: None), source)


def test_a_shadow_is_no_canary():
    with pytest.raises(ServingError, match=r"(?s)a shadow answers no request.*--shadow, --canary 0\.5"):
        ServiceConfig(shadow=True, canary=0.5)
    assert (ServiceConfig(shadow=True).share, ServiceConfig(canary=0.5).share) == (0.0, 0.5)


def test_a_job_larger_than_the_machine_is_named_and_keeps_nobody_waiting():
    app = app_of(queue_policy())
    waiting = [job("huge", 10, 5, 10), job("fits", 20, 4, 60), job("vast", 30, 4.5, 10)]
    answer = asked(app, "/order", question(waiting))[1]
    assert (answer["start"], answer["too_large"]) == (["fits"], ["huge", "vast"])
    assert asked(app, "/order", question(waiting[1:2]))[1]["too_large"] == []


def test_other_endpoints_are_answered_while_the_rule_looks_at_the_queue(monkeypatch):
    looked = []

    def look(*_):
        time.sleep(0.3)
        looked.append("at all of it")
        return [0]

    policy = queue_policy()
    monkeypatch.setattr(policy, "starting_by_rule", look)
    app = app_of(policy)

    async def both():
        asking = asyncio.create_task(call(app, "/order", question([job("first", 10)])))
        await asyncio.sleep(0.05)
        assert (await call(app, "/healthz", method="GET"))[0] == 200
        assert not looked
        return await asking

    status, answer = asyncio.run(both())
    assert (status, answer["start"]) == (200, ["first"])


def test_a_policy_that_hung_is_asked_again_after_a_pause(monkeypatch, capsys):
    monkeypatch.setattr(worker, "RETRY_S", 0.2)
    release, questions = threading.Event(), []

    def hang_once(choices, *_):
        questions.append(len(questions))
        if len(questions) == 1:
            release.wait(20)
        return -choices[..., 0]

    app = app_of(queue_policy(hang_once), deadline_s=0.05)
    waiting = question([job("first", 10, 4), job("second", 20, 4, 60)])
    answers = [asked(app, "/order", waiting)[1] for _ in range(2)]
    assert [one["arm"] for one in answers] == ["rule", "rule"]
    time.sleep(0.25)
    assert asked(app, "/order", waiting)[1]["arm"] == "policy"
    assert metric(app.service, "policy_hangs_total") == 1.0
    assert "asked in another thread" in capsys.readouterr().err
    release.set()
