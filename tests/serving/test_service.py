"""Decisions whatever becomes of the policy: slow, hung, raising, replaced, blind; in shadow and as a canary."""

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.contract import EXPECTED_ON_TIME, AlarmFacts
from offline_rl.runner import Held, Request, load
from offline_rl.runner.loading import own_rule
from offline_rl.runner.watch import Watch
from offline_rl.serving.app import App
from offline_rl.serving.cluster import PATIENCE_S
from offline_rl.serving.config import ServiceConfig
from offline_rl.serving.loop_lag import BEAT_S, LoopLag
from offline_rl.serving.notices import AGAIN_S, Notices
from offline_rl.serving.plain import RequestEvent
from offline_rl.serving.policies import PolicySlot, load_policy
from offline_rl.serving.queries import PlacementQuery
from tests.serving.bundles import make_bundle
from tests.serving.making import NAMES, asked, made_policy, made_service, metric
from tests.serving.test_decision_log import lines_of

SHORT = ServiceConfig(deadline_s=0.05, seed=0)


def query(identity: str = "r", names=NAMES, **wanted) -> PlacementQuery:
    return PlacementQuery(identity, 1000.0, Request(**wanted), names)


def test_the_policy_answers():
    service = made_service()
    answer = asyncio.run(service.decide(query()))
    assert (answer.node, answer.arm, answer.reason, answer.scores) == ("node-3", "policy", "", [1, 3, 6, 10])


def test_a_request_that_is_asked_about_again_does_not_meet_itself(tmp_path):
    bundle = make_bundle(tmp_path / "bundle")
    service = made_service(lambda: load_policy(bundle))
    asyncio.run(service.decide(query("other", cpu_cores=4.0)))
    first, again = (asyncio.run(service.decide(query("same", cpu_cores=8.0))) for _ in range(2))
    assert (again.node, again.scores) == (first.node, first.scores)
    assert again.view.committed.sum() == 4.0
    service.filter(query("same", names=NAMES[:2], cpu_cores=64.0))  # it waits: no node can take it
    assert list(service.cluster.placements) == ["other"]


def test_a_policy_that_raises_is_replaced_by_the_fallback_and_counted(capsys):
    def fail(decision):
        raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION")

    service = made_service(made_policy(fail))
    for number in range(3):
        answer = asyncio.run(service.decide(query(f"r{number}")))
        assert (answer.arm, answer.reason) == ("fallback", "error")
        assert answer.node in NAMES
        assert max(answer.scores) == 10
    assert metric(service, 'fallbacks_total{reason="error"}') == 3
    assert capsys.readouterr().err.count("ONNXRuntimeError") == 1  # said once


def test_a_rule_answers_in_the_place_of_a_policy_that_fails_and_a_heuristic_in_the_place_of_a_rule(capsys):
    def fail(decision):
        raise RuntimeError("no answer")

    service = made_service(made_policy(fail, has_rule=True))
    answers = [asyncio.run(service.decide(query(f"r{number}"))) for number in range(3)]
    assert [(answer.node, answer.arm, answer.reason) for answer in answers] == [
        (NAMES[1], "fallback", "error")
    ] * 3
    stranger = asyncio.run(service.decide(query("s", names=("nobody-knows", "this-one"))))
    assert stranger.node in ("nobody-knows", "this-one")  # no node of the rule's is among the candidates
    service.cluster.rule_question = lambda query, now_s: fail(None)
    assert asyncio.run(service.decide(query("h"))).node in NAMES
    assert "the rule failed, a heuristic answers: RuntimeError" in capsys.readouterr().err


def test_a_rule_of_the_same_training_reads_the_policy_s_books_and_another_is_refused(tmp_path):
    network, rule = (
        make_bundle(tmp_path / "network"),
        make_bundle(tmp_path / "rule", rule=EXPECTED_ON_TIME, seed=1),
    )
    served = load_policy(network, rule=rule)
    assert served.has_rule
    books = served.open_books(served.nodes, 1000.0)
    for number in range(5):
        books.hold(f"held-{number}", "node-1", Held(cpu_cores=4.0, expected_run_s=60.0, arrival_s=990.0))
    request = Request(service="resize", site="zone-a", deadline_s=9.0, requested_run_s=5.0)
    own = load_policy(rule).open_books(served.nodes, 1000.0)
    for number in range(5):
        own.hold(f"held-{number}", "node-1", Held(cpu_cores=4.0, expected_run_s=60.0, arrival_s=990.0))
    expected = own.question(request, 1000.0)()
    np.testing.assert_array_equal(books.rule_question(request, 1000.0)().scores, expected.scores)
    assert not np.array_equal(books.question(request, 1000.0)().scores, expected.scores)
    with pytest.raises(ProductError, match="holds no rule"):
        load_policy(network, rule=network)
    with pytest.raises(ProductError, match="another training"):
        load_policy(network, rule=make_bundle(tmp_path / "other", rule=EXPECTED_ON_TIME, num_nodes=3))


