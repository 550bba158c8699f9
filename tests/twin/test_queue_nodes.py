"""Nodes of queues: partitions of a batch system are found in its log, kept to by twins, replay, runners and bundles."""

import json
from dataclasses import replace

import numpy as np
import pytest

from evaluation.judges.bundle_policies import encoding_of
from evaluation.problems.placement.choices import no_choice, own_nodes
from logs_schema.tables import REQUESTS
from offline_rl.placement_contract import setting_of
from offline_rl.runner import Node, Request, load
from offline_rl.runner.setting import parse_setting
from tests.offline_rl.bundles import BOUND, FREE, made_policy
from tests.twin.made import made_cluster, made_encoding
from tests.twin.test_fit_encoding import DAYS, archived, request, table_of
from twin.placement.encode import encode_rows
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.queue_nodes import nodes_of_queues

QUEUES = ("unknown", "batch", "debug", "any")


def found(*used: tuple[int, int, int], num_nodes: int = 4) -> dict[str, tuple[int, ...]]:
    """`nodes_of_queues` of a log with (queue, node, number of requests)."""
    queue, node, number = np.array(used).T
    return nodes_of_queues(np.repeat(queue, number), np.repeat(node, number), QUEUES, num_nodes)


def test_queues_of_disjoint_nodes_are_bound_to_them_also_where_a_node_is_hardly_used():
    partitions = ((1, 0, 500), (1, 1, 3), (2, 2, 100), (2, 3, 1))
    assert found(*partitions) == {"batch": (0, 1), "debug": (2, 3)}


def test_a_queue_that_uses_all_nodes_joins_them_and_then_only_single_nodes_can_be_closed():
    both = ((1, 0, 500), (1, 1, 3), (2, 2, 100), (2, 3, 1), (3, 0, 9), (3, 1, 9), (3, 2, 9), (3, 3, 9))
    assert found(*both) == {"batch": (0, 1, 3), "debug": (1, 2, 3)}  # nodes 1 and 3 might be luck


def test_few_requests_unknown_queues_and_unused_nodes_close_nothing():
    assert found((1, 0, 30), (2, 1, 15)) == {}  # chance would have had ten of each on the other's node
    assert found((0, 0, 500), (1, 1, 500)) == {"batch": (1, 2, 3)}  # who asked for node 0 is not known
    assert found((1, 0, 500), (1, 1, 500), (2, -1, 9)) == {}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    nodes = [
        {"node_id": f"n{i}", "node_class": "c", "site": "here", "tier": "pool", "cpu_cores": 4.0}
        for i in range(4)
    ]
    of_queue = {"batch": (0, 1), "debug": (2, 3)}
    rows = [
        request(i, 0, 10.0 * i, 5.0, ran_node=f"n{of_queue[queue][i // 2 % 2]}", queue=queue)
        for i in range(200)
        for queue in [("batch", "debug")[i % 2]]
    ]
    archive = archived(tmp_path_factory.mktemp("log") / "archive", nodes, rows)
    return archive, fit_encoding(archive, DAYS[:1])


def test_what_a_request_may_use_follows_its_queue_unless_it_lists_candidates_or_was_moved(fitted):
    _, encoding = fitted
    again = Encoding.from_json(encoding.to_json())
    assert again.nodes_of_queue == encoding.nodes_of_queue == {"batch": (0, 1), "debug": (2, 3)}
    rows = [
        request(0, 0, 0.0, 5.0, ran_node="n0", queue="batch"),
        request(1, 0, 1.0, 5.0, queue="debug"),
        request(2, 0, 2.0, 5.0, ran_node="n3", queue="batch"),
        request(3, 0, 3.0, 5.0, ran_node="n3", queue="batch", candidates=["n0", "n1", "n2", "n3"]),
        request(4, 0, 4.0, 5.0, ran_node="n1"),
    ]
    rule = encode_rows(table_of(REQUESTS, rows), again, np.inf).request.rule
    first, second, everything = [True, True, False, False], [False, False, True, True], [True] * 4
    assert again.cluster.rules[rule].tolist() == [first, second, everything, everything, everything]
    assert "batch to 2 of 4, debug to 2 of 4" in own_nodes(again)
    assert not own_nodes(made_encoding(made_cluster()))


def test_where_requests_list_candidates_queues_bind_nothing(tmp_path):
    nodes = [{"node_id": f"n{i}", "site": "here", "tier": "pool", "cpu_cores": 4.0} for i in range(2)]
    rows = [request(i, 0, 10.0 * i, 5.0, ran_node=f"n{i % 2}", queue=f"q{i % 2}") for i in range(100)]
    archive = archived(tmp_path / "bound", nodes, rows)
    encoding = fit_encoding(archive, DAYS[:1])
    assert encoding.nodes_of_queue == {"q0": (0,), "q1": (1,)}
    assert no_choice(archive, encoding, DAYS[:1]).endswith(
        "had one legal node (by its queue): nothing to choose"
    )
    rows[0]["candidates"] = ["n0", "n1"]
    archive = archived(tmp_path / "free", nodes, rows)
    encoding = fit_encoding(archive, DAYS[:1])
    assert encoding.nodes_of_queue == {}
    assert not no_choice(archive, encoding, DAYS[:1])


def test_a_bundle_keeps_a_queue_to_its_nodes_and_a_judge_sees_it_so(tmp_path):
    cluster = replace(
        made_cluster(), queues=("unknown", "batch"), rules=np.array([[True] * 4, [False, True, True, False]])
    )
    encoding = replace(made_encoding(cluster), nodes_of_queue={"batch": (1, 2)})
    made_policy(tmp_path / "bound", encoding, BOUND)
    policy = load(tmp_path / "bound")
    nodes = [Node(name) for name in cluster.node_names]

    def legal(policy, **asked):
        return policy.decide(nodes, Request(cpu_cores=1.0, **asked), 0.0).legal.tolist()

    assert legal(policy, queue="batch") == [False, True, True, False]
    assert legal(policy, queue="batch", candidates=["edge-0", "edge-1"]) == [True, True, False, False]
    assert legal(policy) == [True] * 4
    made_policy(tmp_path / "free", encoding, FREE)
    assert legal(load(tmp_path / "free"), queue="batch") == [True] * 4  # of other nodes nothing is known
    setting = parse_setting(json.loads(json.dumps(setting_of(encoding))))
    assert encoding_of(setting, made_encoding(made_cluster())).nodes_of_queue == {"batch": (1, 2)}
