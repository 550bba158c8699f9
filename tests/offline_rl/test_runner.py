"""Deciding from plain descriptions: hand-worked features, legality, explanations, and what callers get wrong."""

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl import contract as contract_module
from offline_rl.contract import read_contract, write_contract
from offline_rl.errors import PolicyInputError
from offline_rl.numpy_networks import MASKED_LOGIT
from offline_rl.runner import Held, Node, Policy, load, load_network
from offline_rl.runner.network import ExportedPolicy
from tests.offline_rl.runner_questions import NOW_S, REQUEST, nodes_of


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
        "site=site-0",
        "scenario=unknown",
        "service=service-1",
        "queue=unknown",
    ]
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


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_of_which_the_network_makes_none_decide_nothing(policy):
    nodes = nodes_of(policy)
    full = replace(nodes[0], held=[Held(NOW_S, NOW_S, 1.0, None, 1e300)])
    ledger = policy.ledger([full, *nodes[1:]])
    for decide in (partial(policy.decide, [full, *nodes[1:]]), ledger.decide, ledger.explain):
        with pytest.raises(PolicyInputError, match="edge-0: free_cpu_cores"):
            decide(REQUEST, NOW_S)


def test_descriptions_of_other_types_are_refused_by_name(policy):
    nodes = nodes_of(policy)
    for bad_nodes, request, clock_s, message in (
        (nodes, replace(REQUEST, cpu_cores="2"), NOW_S, "cpu_cores: '2'"),
        (nodes, replace(REQUEST, candidates=nodes[0].name), NOW_S, "candidates are a text"),
        ([replace(nodes[0], held=[{"arrival_s": NOW_S}])], REQUEST, NOW_S, "no Held"),
        (None, REQUEST, NOW_S, "no nodes"),
        (nodes, REQUEST, "now", "clock_s is no number"),
    ):
        for decide in (policy.decide, policy.explain):
            with pytest.raises(PolicyInputError, match=message):
                decide(bad_nodes, request, clock_s)


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
