"""Deciding from plain descriptions: hand-worked features, legality, explanations, and what callers get wrong."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl import contract as contract_module
from offline_rl.contract import AlarmFacts, read_contract, write_contract
from offline_rl.errors import PolicyInputError
from offline_rl.numpy_networks import MASKED_LOGIT
from offline_rl.placement_contract import placement_contract
from offline_rl.runner import Held, Node, Policy, Request, load, load_network
from offline_rl.runner.features import NODE_FEATURES
from offline_rl.runner.network import ExportedPolicy
from offline_rl.serving.policies import LedgerBooks
from tests.offline_rl.bundles import BOUND, FREE, STARTUP_S, made_policy, made_system

NOW_S = 4 * 86_400.0 + 6 * 3600.0  # a Monday, 06:00
REQUEST = Request(
    cpu_cores=2.0, memory_gib=1.0, site="site-0", service="service-1", requested_run_s=20.0, deadline_s=6.0
)
# Made: edge-0 (4 cores, 8 GiB, 1 GPU, site-0), edge-1 (8, 16, site-1), edge-2 (12, 8, site-0), cloud (endless, site-1)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    made, _ = made_system()
    encoding = replace(made, cluster=replace(made.cluster, cold=None))
    folder = tmp_path_factory.mktemp("runner")
    num = len(placement_contract(encoding, FREE).context_features) + 4 * len(NODE_FEATURES)
    ranges = np.full(num, 0.0), np.full(num, 1.0)
    made_policy(folder / "free", encoding, FREE, ranges=ranges)
    made_policy(folder / "bound", encoding, BOUND, ranges=ranges, certificate="c" * 64, licence="ours")
    made_policy(folder / "cold", made, FREE)
    return folder


@pytest.fixture(scope="module", params=["free", "bound"])
def policy(request, bundles):
    return load(bundles / request.param)


@pytest.fixture(scope="module")
def free(bundles):
    return load(bundles / "free")


def nodes_of(policy):
    return [Node(name) for name in policy.contract.choices]


def test_features_by_hand(policy):
    nodes = nodes_of(policy)
    nodes[0] = Node(
        "edge-0",
        held=[
            Held(NOW_S - 9.0, NOW_S - 4.0, 10.0, cpu_cores=3.0, memory_gib=2.0),  # 6 s left of 10
            Held(NOW_S - 5.0, None, 8.0, cpu_cores=1.0),
            Held(NOW_S - 7.0, None, None, service="service-2", cpu_cores=0.5),  # its service runs 20 s
        ],
        recent_wait_s=12.0,
        recent_starts=4.0,
    )
    told = policy.explain(nodes, REQUEST, NOW_S)
    seen = told.features["edge-0"]
    run_s = 20.0 * policy.setting.nodes[0].run_ratio[1]
    by_hand = {
        "fits": 1.0, "same_site": 1.0, "is_cloud": 0.0,
        "free_cpu_cores": 1.0 - 3.0 / 4.0, "free_memory_gib": 1.0 - 2.0 / 8.0, "free_gpus": 1.0,
        "needed_share": 2.0 / 4.0, "waiting_share": math.log1p(1.5 / 4.0),
        "num_running": math.log1p(1), "num_waiting": math.log1p(2),
        "backlog": math.log1p((6.0 * 3.0 + 8.0 * 1.0 + 20.0 * 0.5) / 4.0 / 2.0), "oldest_wait": math.log1p(7.0 / 2.0),
        "recent_wait": math.log1p(3.0 / 2.0), "recent_starts": math.log1p(4.0),
        "usual_run": math.log1p(run_s / 2.0), "core_time": math.log1p(run_s / 2.0 * 2.0 / 4.0),
        "slack": -2.0,  # the backlog of 9 s is past the deadline
        "acceptance": 1.0,
    }  # fmt: skip
    assert seen == pytest.approx(by_hand, rel=1e-6)
    asked = told.request
    assert asked["asked_cpu_cores"] == pytest.approx(math.log1p(2.0))
    assert asked["deadline"] == pytest.approx(math.log1p(3.0))
    assert asked["day_sine"] == pytest.approx(1.0)
    assert asked["week_sine"] == pytest.approx(math.sin(2 * math.pi / 28))
    assert [name for name, value in asked.items() if "=" in name and value] == [
        "site=site-0", "scenario=unknown", "service=service-1", "queue=unknown"
    ]  # fmt: skip
    elsewhere = policy.explain(nodes, replace(REQUEST, site="site-1"), NOW_S).features
    both = [seen["num_waiting"], told.features["edge-2"]["num_waiting"]]
    assert (
        elsewhere["edge-0"]["num_waiting"]
        == elsewhere["edge-2"]["num_waiting"]
        == pytest.approx(np.mean(both))
    )
    used = policy.explain([replace(nodes[0], used_cpu_cores=1.0), *nodes[1:]], REQUEST, NOW_S)
    assert used.features["edge-0"]["free_cpu_cores"] == pytest.approx(0.75)


def test_who_asks_decides_what_is_accepted(policy):
    def shown(request):
        features = policy.explain(nodes_of(policy), request, NOW_S).features
        return [features[name]["acceptance"] for name in ("edge-0", "edge-1", "cloud")]

    assert shown(REQUEST) == pytest.approx([1.0, 0.8, 0.6])
    assert shown(replace(REQUEST, scenario="rush")) == pytest.approx([1.0, 0.7, 0.3])
    assert shown(replace(REQUEST, scenario="rush", agent="agent-1")) == pytest.approx([0.9, 0.2, 0.4])
    assert shown(replace(REQUEST, agent="a stranger")) == shown(REQUEST)


def test_slack_is_what_waiting_leaves_of_the_deadline(policy):
    run_s = 20.0 * policy.setting.nodes[0].run_ratio[1]
    idle = policy.explain(nodes_of(policy), replace(REQUEST, deadline_s=30.0), NOW_S).features["edge-0"]
    assert idle["slack"] == pytest.approx(math.log(30.0 / run_s), rel=1e-5)
    busy = [Node("edge-0", held=[Held(NOW_S, NOW_S, 12.0, cpu_cores=4.0)]), *nodes_of(policy)[1:]]
    crowded = policy.explain(busy, replace(REQUEST, deadline_s=30.0), NOW_S).features["edge-0"]
    assert crowded["slack"] == pytest.approx(math.log(18.0 / run_s), rel=1e-5)
    assert policy.explain(busy, replace(REQUEST, deadline_s=None), NOW_S).features["edge-0"]["slack"] == 0.0


def test_legal_is_known_available_candidate_and_large_enough(policy):
    nodes = nodes_of(policy)
    nodes[3] = replace(nodes[3], available=False)
    nodes.append(Node("stranger"))
    large = replace(REQUEST, cpu_cores=5.0, candidates=["edge-0", "edge-1", "cloud", "stranger"])
    told = policy.explain(nodes, large, NOW_S)
    assert told.decision.node == "edge-1"
    assert told.decision.legal.tolist() == [False, True, False, False, False]
    assert told.decision.nodes == (*policy.contract.choices, "stranger")
    assert told.decision.probabilities.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert told.decision.scores[0] == np.float32(MASKED_LOGIT)
    assert set(told.illegal) == {"edge-0", "edge-2", "cloud", "stranger"}
    assert "too small" in told.illegal["edge-0"]
    assert "candidates" in told.illegal["edge-2"]
    assert "available" in told.illegal["cloud"]
    assert "was not in training" in told.illegal["stranger"]


@pytest.mark.parametrize(
    ("nodes", "request_"),
    [
        ([], REQUEST),
        (None, replace(REQUEST, gpus=2.0)),
        (None, replace(REQUEST, candidates=["nobody"])),
        (None, replace(REQUEST, candidates=[])),
        ([{"name": "stranger"}], REQUEST),
        ([{"name": "edge-1", "available": False}], REQUEST),
    ],
)
def test_where_no_node_may_nothing_is_decided(policy, nodes, request_):
    decision = policy.decide(nodes_of(policy) if nodes is None else nodes, request_, NOW_S)
    assert decision.node is None
    assert not decision.legal.any()
    assert decision.probabilities.tolist() == [0.0] * len(decision.nodes)


def test_mappings_serve_as_descriptions(policy):
    held = {"arrival_s": NOW_S - 3.0, "start_s": NOW_S - 2.0, "expected_run_s": 4.0, "cpu_cores": 2.0}
    plain = [{"name": name, "held": [held]} for name in policy.contract.choices]
    told = [Node(name, [Held(**held)]) for name in policy.contract.choices]
    asked = {"cpu_cores": 2.0, "memory_gib": 1.0, "site": "site-0", "service": "service-1", "deadline_s": 6.0}
    one = policy.decide(json.loads(json.dumps(plain)), asked | {"requested_run_s": 20.0}, NOW_S)
    np.testing.assert_array_equal(one.scores, policy.decide(told, REQUEST, NOW_S).scores)
    assert one.legal.all()


def test_a_node_that_is_not_described_is_not_available_to_a_bound_policy(bundles):
    policy = load(bundles / "bound")
    decision = policy.decide([Node("edge-2"), Node("edge-1")], REQUEST, NOW_S)
    assert decision.nodes == ("edge-2", "edge-1")
    every = policy.decide([Node("edge-0", available=False), Node("edge-1"), Node("edge-2")], REQUEST, NOW_S)
    np.testing.assert_array_equal(decision.scores, every.scores[[2, 1]])
    assert decision.node == every.node


def test_a_free_policy_takes_new_nodes_and_new_capacities(free):
    new = Node("edge-9", cpu_cores=64.0, memory_gib=128.0, site="site-0")
    told = free.explain([Node("edge-0"), new], replace(REQUEST, cpu_cores=32.0), NOW_S)
    assert told.decision.node == "edge-9"
    assert told.features["edge-9"]["needed_share"] == 0.5
    assert told.features["edge-9"]["same_site"] == 1.0
    grown = free.decide([Node("edge-0", cpu_cores=64.0)], replace(REQUEST, cpu_cores=32.0), NOW_S)
    assert grown.node == "edge-0"
    in_small_machines = Node("edge-9", cpu_cores=64.0, memory_gib=128.0, machine_cpu_cores=16.0)
    assert free.decide([in_small_machines], replace(REQUEST, cpu_cores=32.0), NOW_S).node is None
    assert (
        free.decide([in_small_machines], replace(REQUEST, cpu_cores=32.0, num_nodes=2.0), NOW_S).node
        == "edge-9"
    )
    elsewhere = free.explain([Node("edge-0"), replace(new, site="nowhere")], REQUEST, NOW_S)
    assert elsewhere.features["edge-9"]["same_site"] == 0.0
    at_home = free.explain([replace(new, site="nowhere")], replace(REQUEST, site="nowhere"), NOW_S)
    assert at_home.features["edge-9"]["same_site"] == 1.0
    assert at_home.unknown == {"site": "nowhere"}


def test_the_order_of_descriptions_does_not_matter(policy):
    nodes = nodes_of(policy)
    one, other = policy.decide(nodes, REQUEST, NOW_S), policy.decide(nodes[::-1], REQUEST, NOW_S)
    assert one.node == other.node
    np.testing.assert_allclose(one.scores, other.scores[::-1], rtol=1e-5)


def test_what_training_never_saw_is_told(policy):
    nodes = [replace(node, recent_starts=10.0) for node in nodes_of(policy)]
    asked = replace(REQUEST, service="mystery", queue="fast", input_mib=50.0)
    told = policy.explain(nodes, asked, NOW_S)
    assert told.unknown == {"service": "mystery", "queue": "fast"}
    assert told.decision.num_unknown == 2
    assert told.request["service=unknown"] == 1.0
    found = {(one.feature, one.node) for one in told.out_of_range}
    assert ("input", None) in found
    assert ("recent_starts", "edge-1") in found
    assert told.decision.num_out_of_range == len(told.out_of_range)
    of_one = next(one for one in told.out_of_range if one.feature == "input")
    assert (of_one.low, of_one.high) == (0.0, 1.0)
    assert of_one.value == pytest.approx(math.log1p(50.0))
    not_legal = policy.explain(nodes, replace(asked, candidates=["edge-0"]), NOW_S)
    assert {one.node for one in not_legal.out_of_range} <= {None, "edge-0"}


def test_without_ranges_nothing_is_out_of_them(bundles, tmp_path):
    exported = load_network(bundles / "free")
    free = [replace(one, low=None, high=None) for one in exported.contract.choice_features]
    bare = replace(exported.contract, choice_features=tuple(free))
    told = Policy(ExportedPolicy(bare, "", exported.network)).explain(
        [Node("cloud", recent_starts=1e6)], REQUEST, NOW_S
    )
    assert {one.node for one in told.out_of_range} <= {None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpu_cores": -1.0}, "cpu_cores"),
        ({"memory_gib": math.nan}, "memory_gib"),
        ({"gpus": math.inf}, "gpus"),
        ({"num_nodes": 0.0}, "num_nodes"),
        ({"requested_run_s": -1.0}, "requested_run_s"),
        ({"deadline_s": math.nan}, "deadline_s"),
    ],
)
def test_impossible_requests_are_refused_by_name(policy, changes, message):
    with pytest.raises(PolicyInputError, match=message):
        policy.decide(nodes_of(policy), replace(REQUEST, **changes), NOW_S)


def test_impossible_nodes_and_clocks_are_refused_by_name(policy):
    nodes = nodes_of(policy)
    held = Held(NOW_S, None, 1.0)
    for bad, message in (
        (replace(nodes[1], held=[replace(held, cpu_cores=math.nan)]), "edge-1"),
        (replace(nodes[1], held=[replace(held, arrival_s=math.nan)]), "edge-1"),
        (replace(nodes[1], used_cpu_cores=math.inf), "edge-1"),
        (replace(nodes[1], cpu_cores=-4.0), "edge-1"),
        (nodes[0], "described twice"),
        ({"name": "edge-1", "speed": 3}, "speed"),
        ({"held": []}, "name"),
        ({"name": 3}, "name: 3"),
        ({"name": "edge-1", "cpu_cores": "4"}, "cpu_cores: '4'"),
        ({"name": "edge-1", "cpu_cores": True}, "cpu_cores: True"),
        ({"name": "edge-1", "cpu_cores": 10**400}, "cpu_cores: 1000"),
        ({"name": "edge-1", "available": 1}, "available: 1"),
        ({"name": "edge-1", "held": 7}, "held: 7"),
        ({"name": "edge-1", "held": [{"start_s": 1.0}]}, "does not describe a held"),
        ("edge-1", "does not describe a node"),
    ):
        with pytest.raises(PolicyInputError, match=message):
            policy.decide([nodes[0], bad], REQUEST, NOW_S)
    with pytest.raises(PolicyInputError, match="clock_s"):
        policy.decide(nodes, REQUEST, math.inf)
    with pytest.raises(PolicyInputError, match="does not describe a request"):
        policy.decide(nodes, ["cpu_cores"], NOW_S)


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
    ledger.set_available("edge-0", False)
    assert not ledger.decide(REQUEST, NOW_S).legal[0]


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
    ledger.finish(
        1, later_s + filed_s * ratio
    )  # as long as it should: nothing is learned of the node but its offset
    assert abs(math.log(shown(end_s) / (20.0 * ratio))) < 0.05
    unsure = policy.ledger(
        nodes_of(policy)
    )  # whether a first run starts cold is not known: nothing is learned of it
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


def test_contracts_that_this_runner_cannot_serve_are_refused(bundles):
    exported = load_network(bundles / "free")
    contract = exported.contract
    renamed = (replace(contract.choice_features[0], name="taste"), *contract.choice_features[1:])
    for changed, message in (
        (replace(contract, choice_features=renamed), "taste for fits"),
        (replace(contract, context_features=contract.context_features[:-1]), "cannot compute"),
        (replace(contract, setting={}), "none of a placement policy"),
        (replace(contract, setting=contract.setting | {"time_unit_s": 0.0}), "none of a placement policy"),
        (replace(contract, choices=contract.choices[::-1]), "not its choices"),
    ):
        with pytest.raises(ProductError, match=message):
            Policy(ExportedPolicy(changed, "", exported.network))


def test_the_contract_is_read_back_as_it_was_written(bundles, tmp_path):
    contract = read_contract(bundles / "bound")
    write_contract(tmp_path, contract)
    assert read_contract(tmp_path) == contract
    assert (contract.certificate, contract.licence) == ("c" * 64, "ours")
    assert contract.schema_version == contract_module.SCHEMA_VERSION
    assert contract.setting["nodes"][3]["cpu_cores"] is None  # no limit known
    assert contract.trained_on["first_day"] == "2020-01-01"
    assert all(one.unit and one.description for one in contract.choice_features)
