"""The server's books: what is held where, what is assumed where nobody reports, and the runner's own features."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from offline_rl.runner import Held, Node, Request, load
from offline_rl.serving import cluster as cluster_module
from offline_rl.serving import tallies
from offline_rl.serving.app import App
from offline_rl.serving.cluster import LOST_S, PATIENCE_S, LiveCluster
from offline_rl.serving.inventory import MAX_KINDS
from offline_rl.serving.placed import PlacedRequest
from offline_rl.serving.plain import RequestEvent
from offline_rl.serving.policies import load_policy
from offline_rl.serving.queries import PlacementQuery
from tests.serving.bundles import RUN_S, make_bundle
from tests.serving.making import NAMES, asked, made_policy, made_service, metric


def query(identity: str = "r", names=NAMES, **wanted) -> PlacementQuery:
    return PlacementQuery(identity, 0.0, Request(**wanted), names)


def placed(cluster: LiveCluster, identity: str, node: str, now_s: float, **wanted) -> PlacedRequest:
    placement = cluster.placement(
        query(identity, **wanted), cluster.view(query(identity, **wanted)), node, now_s
    )
    cluster.place(placement)
    return placement


def test_what_is_held_is_seen_and_an_older_decision_about_a_request_is_void():
    cluster = LiveCluster(made_policy())
    placed(cluster, "a", "node-1", 10.0, cpu_cores=4.0)
    placed(cluster, "b", "node-1", 11.0, cpu_cores=2.0)
    placed(cluster, "a", "node-2", 12.0, cpu_cores=4.0)
    view = cluster.view(query())
    assert view.committed.tolist() == [0.0, 2.0, 4.0, 0.0]
    assert view.num_held.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_where_nobody_reports_a_request_is_over_after_its_run_time():
    cluster = LiveCluster(made_policy())
    placed(cluster, "a", "node-1", 0.0, requested_run_s=10.0)
    placed(cluster, "b", "node-1", 0.0)  # the made policy expects 60 s
    assert (cluster.expire(9.9), cluster.expire(10.0), cluster.expire(59.0), cluster.expire(60.0)) == (
        0,
        1,
        0,
        1,
    )
    assert cluster.view(query()).num_held.sum() == 0.0


def test_where_starts_are_reported_a_request_waits_for_its_own_and_runs_until_its_end():
    cluster = LiveCluster(made_policy())
    placed(cluster, "a", "node-1", 0.0, requested_run_s=1.0)
    moved = cluster.report(RequestEvent("a", 5.0, "node-2", None))
    assert (moved.node, moved.offered, moved.start_s, moved.finish_s) == ("node-2", "node-1", 5.0, None)
    assert cluster.expire(LOST_S) == 0  # a start was reported, so will be the end
    ended = cluster.report(RequestEvent("a", 9.0, None, "completed"))
    assert (ended.node, ended.start_s, ended.finish_s) == ("node-2", 5.0, 9.0)
    assert cluster.report(RequestEvent("a", 9.0, None, "completed")) is None
    placed(cluster, "b", "node-1", 10.0, requested_run_s=1.0)
    assert (cluster.expire(10.0 + PATIENCE_S - 1), cluster.expire(10.0 + PATIENCE_S)) == (0, 1)


@pytest.mark.parametrize(
    ("status", "start_s", "finish_s"), [("rejected", None, None), ("dropped", None, 7.0)]
)
def test_what_never_ran_has_no_start(status, start_s, finish_s):
    cluster = LiveCluster(made_policy())
    placed(cluster, "a", "node-1", 0.0)
    ended = cluster.report(RequestEvent("a", 7.0, None, status))
    assert (ended.start_s, ended.finish_s) == (start_s, finish_s)


def test_books_learn_from_runs_whose_end_was_seen_where_they_ran():
    made = []
    policy = made_policy()
    opened = replace(
        policy, open_books=lambda nodes, now_s: made.append(policy.open_books(nodes, now_s)) or made[-1]
    )
    cluster = LiveCluster(opened)
    cluster.question(query(), 0.0)
    placed(cluster, "assumed", "node-1", 0.0)  # nobody has reported a start, so far or later
    cluster.report(RequestEvent("assumed", 1.0, None, "completed"))
    for identity, told, status in (
        ("ran", None, "completed"),
        ("moved", "node-3", "failed"),
        ("lost", None, "dropped"),
        ("early", None, "completed"),
    ):
        placed(cluster, identity, "node-1", 0.0)
        cluster.report(RequestEvent(identity, 2.0, None, None))
        cluster.report(RequestEvent(identity, 1.0 if identity == "early" else 5.0, told, status))
    ends = [one for one in made[0].ended if one[1] is not None]
    assert ends == [("ran", 5.0)]
    # A new node: new books, which know what the old ones learned
    cluster.stock([Node("node-9", cpu_cores=4.0)])
    cluster.question(query(), 9.0)
    assert len(made) == 2
    assert made[1].older is made[0]
    cluster.use(made_policy(content_hash="another"))
    cluster.use(opened)
    cluster.question(query(), 10.0)
    assert made[-1].older is None


def test_events_before_the_decision_are_not_believed():
    cluster = LiveCluster(made_policy())
    placed(cluster, "a", "node-1", 100.0)
    ended = cluster.report(RequestEvent("a", 5.0, None, "completed"))
    # When it began is not known: no run of 0 s is logged
    assert (ended.start_s, ended.finish_s) == (None, 100.0)


def test_what_cannot_be_is_told_from_what_cannot_be_now():
    cluster = LiveCluster(made_policy())
    nodes = [Node("node-0", available=False), Node("node-1", cpu_cores=2.0), Node("big", memory_gib=1000.0)]
    cluster.stock([*nodes, Node("node-2"), Node("node-3")])
    asked = query(names=(*NAMES, "big", "stranger"), cpu_cores=4.0, memory_gib=80.0)
    view = cluster.view(asked)
    assert set(view.failed) == {"node-0"}
    assert set(view.unresolvable) == {"node-1", "node-2", "node-3"}
    assert view.unresolvable["node-1"] == "asks for 4 cpu_cores, the node has 2"
    assert np.array(view.names)[view.feasible].tolist() == ["big", "stranger"]
    spread = query(names=("node-2",), cpu_cores=32.0, num_nodes=2.0)
    assert not cluster.view(spread).feasible.any()  # 16 on each would do, 32 in one node's total do not
    cluster.stock([Node("node-0", cpu_cores=2.0)])
    assert "node-0" in cluster.view(asked).unresolvable


def test_memory_of_kinds_is_bounded_and_stays_right():
    cluster = LiveCluster(made_policy())
    for number in range(3 * MAX_KINDS):
        view = cluster.view(query(names=(f"x{number}", "node-1"), cpu_cores=1.0 + number))
        assert view.feasible.tolist() == [True, 1.0 + number <= 16.0]
    kinds = (cluster.tallies._sets, cluster.inventory._too_small, cluster.tallies._rows_of_set)
    assert max(map(len, kinds)) <= MAX_KINDS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("bundle") / "bundle")


def test_questions_are_answered_as_the_runner_answers_the_same_description(bundle):
    policy, served = load(bundle), load_policy(bundle)
    cluster = LiveCluster(served)
    rng = np.random.default_rng(0)
    held: dict[str, list[Held]] = {name: [] for name in NAMES}
    for number in range(40):
        now_s, node = float(number), NAMES[rng.integers(4)]
        wanted = Request(
            cpu_cores=float(rng.integers(1, 4)), service="resize", site="zone-b", candidates=NAMES
        )
        nodes = [Node(name, held=tuple(one)) for name, one in held.items()]
        asked = PlacementQuery(f"r{number}", now_s, wanted, NAMES)
        question = cluster.question(asked, now_s)
        # Must not change the question
        cluster.place(cluster.placement(asked, cluster.view(asked), node, now_s))
        expected, found = policy.decide(nodes, wanted, now_s), question()
        assert found.node == expected.node
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
        held[node].append(Held(now_s, now_s, RUN_S, "resize", wanted.cpu_cores))


def test_books_opened_anew_hold_what_the_old_ones_held(bundle):
    served = load_policy(bundle)
    cluster = LiveCluster(served)
    for number in range(6):
        placed(cluster, f"r{number}", NAMES[number % 3], 0.0, cpu_cores=2.0)
    cluster.report(RequestEvent("r0", 1.0, None, None))
    before = cluster.question(query(), 2.0)().scores
    cluster.use(served)
    np.testing.assert_allclose(cluster.question(query(), 2.0)().scores[1:], before[1:], rtol=1e-5)


def test_a_node_heard_of_later_can_be_named(bundle):
    cluster = LiveCluster(load_policy(bundle))
    only = query(names=("new",))
    assert cluster.question(only, 0.0)().node is None
    cluster.stock([Node("new", cpu_cores=8.0, site="zone-a")])
    assert cluster.question(only, 0.0)().node == "new"
    cluster.stock([Node("new", available=False, cpu_cores=8.0, site="zone-a")])
    assert cluster.question(only, 0.0)().node is None
    cluster.stock([])
    assert "new" not in cluster.names


def told(identity: str, *nodes: Node, **wanted) -> PlacementQuery:
    return PlacementQuery(
        identity, 0.0, Request(**wanted), tuple(node.name for node in nodes), {n.name: n for n in nodes}
    )


def test_what_a_question_says_of_nodes_holds_for_that_question_alone(bundle):
    cluster = LiveCluster(load_policy(bundle))
    usual = query(cpu_cores=2.0)
    before = cluster.question(usual, 0.0)()
    lie = [Node(name, available=False, cpu_cores=0.0, memory_gib=1e9, site="nowhere") for name in NAMES]
    assert not cluster.view(told("lie", *lie, cpu_cores=2.0)).feasible.any()
    assert cluster.question(told("lie", *lie, cpu_cores=2.0), 0.0)().node is None
    view, after = cluster.view(usual), cluster.question(usual, 0.0)()
    assert view.feasible.all()
    assert view.cores.tolist() == [16.0] * 4
    assert after.node == before.node
    np.testing.assert_array_equal(after.scores, before.scores)
    cluster.use(load_policy(bundle))
    assert cluster.view(usual).feasible.all()


def test_a_question_of_its_own_facts_is_answered_as_the_runner_answers_them_books_included(bundle):
    policy, cluster = load(bundle), LiveCluster(load_policy(bundle))
    small = [Node("node-1", cpu_cores=4.0), Node("new", cpu_cores=32.0, memory_gib=64.0, site="zone-b")]
    held = {name: [] for name in (*NAMES, "new")}
    for number, name in enumerate(("node-0", "node-1", "new", "new", "node-3")):
        own = told(f"r{number}", *small, cpu_cores=1.0, service="resize")
        placement = cluster.placement(own, cluster.view(own), name, float(number))
        cluster.place(placement)
        held[name].append(Held(float(number), float(number), RUN_S, "resize", 1.0))
    asked = told("last", *small, Node("node-2"), cpu_cores=2.0, service="resize", site="zone-a")
    found = cluster.question(asked, 4.0)()
    nodes = [Node(name, held=tuple(held[name])) for name in NAMES]
    nodes[1] = replace(nodes[1], cpu_cores=4.0)
    nodes.append(replace(small[1], held=tuple(held["new"])))
    wanted = Request(cpu_cores=2.0, service="resize", site="zone-a", candidates=asked.names)
    expected = policy.decide(nodes, wanted, 4.0)
    assert (found.nodes, found.node) == (expected.nodes, expected.node)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


def test_facts_that_agree_with_the_inventory_need_no_table_of_their_own(bundle):
    opened = []
    served = load_policy(bundle)
    cluster = LiveCluster(
        replace(served, open_books=lambda *facts: opened.append(served.open_books(*facts)) or opened[-1])
    )
    same = told("r", *(Node(name, cpu_cores=16.0) for name in NAMES))
    assert cluster.inventory.own(same) == {}
    assert cluster.question(same, 0.0).func.__name__ == "decide_on"
    assert len(opened) == 1


def test_events_about_unknown_requests_change_nothing():
    cluster = LiveCluster(made_policy())
    for number in range(100):
        assert cluster.report(RequestEvent(f"nobody-{number}", 5.0, "node-0", None)) is None
    assert not cluster.hears_events
    placed(cluster, "a", "node-1", 0.0, requested_run_s=10.0)
    assert cluster.expire(10.0) == 1


def test_one_reporter_among_many_that_report_nothing_does_not_speak_for_them():
    cluster = LiveCluster(made_policy())
    for number in range(50):
        placed(cluster, f"a{number}", "node-1", 0.0, requested_run_s=10.0)
    assert cluster.expire(10.0) == 50
    placed(cluster, "mine", "node-1", 20.0)
    cluster.report(RequestEvent("mine", 21.0, None, None))
    assert not cluster.hears_events
    for number in range(60):  # all report
        placed(cluster, f"b{number}", "node-1", 30.0)
        cluster.report(RequestEvent(f"b{number}", 31.0, None, None))
    assert cluster.hears_events
    # A caller that comes first speaks for others until something is known of them
    alone = LiveCluster(made_policy())
    placed(alone, "mine", "node-1", 0.0)
    alone.report(RequestEvent("mine", 1.0, None, None))
    placed(alone, "theirs", "node-1", 0.0)
    assert alone.hears_events
    alone.expire(PATIENCE_S)
    assert not alone.hears_events
    for number in range(60):  # and nobody does any more
        placed(cluster, f"c{number}", "node-1", 40.0)
    assert cluster.expire(40.0 + PATIENCE_S) == 60
    assert not cluster.hears_events


def test_a_start_without_an_end_is_forgotten_in_the_end():
    cluster = LiveCluster(made_policy())
    placed(cluster, "a", "node-1", 0.0, requested_run_s=10.0)
    cluster.report(RequestEvent("a", 1.0, None, None))
    assert (cluster.expire(LOST_S), cluster.expire(1.0 + LOST_S)) == (0, 1)
    assert cluster.placements == {}


def test_names_that_only_questions_know_are_forgotten_when_they_hold_nothing(monkeypatch):
    monkeypatch.setattr(tallies, "MAX_GUESTS", 50)
    cluster = LiveCluster(made_policy())
    for number in range(1000):
        placed(cluster, "r", f"guest-{number}", float(number))
    assert cluster.tallies.num_names <= 4 + 1 + 2 * 50
    assert cluster.tallies.num_rows <= 256
    assert cluster.names == NAMES
    view = cluster.view(query(names=("guest-999", "guest-0")))
    assert view.num_held.tolist() == [1.0, 0.0]


def test_names_of_candidates_in_flight_are_bounded_and_their_requests_stay(monkeypatch):
    monkeypatch.setattr(cluster_module, "MAX_CANDIDATES", 1000)
    cluster = LiveCluster(made_policy())
    num_stripped = 0
    for number in range(100):
        names = tuple(f"{number}-{index}" for index in range(100))
        asked = query(f"r{number}", names=names)
        num_stripped += cluster.place(cluster.placement(asked, cluster.view(asked), names[0], 0.0))[1]
    sizes = [len(placement.query.names) for placement in cluster.placements.values()]
    assert sizes == [0] * 89 + [100] * 11
    assert num_stripped == 89
    assert (cluster._sets.num_names, len(cluster._sets)) == (1100, 11)
    assert cluster.view(query(names=("0-0", "99-0"))).num_held.tolist() == [1.0, 1.0]
    assert cluster.report(RequestEvent("r0", 1.0, None, None)).start_s == 1.0
    for number in range(3000):  # asked again and again
        placed(cluster, "same", "node-0", float(number), requested_run_s=1e9)
    assert len(cluster._ends) < 2000


def test_ten_thousand_new_names_in_a_question_cost_others_nothing():
    service = made_service()
    nodes = [{"name": f"n{number}", "cpu_cores": 4} for number in range(10_000)]
    status, answer = asked(App(service), "/decide", {"request": {"request_id": "r"}, "nodes": nodes})
    assert (status, len(answer["scores"])) == (200, 10_000)
    assert service.cluster.names == NAMES
    assert service.cluster._books.names == NAMES
    assert service.cluster.tallies.num_names == 6


def test_a_start_up_is_kept_when_its_start_is_reported_and_when_books_are_opened_again(tmp_path):
    bundle = make_bundle(tmp_path / "bundle", cold_starts={"memory_s": 100.0, "startup_s": [0.0, 0.0, 20.0]})
    cluster = LiveCluster(load_policy(bundle))
    detect = {"service": "detect", "requested_run_s": 10.0}
    cluster.question(query(**detect), 0.0)

    def run_s(now_s):
        (held,) = {node.name: node for node in cluster._open(now_s).nodes(now_s)}["node-1"].held
        return held.expected_run_s

    def due_s(node, now_s):
        return cluster._open(now_s).startup_s(node, Held(now_s, None, 10.0, "detect"))

    assert due_s("node-1", 0.0) == 0.0
    placed(cluster, "a", "node-1", 1_000.0, **detect)
    assert run_s(1_000.0) == pytest.approx(30.0, rel=1e-3)
    cluster.report(RequestEvent("a", 1_001.0, None, None))
    assert run_s(1_001.0) == pytest.approx(30.0, rel=1e-3)
    cluster._close_books()
    assert run_s(1_002.0) == pytest.approx(30.0, rel=1e-3)
    assert due_s("node-2", 1_002.0) == pytest.approx(20.0, rel=1e-3)
    placed(cluster, "b", "node-2", 1_002.0, **detect)
    assert due_s("node-2", 1_010.0) == 0.0
    cluster.report(RequestEvent("b", 1_003.0, None, "rejected"))
    assert due_s("node-2", 1_010.0) == pytest.approx(20.0, rel=1e-3)


def test_both_backends_decide_alike(tmp_path):
    bundle = make_bundle(tmp_path / "bundle", with_graph=True)
    numpy_answer, onnx_answer = (
        LiveCluster(load_policy(bundle, backend)).question(query(cpu_cores=2.0), 5.0)()
        for backend in ("numpy", "onnx")
    )
    assert onnx_answer.node == numpy_answer.node
    np.testing.assert_allclose(onnx_answer.scores, numpy_answer.scores, rtol=1e-4, atol=1e-5)


def test_a_policy_of_classes_scores_the_machines_of_a_class(tmp_path):
    machines = {f"rack-{node}-{letter}": f"node-{node}" for node in range(4) for letter in "ab"}
    service = made_service(load_policy(make_bundle(tmp_path / "bundle", machines=machines)))
    names = ("rack-1-a", "rack-1-b")
    answers = [asyncio.run(service.decide(query(f"r{number}", names=names))) for number in range(4)]
    assert [answer.arm for answer in answers] == ["policy"] * 4
    assert [answer.node for answer in answers] == [*names, *names]  # of equal machines the emptier one
    assert metric(service, "unknown_nodes_total") == 0


def test_machines_of_a_class_are_no_guests_of_a_policy_of_any_nodes(tmp_path):
    machines = {"rack-1-a": "node-1", "rack-2-a": "node-2"}
    bundle = make_bundle(tmp_path / "bundle", machines=machines, any_nodes=True)
    cluster = LiveCluster(load_policy(bundle))
    asked = query(names=tuple(machines))
    before = cluster.question(asked, 0.0)()
    placed(cluster, "held", "rack-1-a", 0.0)
    cluster._close_books()  # as a change of nodes does, or a guest
    after = cluster.question(asked, 2.0)()
    assert after.nodes == before.nodes
    assert after.legal.tolist() == before.legal.tolist()
    assert after.node in {"node-1", "node-2"}