def test_the_rule_that_a_bundle_holds_stands_in_for_its_policy_without_being_asked_for(tmp_path):
    served = load_policy(make_bundle(tmp_path / "network", stand_in=EXPECTED_ON_TIME))
    assert served.has_rule
    assert not load_policy(make_bundle(tmp_path / "plain")).has_rule
    rule = own_rule(load(tmp_path / "network"), tmp_path / "network")
    request = Request(service="resize", site="zone-a", deadline_s=9.0, requested_run_s=5.0)
    books, own = served.open_books(served.nodes, 1000.0), rule.ledger(served.nodes, 1000.0)
    found = books.rule_question(request, 1000.0)().scores
    np.testing.assert_array_equal(found, own.decide(request, 1000.0).scores)
    assert not np.array_equal(books.question(request, 1000.0)().scores, found)
    alone = load_policy(make_bundle(tmp_path / "rule", rule=EXPECTED_ON_TIME)).open_books(
        served.nodes, 1000.0
    )
    np.testing.assert_array_equal(
        alone.rule_question(request, 1000.0)().scores, alone.question(request, 1000.0)().scores
    )


def test_a_policy_that_is_slow_is_not_waited_for_and_one_that_hangs_is_not_asked():
    release = threading.Event()
    service = made_service(made_policy(lambda decision: release.wait(60) and decision), SHORT)

    async def live() -> list[str]:
        return [(await service.decide(query(f"a{number}"))).reason for number in range(30)]

    reasons = asyncio.run(live())
    num_late = reasons.count("deadline")  # one, or a few where the machine is too busy to begin at once
    assert 1 <= num_late <= 10
    assert reasons == ["deadline"] * num_late + ["busy"] * (30 - num_late)
    assert metric(service, 'fallbacks_total{reason="busy"}') == 30 - num_late
    service.slot.reload()  # a fresh thread
    release.set()
    tries = (asyncio.run(service.decide(query(f"c{number}"))).arm for number in range(100))
    assert "policy" in tries  # a busy machine may be late a few times


def test_a_server_that_is_behind_answers_by_the_fallback_and_says_so(tmp_path):
    asked_policy = []
    service = made_service(made_policy(lambda decision: asked_policy.append(1) or decision), log=tmp_path)
    service.loop_lag.lag_s = service.config.deadline_s + 0.01
    answer = asyncio.run(service.decide(query()))
    assert (answer.arm, answer.reason, answer.scores.count(10)) == ("fallback", "overload", 1)
    assert not asked_policy
    assert metric(service, 'fallbacks_total{reason="overload"}') == 1
    service.log.close()
    row = lines_of(tmp_path / "decisions")[0].split(",")
    assert (row[4], row[6], float(row[7])) == ("overload", answer.node, 0.25)


def test_a_row_of_pauses_is_an_overload_and_one_pause_is_none():
    loop_lag = LoopLag()
    lags = []
    for late_s in (0.1, *[0.0] * 20, *[0.1] * 10, *[-0.001] * 20):
        loop_lag.look(late_s)
        lags.append(loop_lag.lag_s)
    assert max(lags[:21]) < 0.05 < lags[30]
    assert 0.0 <= lags[-1] < 0.01


def test_the_lag_is_that_of_the_running_loop():
    loop_lag = LoopLag()

    async def live() -> float:
        loop_lag.start()
        for _ in range(3):
            await asyncio.sleep(BEAT_S / 2)
            time.sleep(0.1)  # the loop is held up
        await asyncio.sleep(0)
        loop_lag.stop()
        return loop_lag.lag_s

    assert asyncio.run(live()) > 0.01


