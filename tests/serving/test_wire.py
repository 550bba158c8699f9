"""Kubernetes' JSON and the plain one: both spellings, both modes, quantities, what is read from pods and nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_rl.runner import Node
from offline_rl.serving import kubernetes
from offline_rl.serving.errors import QueryError
from offline_rl.serving.extender import args_of, filter_result, host_priorities
from offline_rl.serving.kubernetes import NodeObjects, machine_of, query_of_pod, requested_amounts
from offline_rl.serving.plain import events_of_json, query_of_json
from offline_rl.serving.quantities import amount_of
from tests.serving.making import node_object, pod


@pytest.mark.parametrize(
    ("quantity", "amount"),
    [("500m", 0.5), ("2", 2.0), (3, 3.0), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("1E3", 1000.0), ("2k", 2000.0),
     ("64Mi", 64 * 2**20), ("1Gi", 2**30), ("1G", 1e9), ("1E", 1e18), ("250000000n", 0.25), ("+1", 1.0), ("0", 0.0)],
)  # fmt: skip
def test_quantities_are_those_of_kubernetes(quantity, amount):
    assert amount_of(quantity) == pytest.approx(amount, rel=1e-12)


@pytest.mark.parametrize(
    "quantity",
    ["", "-1", "1 Gi", "Gi", "1KB", "nan", "inf", "1e999", "0x10", "1_000", None, True, [], {}, "9" * 400],
)
def test_what_is_no_quantity_is_refused(quantity):
    with pytest.raises(QueryError):
        amount_of(quantity)


@given(st.integers(0, 10**9), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi", "Gi"]))
def test_a_suffix_is_a_factor(number, suffix):
    assert amount_of(f"{number}{suffix}") == pytest.approx(number * amount_of(f"1{suffix}"), rel=1e-12)


def container(cpu: str, **more: object) -> dict:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def test_a_pod_asks_for_its_containers_or_its_largest_init_container_and_overhead():
    spec = {
        "containers": [container("1"), {"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1}}}],
        "initContainers": [container("500m", restartPolicy="Always"), container("4"), container("3")],
        "overhead": {"cpu": "250m"},
    }
    assert requested_amounts(spec) == (pytest.approx(0.5 + 4.0 + 0.25), 0.0, 1.0)
    del spec["initContainers"][1:]
    assert requested_amounts(spec)[0] == pytest.approx(1 + 2 + 0.5 + 0.25)


def test_what_a_pod_requests_as_a_whole_is_in_the_place_of_what_its_containers_do():
    whole = {"requests": {"cpu": "3", "memory": "2Gi"}, "limits": {"cpu": "8"}}
    gpu = {"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": 1}}}
    spec = {"containers": [gpu, {}], "resources": whole, "overhead": {"cpu": "250m"}}
    assert requested_amounts(spec) == (3.25, 2.0, 1.0)
    assert requested_amounts(spec | {"resources": {"limits": {"memory": "4Gi"}}}) == (1.25, 4.0, 1.0)
    assert requested_amounts({"containers": [{}], "resources": {}}) == (0.0, 0.0, 0.0)


def test_what_a_pod_says_is_read_annotations_first():
    marks = {
        "schedtwin.io/service": "label",
        "schedtwin.io/site": "zone-b",
        "schedtwin.io/deadline-seconds": "2.5",
    }
    asked = query_of_pod(
        pod(
            labels=marks,
            annotations={"schedtwin.io/service": "annotation"},
            creationTimestamp="1970-01-01T00:10:00Z",
        ),
        ("node-0",),
        {},
        1000.0,
    )
    request = asked.request
    assert (request.service, request.site, request.deadline_s) == ("annotation", "zone-b", 2.5)
    assert (asked.arrival_s, asked.request_id, asked.agent) == (600.0, "u1", "shop")
    assert (request.cpu_cores, request.memory_gib) == (1.0, 1.0)


def test_a_pod_that_says_little_is_read_with_unknowns_not_guesses():
    asked = query_of_pod({"metadata": {"name": "p"}}, (), {}, 1000.0)
    assert asked.request_id == "default/p"
    assert asked.unspecified >= {"cpu_cores", "memory_gib", "input_mib"}
    assert (asked.request.service, asked.request.site, asked.request.requested_run_s) == (None, None, None)
    owner = {"ownerReferences": [{"name": "other"}, {"name": "crunch", "controller": True}]}
    assert query_of_pod(pod(**owner), (), {}, 1.0).request.service == "crunch"
    assert query_of_pod(pod(creationTimestamp="2100-01-01T00:00:00Z"), (), {}, 1.0).arrival_s == 1.0


@pytest.mark.parametrize(
    "broken",
    [{}, {"metadata": []}, {"metadata": {"uid": 7}}, {"metadata": {"uid": "a|b"}}, {"metadata": {"uid": "u" * 600}},
     pod(creationTimestamp="yesterday"), pod(cpu="much"), pod(annotations={"schedtwin.io/deadline-seconds": "-1"}),
     {"metadata": {"uid": "u"}, "spec": {"containers": {"a": 1}}},
     {"metadata": {"uid": "u"}, "spec": {"containers": [1]}}],
)  # fmt: skip
def test_a_broken_pod_is_refused_with_the_place(broken):
    with pytest.raises(QueryError):
        query_of_pod(broken, (), {}, 1000.0)


def test_a_node_object_gives_facts():
    item = node_object("n", unschedulable=True)
    item["status"]["allocatable"]["amd.com/gpu"] = "2"
    item["metadata"]["labels"]["schedtwin.io/tier"] = "cloud"
    facts = Node(
        "n", available=False, site="zone-a", is_cloud=True, cpu_cores=16.0, memory_gib=64.0, gpus=2.0
    )
    assert machine_of(item, "n") == facts
    assert machine_of({"metadata": {"name": "m"}}, "m") == Node("m")


def test_a_node_is_read_again_where_what_counts_has_changed_whatever_its_version_says(monkeypatch):
    read = []
    monkeypatch.setattr(
        kubernetes, "machine_of", lambda item, where: read.append(where) or machine_of(item, where)
    )
    objects, item = NodeObjects(), node_object("n")
    item["metadata"] |= {"resourceVersion": "1", "uid": "x"}
    first = objects.machine(item, "a")
    beat = node_object("n")
    beat["metadata"] |= {"resourceVersion": "2", "uid": "x"}
    beat["status"]["conditions"] = [{"type": "Ready", "lastHeartbeatTime": "2024-05-01T12:00:00Z"}]
    assert objects.machine(beat, "b") is first
    changed = node_object("n", cpu="8")
    changed["metadata"] |= {"resourceVersion": "2", "uid": "x"}
    assert objects.machine(changed, "c").cpu_cores == 8.0
    assert not objects.machine(node_object("n", cpu="8", unschedulable=True), "d").available
    assert objects.machine(item, "e") == first
    assert read == ["a", "c", "d", "e"]


def test_names_mode_and_nodes_mode_are_answered_in_kind_and_spelling():
    go = args_of({"Pod": pod(), "Nodes": None, "NodeNames": ["b", "a", "b"]}, 1.0)
    assert go.query.names == ("b", "a")
    result = filter_result(go, {"a": "closed"}, {})
    assert result == {
        "Nodes": None,
        "NodeNames": ["b"],
        "FailedNodes": {"a": "closed"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    items = [node_object("a"), node_object("b")]
    camel = args_of({"pod": pod(), "nodes": {"items": items}}, 1.0)
    result = filter_result(camel, {}, {"a": "small"})
    assert result["nodes"]["items"] == [items[1]]
    assert (result["nodenames"], result["failedAndUnresolvableNodes"]) == (None, {"a": "small"})
    assert host_priorities(["a"], [7], camel.spelling) == [{"host": "a", "score": 7}]
    assert host_priorities(["a"], [7], go.spelling) == [{"Host": "a", "Score": 7}]


@pytest.mark.parametrize(
    "nodes", [{"Nodes": {"items": None}}, {"Nodes": {"metadata": {}}}, {"NodeNames": []}, {"Nodes": None}, {}]
)
def test_no_nodes_are_no_error(nodes):
    assert args_of({"Pod": pod(), **nodes}, 1.0).query.names == ()


@pytest.mark.parametrize(
    "content", [None, [], 1, "x", {}, {"Pod": None}, {"Pod": 1}, {"Pod": pod(), "NodeNames": "a"},
                {"Pod": pod(), "NodeNames": [1]}, {"Pod": pod(), "NodeNames": [""]}, {"Pod": pod(), "Nodes": []},
                {"Pod": pod(), "Nodes": {"items": [{}]}}, {"Pod": pod(), "NodeNames": ["a|b"]}]
)  # fmt: skip
def test_what_are_no_extender_args_is_refused(content):
    with pytest.raises(QueryError):
        args_of(content, 1.0)


def test_the_plain_door_reads_requests_nodes_and_instants():
    request = {
        "request_id": "r",
        "service": "s",
        "cpu_cores": 2,
        "num_nodes": 2,
        "arrival": "1970-01-01T00:00:05",
    }
    asked = query_of_json({"request": request, "nodes": ["a", {"name": "b", "cpu_cores": 8}]}, (), 9.0)
    assert (asked.names, asked.arrival_s, asked.request.num_nodes) == (("a", "b"), 5.0, 2.0)
    assert asked.machines == {"b": Node("b", cpu_cores=8.0)}
    assert {"memory_gib", "deadline_s"} <= asked.unspecified
    assert query_of_json({"request": {"request_id": "r"}}, ("x", "y"), 9.0).names == ("x", "y")


@pytest.mark.parametrize(
    "content",
    [{}, {"request": {}}, {"request": {"request_id": "r", "cores": 1}},
     {"request": {"request_id": "r", "cpu_cores": "x"}},
     {"request": {"request_id": "r", "cpu_cores": True}}, {"request": {"request_id": "r", "num_nodes": 1.5}},
     {"request": {"request_id": "r", "num_nodes": 0}}, {"request": {"request_id": "r"}, "nodes": [{}]},
     {"request": {"request_id": "r"}, "nodes": [{"name": "a", "available": 1}]},
     {"request": {"request_id": "r"}, "x": 1}, {"request": {"request_id": "r", "cpu_cores": float("nan")}},
     {"request": {"request_id": "r", "cpu_cores": 10**400}}],
)  # fmt: skip
def test_a_wrong_plain_question_is_refused(content):
    with pytest.raises(QueryError):
        query_of_json(content, (), 9.0)


def test_events_are_all_right_or_none_counts():
    (start, end) = events_of_json(
        [{"request_id": "r", "event": "start"}, {"request_id": "r", "event": "finish", "time": 4}], 9.0
    )
    assert (start.time_s, start.status, end.time_s, end.status) == (9.0, None, 4.0, "completed")
    for wrong in (
        {},
        [1],
        {"request_id": "r", "event": "stop"},
        {"request_id": "r", "event": "finish", "status": "odd"},
    ):
        with pytest.raises(QueryError):
            events_of_json(wrong, 9.0)
