"""Books of a runner: what they hold, what they learn from runs that end, and what they say of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from offline_rl.contract import AlarmFacts
from offline_rl.errors import PolicyInputError
from offline_rl.runner import Held, Node, Policy, load, load_network
from offline_rl.serving.policies import LedgerBooks
from tests.offline_rl.bundles import STARTUP_S
from tests.offline_rl.runner_questions import NOW_S, REQUEST, nodes_of


def test_books_forget_what_left_and_ignore_strangers(policy):
    ledger = policy.ledger(nodes_of(policy))
    before = ledger.load(NOW_S).copy()
    for number in range(300):  # more than the books begin with
        ledger.place(number, policy.contract.choices[number % 4], REQUEST, NOW_S)
        if number % 3:
            assert ledger.start(number, NOW_S + 1.0)
    assert ledger.load(NOW_S + 1.0).sum() > before.sum()
    for number in range(300):
        assert ledger.finish(number)
    assert not ledger.finish(7)
    assert not ledger.start(7, NOW_S)
    left = ledger.load(NOW_S + 1e6)  # the memory of waits has faded
    np.testing.assert_array_equal(left[:8], np.where(np.isfinite(before[:8]), before[:8], left[:8]))
    assert left[8:].max() < 1e-6
    ledger.place("lost", "stranger", REQUEST, NOW_S)
    assert ledger.start("lost", NOW_S)
    np.testing.assert_array_equal(ledger.load(NOW_S + 1e6), left)
    assert ledger.finish("lost")
    ledger.place("twice", "edge-0", REQUEST, NOW_S)
    with pytest.raises(PolicyInputError, match="in flight already"):
        ledger.place("twice", "edge-1", REQUEST, NOW_S)
    with pytest.raises(PolicyInputError, match="cannot be like this"):
        ledger.place("odd", "edge-1", replace(REQUEST, requested_run_s=math.nan), NOW_S)
    for never in (math.nan, math.inf):
        with pytest.raises(PolicyInputError, match="at_s"):
            ledger.start("twice", never)
        with pytest.raises(PolicyInputError, match="ran_until_s"):
            ledger.finish("twice", never)
    assert ledger.start("twice", NOW_S)  # nothing of that has counted
    assert np.isfinite(ledger.decide(REQUEST, NOW_S).scores).all()
    ledger.set_available("edge-0", False)
    assert not ledger.decide(REQUEST, NOW_S).legal[0]


def test_books_refuse_requests_and_clocks_of_other_types_by_name_and_stay_as_they_were(policy):
    books, before = policy.ledger(nodes_of(policy), NOW_S), policy.ledger(nodes_of(policy), NOW_S)
    for request, clock_s, message in (
        (replace(REQUEST, cpu_cores="2"), NOW_S, "cpu_cores: '2'"),
        (replace(REQUEST, service=["a"]), NOW_S, "service: "),
        (REQUEST, "now", "clock_s is no number"),
        (REQUEST, None, "clock_s is no number"),
        (REQUEST, math.nan, "clock_s nan"),
    ):
        for ask in (books.decide, books.explain):
            with pytest.raises(PolicyInputError, match=message):
                ask(request, clock_s)
    np.testing.assert_array_equal(books.load(NOW_S), before.load(NOW_S))


def test_books_learn_run_times_of_nodes_from_runs_that_end(policy):
    """Each run moves the logarithm of what is expected on its node by a gain, of an innovation that is cut."""
    ledger, other = policy.ledger(nodes_of(policy)), policy.ledger(nodes_of(policy))
    usual, moving = policy.setting.nodes[0].run_ratio[1], policy.setting.dynamics

    def mean_run_s(books, node="edge-0", request=REQUEST):
        return 2.0 * math.expm1(books.explain(request, NOW_S).features[node]["usual_run"])

    level, variance = 0.0, moving.node_variance
    for number, run_s in enumerate((30.0, 31.0, 20.0 * usual * math.exp(9.0), 1e-3)):
        ledger.place(number, "edge-0", REQUEST, NOW_S)
        ledger.start(number, NOW_S + 1.0)
        ledger.finish(number, NOW_S + 1.0 + run_s)
        most, gain = 2.0 * math.sqrt(variance + moving.scatter), variance / (variance + moving.scatter)
        innovation = max(min(math.log(run_s / (20.0 * usual)) - level, most), -most) - moving.offset
        level, variance = level + gain * innovation, variance * (1.0 - gain)
        assert mean_run_s(ledger) == pytest.approx(20.0 * usual * math.exp(level), rel=1e-5)
    for number, end in ((8, None), (9, NOW_S)):  # not seen to end, never started
        ledger.place(number, "edge-0", REQUEST, NOW_S)
        if end is None:
            ledger.start(number, NOW_S)
        ledger.finish(number, end)
    assert mean_run_s(ledger) == pytest.approx(20.0 * usual * math.exp(level), rel=1e-5)
    elsewhere = replace(REQUEST, service="service-2")
    assert mean_run_s(ledger, "edge-1") == mean_run_s(other, "edge-1")
    moved = mean_run_s(ledger, request=elsewhere) / mean_run_s(other, request=elsewhere)
    assert moved == pytest.approx(math.exp(level), rel=1e-5)  # of whatever service
    assert mean_run_s(other) == pytest.approx(20.0 * usual, rel=1e-5)  # books learn for themselves
    other.remember(ledger)
    assert mean_run_s(other) == pytest.approx(mean_run_s(ledger), rel=1e-6)


def test_books_count_the_start_up_of_a_service_that_did_not_run_lately(bundles):
    policy = load(bundles / "cold")
    ledger, ratio = policy.ledger(nodes_of(policy)), policy.setting.nodes[0].run_ratio[1]

    def shown(clock_s, feature="usual_run", node="edge-0", books=ledger, request=REQUEST):
        return 2.0 * math.expm1(books.explain(request, clock_s).features[node][feature])

    assert shown(NOW_S) == pytest.approx(20.0 * ratio, rel=1e-5)  # as if it had run until now
    later_s = NOW_S + 4_000.0
    assert shown(later_s) == pytest.approx(20.0 * ratio + STARTUP_S, rel=1e-5)
    assert shown(later_s, request=replace(REQUEST, requested_run_s=0.0)) == 0.0  # no run, no start-up
    ledger.place(1, "edge-0", REQUEST, later_s)
    filed_s = 20.0 + STARTUP_S / ratio
    assert shown(later_s, "backlog") == pytest.approx(filed_s * REQUEST.cpu_cores / 4.0, rel=1e-5)
    end_s = later_s + 20.0 * ratio
    for idle_s, share in ((0.0, 0.0), (20.0, 1 / 17), (40.0, 0.5), (80.0, 16 / 17)):
        assert shown(end_s + idle_s) == pytest.approx(20.0 * ratio + share * STARTUP_S, rel=1e-5)
    assert shown(end_s, node="edge-1") == pytest.approx(
        20.0 * policy.setting.nodes[1].run_ratio[1] + STARTUP_S, rel=1e-3
    )
    ledger.start(1, later_s)
    # As long as it should: nothing is learned of the node but its offset
    ledger.finish(1, later_s + filed_s * ratio)
    assert abs(math.log(shown(end_s) / (20.0 * ratio))) < 0.05
    # Whether a first run starts cold is not known: nothing is learned of it
    unsure = policy.ledger(nodes_of(policy))
    before = shown(NOW_S, books=unsure)
    unsure.place(1, "edge-0", REQUEST, NOW_S)
    unsure.start(1, NOW_S)
    unsure.finish(1, NOW_S + 20.0 * ratio + STARTUP_S)
    assert shown(NOW_S, books=unsure) == before
    other = policy.ledger(nodes_of(policy))
    other.remember(ledger)
    assert shown(end_s, books=other) == pytest.approx(shown(end_s), rel=1e-5)
    assert shown(end_s, books=other, node="edge-1") == pytest.approx(shown(end_s, node="edge-1"), rel=1e-5)
    before = shown(end_s, node="cloud")
    ledger.place(2, "cloud", REQUEST, end_s)
    assert shown(end_s, node="cloud") < before
    ledger.finish(2, refused=True)  # it never ran there
    assert shown(end_s, node="cloud") == pytest.approx(before, rel=1e-5)
    found = Node("edge-0", held=[Held(NOW_S, NOW_S, 20.0, "service-1", 2.0)])
    backlog = (
        policy.ledger([found, *nodes_of(policy)[1:]]).explain(REQUEST, NOW_S).features["edge-0"]["backlog"]
    )
    assert backlog == pytest.approx(math.log1p(10.0 / 2.0), rel=1e-5)  # what was found there has started


def test_what_books_learn_is_judged_against_what_training_knew(policy):
    ledger = policy.ledger(nodes_of(policy))
    adapting = ("usual_run", "core_time", "slack")

    def told():
        found = ledger.explain(REQUEST, NOW_S)
        outside = {one.feature: one.value for one in found.out_of_range if one.node == "edge-0"}
        return [found.features["edge-0"][name] for name in adapting], [outside.get(name) for name in adapting]

    seen, outside = told()
    assert seen[0] == pytest.approx(outside[0])  # above 1, the end of its range
    for number in range(30):
        ledger.place(number, "edge-0", REQUEST, NOW_S)
        ledger.start(number, NOW_S)
        ledger.finish(number, NOW_S + 400.0)
    learned, still = told()
    assert learned[0] > seen[0] + 0.5
    assert still == pytest.approx(outside, nan_ok=True)


def test_books_tell_their_watch_of_requests_and_runs(bundles):
    expected = AlarmFacts(0.01, (-0.1, 3.0), 5.0, (-0.5, 0.5), (-1.0, -0.5, 2.0), (2.0, -0.5, -1.0), 5.0)
    exported = load_network(bundles / "free")
    policy = Policy(replace(exported, contract=replace(exported.contract, alarm=expected)))
    ledger, usual = policy.ledger(nodes_of(policy)), policy.setting.nodes[0].run_ratio[1]
    assert not ledger.decide(
        replace(REQUEST, cpu_cores=1.0, requested_run_s=1.0, deadline_s=1.0), NOW_S
    ).unlike
    assert ledger.watch.levels()["unlike"] == 0.0
    for number in range(3):
        ledger.place(number, "edge-0", REQUEST, NOW_S)
        ledger.start(number, NOW_S)
        ledger.finish(number, NOW_S + 2.0 * 20.0 * usual)
        assert ledger.decide(replace(REQUEST, service="never seen"), NOW_S).unlike
    assert ledger.watch.levels() == pytest.approx({"unlike": 9.0 / 5.0, "slower": 6.0 / 5.0, "faster": 0.0})
    assert any("edge-0 take much longer" in sentence for sentence in ledger.watch.alarms())
    books = policy.ledger([*nodes_of(policy), Node("new", cpu_cores=4.0)])
    for number in range(9):
        books.place(number, "new", REQUEST, NOW_S)
        books.start(number, NOW_S)
        books.finish(number, NOW_S + 4_000.0)
    assert books.watch.alarms() == ()  # training says nothing of it


def test_what_books_learn_later_does_not_change_a_question(policy):
    books = LedgerBooks(policy, nodes_of(policy), NOW_S)
    question = books.question(REQUEST, NOW_S)
    before = question().scores
    books.place(1, "edge-0", REQUEST, NOW_S)
    books.start(1, NOW_S)
    books.finish(1, NOW_S + 900.0)
    np.testing.assert_array_equal(question().scores, before)
    assert not np.array_equal(books.question(REQUEST, NOW_S)().scores, before)


def test_bundles_that_say_nothing_of_it_do_not_learn(free):
    setting = replace(free.setting, dynamics=None)
    policy = Policy(free.exported)
    policy.setting = setting
    ledger = policy.ledger(nodes_of(policy))
    before = ledger.explain(REQUEST, NOW_S).features
    ledger.place(1, "edge-0", REQUEST, NOW_S)
    ledger.start(1, NOW_S)
    ledger.finish(1, NOW_S + 500.0)
    after = ledger.explain(REQUEST, NOW_S).features
    assert after["edge-0"]["usual_run"] == before["edge-0"]["usual_run"]