def test_a_policy_that_knows_no_candidate_leaves_it_to_the_fallback():
    service = made_service()
    answer = asyncio.run(service.decide(query(names=("x", "y"))))
    assert (answer.arm, answer.reason) == ("fallback", "no_known_node")
    assert answer.node in ("x", "y")
    assert metric(service, "unknown_nodes_total") == 2
    mixed = asyncio.run(service.decide(query(names=("x", "node-1"))))
    assert (mixed.node, mixed.arm, mixed.scores) == ("node-1", "policy", [0, 10])


@pytest.mark.parametrize("names", [(), ("node-0",)])
def test_no_node_and_no_feasible_node_are_answers(names, tmp_path):
    service = made_service(log=tmp_path)
    answer = asyncio.run(service.decide(query(names=names, cpu_cores=99.0)))
    assert (answer.node, answer.scores, answer.reason) == (None, [0] * len(names), "nothing_feasible")
    assert metric(service, "nothing_feasible_total") == 1
    assert service.cluster.placements == {}
    service.log.close()
    assert lines_of(tmp_path / "requests")[0].startswith("r,1000.000000,zone-a,")


def test_in_shadow_the_fallback_answers_and_the_policy_is_written_down(tmp_path):
    service = made_service(config=ServiceConfig(shadow=True, seed=0), log=tmp_path)

    async def live() -> list:
        answers = [await service.decide(query(f"r{number}")) for number in range(10)]
        await service.drain()
        return answers

    answers = asyncio.run(live())
    service.log.close()
    assert {answer.arm for answer in answers} == {"fallback"}
    assert len({answer.node for answer in answers}) == 4  # least loaded: all of them in turn
    rows = [line.split(",") for line in lines_of(tmp_path / "decisions")]
    assert {row[5] for row in rows} == {"node-3"}  # policy_node
    assert [row[2] for row in rows] == [row[6] for row in rows]  # offered is the fallback's
    assert metric(service, "compared_total") == 10
    assert metric(service, "disagreements_total") == sum(answer.node != "node-3" for answer in answers)
    assert all(0.25 <= float(row[7]) <= 1.0 for row in rows)


def test_in_shadow_nobody_waits_for_the_policy():
    release = threading.Event()
    config = ServiceConfig(deadline_s=0.05, shadow=True, seed=0)
    service = made_service(made_policy(lambda decision: release.wait(30) and decision), config)
    assert asyncio.run(service.decide(query())).arm == "fallback"
    assert not release.is_set()
    release.set()


def test_a_canary_sends_its_share_to_the_policy():
    service = made_service(config=ServiceConfig(deadline_s=5.0, canary=0.25, seed=0))

    async def live() -> list[str]:
        return [(await service.decide(query(f"pod-{number}"))).arm for number in range(400)]

    arms = asyncio.run(live())
    assert 0.25 - 0.09 < arms.count("policy") / 400 < 0.25 + 0.09
    assert arms == asyncio.run(live())  # asked again, a request meets the same arm


def test_out_of_distribution_is_counted():
    def odd(decision):
        return type(decision)(decision.node, decision.nodes, decision.scores, decision.legal, 3, 2)

    service = made_service(made_policy(odd))
    asyncio.run(service.decide(query()))
    assert metric(service, "out_of_distribution_total") == 1
    assert metric(service, "unknown_labels_total") == 2


def test_a_pod_with_one_node_left_is_taken_to_go_there():
    service = made_service()
    service.filter(query("a", names=("node-0", "node-1")))
    assert service.cluster.placements == {}
    service.filter(query("b", names=("node-1",)))
    assert service.cluster.placements["b"].node == "node-1"


def test_a_reload_that_fails_keeps_the_policy_in_use():
    loads = iter([made_policy(content_hash="one"), None, made_policy(content_hash="two")])

    def load():
        policy = next(loads)
        if policy is None:
            raise ProductError("the exported policy does not decide as the original")
        return policy

    service = made_service(load)
    with pytest.raises(ProductError):
        service.slot.reload()
    assert service.slot.policy.content_hash == "one"
    assert asyncio.run(service.decide(query())).arm == "policy"
    service.slot.reload()
    assert asyncio.run(service.decide(query("s"))).arm == "policy"
    assert service.slot.policy.content_hash == "two"
    text = service.metrics.text().decode()
    assert 'schedtwin_reloads_total{outcome="refused"} 1.0' in text
    assert 'schedtwin_bundle{content_hash="one"} 0.0' in text
    assert 'schedtwin_bundle{content_hash="two"} 1.0' in text


