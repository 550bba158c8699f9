"""The server's books: what is held where, what is assumed where nobody reports, and the runner's own features."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from offline_rl.runner import Held, Node, Request, load
from offline_rl.serving.asks import Ask
from offline_rl.serving.cluster import MAX_KINDS, PATIENCE_S, Cluster, Placement
from offline_rl.serving.plain import Event
from offline_rl.serving.policies import load_policy
from tests.serving.bundles import RUN_S, make_bundle
from tests.serving.making import NAMES, made_policy, made_service, metric


def ask(identity: str = "r", names=NAMES, **wanted) -> Ask:
    return Ask(identity, 0.0, Request(**wanted), names)


def placed(cluster: Cluster, identity: str, node: str, now_s: float, **wanted) -> Placement:
    placement = cluster.placement(ask(identity, **wanted), cluster.view(ask(identity, **wanted)), node, now_s)
    cluster.place(placement)
    return placement


def test_what_is_held_is_seen_and_an_older_decision_about_a_request_is_void():
    cluster = Cluster(made_policy())
    placed(cluster, "a", "node-1", 10.0, cpu_cores=4.0)
    placed(cluster, "b", "node-1", 11.0, cpu_cores=2.0)
    placed(cluster, "a", "node-2", 12.0, cpu_cores=4.0)
    view = cluster.view(ask())
    assert view.committed.tolist() == [0.0, 2.0, 4.0, 0.0]
    assert view.num_held.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_where_nobody_reports_a_request_is_over_after_its_run_time():
    cluster = Cluster(made_policy())
    placed(cluster, "a", "node-1", 0.0, requested_run_s=10.0)
    placed(cluster, "b", "node-1", 0.0)  # the made policy expects 60 s
    assert (cluster.expire(9.9), cluster.expire(10.0), cluster.expire(59.0), cluster.expire(60.0)) == (
        0,
        1,
        0,
        1,
    )
    assert cluster.view(ask()).num_held.sum() == 0.0


def test_where_starts_are_reported_a_request_waits_for_its_own_and_runs_until_its_end():
    cluster = Cluster(made_policy())
    placed(cluster, "a", "node-1", 0.0, requested_run_s=1.0)
    moved = cluster.report(Event("a", 5.0, "node-2", None))
    assert (moved.node, moved.offered, moved.start_s, moved.finish_s) == ("node-2", "node-1", 5.0, None)
    assert cluster.expire(1e9) == 0  # a start was reported, so will be the end
    ended = cluster.report(Event("a", 9.0, None, "completed"))
    assert (ended.node, ended.start_s, ended.finish_s) == ("node-2", 5.0, 9.0)
    assert cluster.report(Event("a", 9.0, None, "completed")) is None
    placed(cluster, "b", "node-1", 10.0, requested_run_s=1.0)
    assert (cluster.expire(10.0 + PATIENCE_S - 1), cluster.expire(10.0 + PATIENCE_S)) == (0, 1)


@pytest.mark.parametrize(
    ("status", "start_s", "finish_s"), [("rejected", None, None), ("dropped", None, 7.0)]
)
def test_what_never_ran_has_no_start(status, start_s, finish_s):
    cluster = Cluster(made_policy())
    placed(cluster, "a", "node-1", 0.0)
    ended = cluster.report(Event("a", 7.0, None, status))
    assert (ended.start_s, ended.finish_s) == (start_s, finish_s)


def test_books_learn_from_runs_whose_end_was_seen_where_they_ran():
    made = []
    policy = made_policy()
    opened = replace(
        policy, open_books=lambda nodes, now_s: made.append(policy.open_books(nodes, now_s)) or made[-1]
    )
    cluster = Cluster(opened)
    cluster.question(ask(), 0.0)
    placed(cluster, "assumed", "node-1", 0.0)  # nobody has reported a start, so far or later
    cluster.report(Event("assumed", 1.0, None, "completed"))
    for identity, told, status in (
        ("ran", None, "completed"), ("moved", "node-3", "failed"), ("lost", None, "dropped"),
    ):  # fmt: skip
        placed(cluster, identity, "node-1", 0.0)
        cluster.report(Event(identity, 2.0, None, None))
        cluster.report(Event(identity, 5.0, told, status))
    ends = [one for one in made[0].ended if one[1] is not None]
    assert ends == [("ran", 5.0)]
    cluster.note(
        [Node("node-9", cpu_cores=4.0)]
    )  # a new node: new books, which know what the old ones learned
    cluster.question(ask(), 9.0)
    assert len(made) == 2
    assert made[1].older is made[0]
    cluster.use(made_policy(content_hash="another"))
    cluster.use(opened)
    cluster.question(ask(), 10.0)
    assert made[-1].older is None


def test_events_before_the_decision_are_not_believed():
    cluster = Cluster(made_policy())
    placed(cluster, "a", "node-1", 100.0)
    assert cluster.report(Event("a", 5.0, None, "completed")).finish_s == 100.0


def test_what_cannot_be_is_told_from_what_cannot_be_now():
    cluster = Cluster(made_policy())
    cluster.note(
        [Node("node-0", available=False), Node("node-1", cpu_cores=2.0), Node("big", memory_gib=1000.0)]
    )
    asked = ask(names=(*NAMES, "big", "stranger"), cpu_cores=4.0, memory_gib=80.0)
    view = cluster.view(asked)
    assert set(view.failed) == {"node-0"}
    assert set(view.unresolvable) == {"node-1", "node-2", "node-3"}
    assert view.unresolvable["node-1"] == "asks for 4 cpu_cores, the node has 2"
    assert np.array(view.names)[view.feasible].tolist() == ["big", "stranger"]
    spread = ask(names=("node-2",), cpu_cores=32.0, num_nodes=2.0)
    assert not cluster.view(spread).feasible.any()  # 16 on each would do, 32 in one node's total do not
    cluster.note([Node("node-0")])
    assert "node-0" in cluster.view(asked).unresolvable


def test_memory_of_kinds_is_bounded_and_stays_right():
    cluster = Cluster(made_policy())
    for number in range(3 * MAX_KINDS):
        view = cluster.view(ask(names=(f"x{number}", "node-1"), cpu_cores=1.0 + number))
        assert view.feasible.tolist() == [True, 1.0 + number <= 16.0]
    assert max(len(cluster._sets), len(cluster._too_small), len(cluster._rows_of_set)) <= MAX_KINDS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("bundle") / "bundle")


def test_questions_are_answered_as_the_runner_answers_the_same_description(bundle):
    policy, served = load(bundle), load_policy(bundle)
    cluster = Cluster(served)
    rng = np.random.default_rng(0)
    held: dict[str, list[Held]] = {name: [] for name in NAMES}
    for number in range(40):
        now_s, node = float(number), NAMES[rng.integers(4)]
        wanted = Request(
            cpu_cores=float(rng.integers(1, 4)), service="resize", site="zone-b", candidates=NAMES
        )
        nodes = [Node(name, held=tuple(one)) for name, one in held.items()]
        asked = Ask(f"r{number}", now_s, wanted, NAMES)
        question = cluster.question(asked, now_s)
        cluster.place(
            cluster.placement(asked, cluster.view(asked), node, now_s)
        )  # must not change the question
        expected, found = policy.decide(nodes, wanted, now_s), question()
        assert found.node == expected.node
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
        held[node].append(Held(now_s, now_s, RUN_S, "resize", wanted.cpu_cores))


def test_books_opened_anew_hold_what_the_old_ones_held(bundle):
    served = load_policy(bundle)
    cluster = Cluster(served)
    for number in range(6):
        placed(cluster, f"r{number}", NAMES[number % 3], 0.0, cpu_cores=2.0)
    cluster.report(Event("r0", 1.0, None, None))
    before = cluster.question(ask(), 2.0)().scores
    cluster.use(served)
    np.testing.assert_allclose(cluster.question(ask(), 2.0)().scores[1:], before[1:], rtol=1e-5)


def test_a_node_heard_of_later_can_be_named(bundle):
    cluster = Cluster(load_policy(bundle))
    only = ask(names=("new",))
    assert cluster.question(only, 0.0)().node is None
    cluster.note([Node("new", cpu_cores=8.0, site="zone-a")])
    assert cluster.question(only, 0.0)().node == "new"
    cluster.note([Node("new", available=False)])
    assert cluster.question(only, 0.0)().node is None


def test_both_backends_decide_alike(tmp_path):
    bundle = make_bundle(tmp_path / "bundle", with_graph=True)
    numpy_answer, onnx_answer = (
        Cluster(load_policy(bundle, backend)).question(ask(cpu_cores=2.0), 5.0)()
        for backend in ("numpy", "onnx")
    )
    assert onnx_answer.node == numpy_answer.node
    np.testing.assert_allclose(onnx_answer.scores, numpy_answer.scores, rtol=1e-4, atol=1e-5)


def test_a_policy_of_classes_scores_the_machines_of_a_class(tmp_path):
    machines = {f"rack-{node}-{letter}": f"node-{node}" for node in range(4) for letter in "ab"}
    service = made_service(load_policy(make_bundle(tmp_path / "bundle", machines=machines)))
    names = ("rack-1-a", "rack-1-b")
    answers = [asyncio.run(service.decide(ask(f"r{number}", names=names))) for number in range(4)]
    assert [answer.arm for answer in answers] == ["policy"] * 4
    assert [answer.node for answer in answers] == [*names, *names]  # of equal machines the emptier one
    assert metric(service, "unknown_nodes_total") == 0