def test_the_alarm_stands_in_the_metrics_and_is_said_once(capsys):
    facts = AlarmFacts(0.01, (-0.1, 3.0), 5.0, (-0.5, 0.5), (-1.0, -0.5, 2.0), (2.0, -0.5, -1.0), 5.0)
    policies = [replace(made_policy(), watch=Watch(facts)), made_policy()]
    service = made_service(lambda: policies.pop(0), ServiceConfig(deadline_s=5.0, seed=0, shadow=True))
    assert metric(service, 'alarm{kind="slower"}') == 0.0
    for _ in range(3):
        service.slot.policy.watch.ran("node-2", 2.0)

    async def ask_twice():
        for name in "ab":
            await service.decide(query(name))
        await service.drain()

    asyncio.run(ask_twice())
    assert metric(service, 'alarm{kind="slower"}') == 1.2
    assert capsys.readouterr().err.count("alarm: runs on node-2 take much longer than in training") == 1
    service.slot.reload()
    assert asyncio.run(service.decide(query("c"))).arm == "fallback"
    assert metric(service, 'alarm{kind="slower"}') == 0.0


def test_errors_without_number_do_not_silence_an_alarm_and_are_said_once_in_a_while(capsys):
    texts = iter(range(1000))

    def fail(decision):
        raise RuntimeError(f"cannot score request {next(texts)}")

    service, now = made_service(made_policy(fail)), [0.0]
    service._errors, service._alarms = Notices(lambda: now[0]), Notices(lambda: now[0])
    for number in range(150):
        asyncio.run(service.decide(query(f"r{number}")))
    now[0] = AGAIN_S
    asyncio.run(service.decide(query("later")))
    for alarms in (["slow"], ["slow"], ["slow", "unlike"], [], ["slow"]):
        service._say_alarms(frozenset(alarms))
        now[0] += AGAIN_S
    said = [line.removeprefix("schedtwin serve: ") for line in capsys.readouterr().err.splitlines()]
    failed = "the policy failed, the fallback answers: RuntimeError: cannot score request"
    assert said == [
        f"{failed} 0",
        f"{failed} 150 (149 times more since the last such line)",
        "alarm: slow",
        "alarm: unlike",
        "alarm: slow",
    ]


def test_what_is_in_flight_is_counted_as_it_is_when_it_is_read():
    now = [1000.0]
    app = App(made_service(clock=lambda: now[0]))
    for number in range(5):
        asyncio.run(app.service.decide(query(f"r{number}")))
    assert metric(app.service, "in_flight") == 5
    app.service.report([RequestEvent("r0", 1001.0, None, "completed")])
    assert metric(app.service, "in_flight") == 4
    now[0] += PATIENCE_S
    text = asked(app, "/metrics", method="GET")[1]
    assert "schedtwin_in_flight 0.0" in text
    assert "schedtwin_assumed_finishes_total 4.0" in text
    asyncio.run(app.service.decide(query("last")))
    now[0] += PATIENCE_S
    app.service.report([RequestEvent("nobody", now[0], None, "completed")])
    assert metric(app.service, "in_flight") == 0


def test_policies_are_swapped_under_load_and_no_question_is_lost():
    service = made_service(lambda: made_policy(), ServiceConfig(deadline_s=10.0, seed=0))

    async def live() -> list:
        answers = []
        for turn in range(10):
            asked = [service.decide(query(f"r{turn}-{number}")) for number in range(10)]
            swap = asyncio.to_thread(service.slot.reload)
            *some, _ = await asyncio.gather(*asked, swap)
            answers += some
        return answers

    answers = asyncio.run(live())
    assert [answer.arm for answer in answers] == ["policy"] * 100
    assert len(service.cluster.placements) == 100


def test_a_bundle_that_never_could_be_loaded_is_refused_at_the_start():
    from offline_rl.serving.metrics import Metrics

    def load():
        raise ProductError("no bundle here")

    with pytest.raises(ProductError):
        PolicySlot(load, Metrics())


@pytest.mark.parametrize("num_bursts", [3])
def test_a_crowd_of_questions_is_answered(num_bursts):
    service = made_service()

    async def burst(number: int) -> list:
        return await asyncio.gather(*(service.decide(query(f"{number}-{index}")) for index in range(300)))

    for number in range(num_bursts):
        answers = asyncio.run(burst(number))
        # By the policy, or where too many wait by the fallback
        assert all(answer.node in NAMES for answer in answers)
