"""The doors: whatever comes in, something sensible goes out."""

import asyncio
import base64
import gc
import re
import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import offline_rl
from logs_schema.errors import ProductError
from offline_rl.serving import bodies
from offline_rl.serving.app import SHED_LAG_S, App
from offline_rl.serving.errors import QueryError
from offline_rl.serving.plain import inventory_of_json
from tests.serving.making import NAMES, asked, call, made_policy, made_service, metric, node_object, pod

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def app() -> App:
    return App(made_service())


def test_the_extender_filters_and_prioritizes():
    app = App(made_service())
    status, result = asked(
        app, "/filter", {"Pod": pod(cpu="20"), "Nodes": None, "NodeNames": ["node-0", "x"]}
    )
    assert (status, result["NodeNames"], result["Error"]) == (200, ["x"], "")
    assert list(result["FailedAndUnresolvableNodes"]) == ["node-0"]
    items = [node_object("node-0"), node_object("y", cpu="2"), node_object("z", unschedulable=True)]
    status, result = asked(app, "/filter", {"pod": pod(cpu="4"), "nodes": {"items": items}})
    assert result["nodes"]["items"] == [items[0]]
    assert (set(result["failedNodes"]), set(result["failedAndUnresolvableNodes"])) == ({"z"}, {"y"})
    status, result = asked(app, "/prioritize", {"Pod": pod(), "Nodes": None, "NodeNames": list(NAMES)})
    assert (status, result[-1]) == (200, {"Host": "node-3", "Score": 10})
    assert [one["Host"] for one in result] == list(NAMES)


def test_no_nodes_are_answered(app):
    for nodes in ({"NodeNames": []}, {"Nodes": {"items": None}}):
        assert asked(app, "/prioritize", {"Pod": pod(), **nodes}) == (200, [])
        status, result = asked(app, "/filter", {"Pod": pod(), **nodes})
        assert (status, result["Error"]) == (200, "")


def test_the_plain_door_decides_and_listens():
    app = App(made_service())
    status, answer = asked(app, "/decide", {"request": {"request_id": "r"}})
    assert (status, answer["node"], answer["arm"]) == (200, "node-3", "policy")
    assert answer["scores"] == {"node-0": 1, "node-1": 3, "node-2": 6, "node-3": 10}
    strange = App(made_service(made_policy(lambda one: replace(one, num_unknown=1, num_out_of_range=2))))
    answer = asked(strange, "/decide", {"request": {"request_id": "r", "service": "never seen"}})[1]
    assert (answer["unknown_labels"], answer["out_of_range"]) == (1, 2)
    status, answer = asked(app, "/decide", {"request": {"request_id": "q", "cpu_cores": 99}})
    assert (answer["node"], answer["reason"], len(answer["infeasible"])) == (None, "nothing_feasible", 4)
    events = [{"request_id": "r", "event": "finish"}, {"request_id": "nobody", "event": "start"}]
    assert asked(app, "/events", events) == (200, {"known": 1, "unknown": 1})
    assert app.service.cluster.placements == {}


def test_what_one_caller_says_of_nodes_or_of_unknown_requests_changes_nothing_for_others():
    app = App(made_service())
    usual = {"request": {"request_id": "r", "cpu_cores": 2}}
    lies = [{"name": name, "cpu_cores": 0, "available": False} for name in NAMES]
    status, answer = asked(app, "/decide", {"request": {"request_id": "lie", "cpu_cores": 2}, "nodes": lies})
    assert (status, answer["node"], len(answer["infeasible"])) == (200, None, 4)
    forged = node_object("node-3", cpu="0", unschedulable=True)
    forged["metadata"] |= {"uid": "x", "resourceVersion": "1"}
    true = node_object("node-3")
    true["metadata"] |= {"uid": "x", "resourceVersion": "1"}
    for item, num_left in ((forged, 0), (true, 1)):
        content = {"Pod": pod(), "Nodes": {"items": [item]}}
        assert len(asked(app, "/filter", content)[1]["Nodes"]["items"]) == num_left
    unknown = [{"request_id": f"nobody-{number}", "event": "start", "node": "x"} for number in range(100)]
    assert asked(app, "/events", unknown) == (200, {"known": 0, "unknown": 100})
    assert metric(app.service, "unknown_events_total") == 100
    assert not app.service.cluster.hears_events
    assert asked(app, "/decide", usual)[1]["node"] == "node-3"


def test_the_inventory_holds_for_all_until_the_next_one():
    app = App(made_service())
    usual = {"request": {"request_id": "r", "cpu_cores": 2}}
    closed = [*NAMES[:3], {"name": "node-3", "available": False}, {"name": "big", "cpu_cores": 64}]
    assert asked(app, "/nodes", {"nodes": closed}) == (200, {"num_nodes": 5, "absent": 0})
    answer = asked(app, "/decide", usual)[1]
    assert (answer["node"], answer["infeasible"]) == ("big", {"node-3": "not available"})
    app.service.slot.reload()
    assert asked(app, "/decide", usual)[1]["node"] == "big"
    listed = [node_object("node-3", cpu="1"), *map(node_object, NAMES[:3])]
    assert asked(app, "/nodes", {"kind": "List", "apiVersion": "v1", "items": listed})[1]["num_nodes"] == 4
    assert asked(app, "/decide", usual)[1]["infeasible"] == {"node-3": "asks for 2 cpu_cores, the node has 1"}
    assert asked(app, "/nodes", {"nodes": []}) == (200, {"num_nodes": 4, "absent": 0})
    assert asked(app, "/decide", usual)[1]["node"] == "node-3"
    for wrong in ({}, {"nodes": [{}]}, {"nodes": ["a", "a"]}, {"items": [1]}, {"nodes": ["a"] * 20_001}, []):
        assert asked(app, "/nodes", wrong)[0] == 400
    assert app.service.cluster.names == NAMES


def test_errors_are_in_the_error_field_where_there_is_one(app):
    status, result = asked(app, "/filter", {"Pod": {"metadata": {}}, "NodeNames": []})
    assert status == 200
    assert "identity" in result["Error"]
    status, result = asked(app, "/filter", {"pod": {"metadata": {}}})
    assert "identity" in result["error"]
    status, result = asked(app, "/filter", b"{")
    assert (status, result["Nodes"]) == (400, None)
    status, result = asked(app, "/prioritize", {"Pod": 1})
    assert (status, list(result)) == (400, ["error"])


def test_paths_and_methods(app):
    assert asked(app, "/nothing")[0] == 404
    assert asked(app, "/filter", method="GET")[0] == 405
    assert asked(app, "/metrics")[0] == 405
    assert asked(app, "/healthz", method="GET") == (200, {"status": "alive"})
    assert asked(app, "/readyz", method="GET")[0] == 503  # the server has not begun
    status, text = asked(app, "/metrics", method="GET")
    assert status == 200
    assert "# TYPE schedtwin_decisions_total counter" in text


@pytest.mark.parametrize(
    ("header", "status"),
    [(b"Bearer " + TOKEN.encode(), 200), (b"bearer " + TOKEN.encode(), 200), (b"Bearer wrong", 401), (b"", 401),
     (b"Basic " + base64.b64encode(b"any:" + TOKEN.encode()), 200), (b"Basic " + base64.b64encode(TOKEN.encode()), 401),
     (b"Basic %%%", 401), (b"Basic", 401), (b"Bearer", 401), (b"\xff\xfe", 401)],
)  # fmt: skip
def test_the_token_opens_the_endpoints(header, status):
    app = App(made_service(), TOKEN)
    headers = [(b"authorization", header)] if header else []
    content = {"Pod": pod(), "NodeNames": ["node-0"]}
    assert asked(app, "/prioritize", content, headers=headers)[0] == status
    assert asked(app, "/metrics", method="GET", headers=headers)[0] == status
    assert asked(app, "/healthz", method="GET")[0] == 200


def test_reload_is_for_this_machine_or_the_token():
    far = ("10.0.0.7", 1)
    app = App(made_service(lambda: made_policy()))
    assert asked(app, "/reload")[0] == 200
    assert asked(app, "/reload", client=far)[0] == 403
    guarded = App(made_service(lambda: made_policy()), TOKEN)
    assert (
        asked(guarded, "/reload", client=far, headers=[(b"authorization", b"Bearer " + TOKEN.encode())])[0]
        == 200
    )
    loads = iter([made_policy()])

    def load():
        for policy in loads:
            return policy
        raise ProductError("its golden decisions differ")

    status, answer = asked(App(made_service(load)), "/reload")
    assert (status, answer["content_hash"]) == (409, "made")
    assert "golden" in answer["error"]


def test_what_is_too_large_or_too_slow_is_refused(app, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 100)
    monkeypatch.setattr(bodies, "BODY_S", 0.05)
    assert asked(app, "/decide", b" " * 101)[0] == 413
    assert asked(app, "/decide", b"", headers=[(b"content-length", b"999999999999999999999999")])[0] == 413
    sent = []

    async def receive():
        await asyncio.sleep(30)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/decide", "method": "POST", "headers": [], "client": None}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 408


def test_all_contents_together_have_bounds_and_small_ones_find_room(monkeypatch):
    monkeypatch.setattr(bodies, "MAX_BODIES_BYTES", 1_000_000)
    app, size = App(made_service()), 400_000
    release = asyncio.Event()

    async def hold(number: int) -> int:
        """A content of which the end does not come until it is let."""
        parts, statuses = [b"x" * size], []

        async def receive():
            if parts:
                return {"type": "http.request", "body": parts.pop(), "more_body": True}
            await release.wait()
            return {"type": "http.request", "body": b""}

        async def send(message):
            statuses.append(message.get("status"))

        headers = [(b"content-length", b"%d" % size)]
        scope = {"type": "http", "path": "/decide", "method": "POST", "headers": headers, "client": None}
        await app(scope, receive, send)
        return statuses[0]

    async def live() -> tuple[list[int], int]:
        large = [asyncio.create_task(hold(number)) for number in range(6)]
        await asyncio.sleep(0.05)
        small, _ = await call(app, "/decide", {"request": {"request_id": "r"}})
        release.set()
        return await asyncio.gather(*large), small

    statuses, small = asyncio.run(live())
    assert sorted(statuses) == [400, 400, 503, 503, 503, 503]  # two were read, and are no JSON
    assert small == 200
    assert app.bodies.num_bytes == 0


def test_a_large_tree_of_json_is_not_parsed(monkeypatch):
    monkeypatch.setattr(bodies, "MAX_TREE_BYTES", 1000)
    content = {"Pod": pod(), "Nodes": {"items": [node_object(f"n{number}") for number in range(50)]}}
    app = App(made_service())
    assert asked(app, "/decide", b"[" + b"[]," * 1000 + b"[]]")[0] == 413
    status, scores = asked(app, "/prioritize", content)  # node objects are told apart
    assert (status, len(scores)) == (200, 50)


def test_an_inventory_that_is_too_large_is_told_how_to_become_small(app, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_TREE_BYTES", 100)
    whole = {"items": [node_object(f"n{number}") for number in range(50)]}
    status, content = asked(app, "/nodes", whole)
    assert status == 413
    assert "only name, labels, unschedulable and allocatable are read" in content["error"]
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 100)
    assert "jq filter" in asked(app, "/nodes", whole)[1]["error"]
    assert "jq filter" not in asked(app, "/decide", whole)[1]["error"]


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq")
def test_the_readme_s_filter_of_nodes_leaves_what_is_read():
    readme = (Path(offline_rl.__file__).parent / "README.md").read_text()
    (program,) = re.findall(r"get nodes -o json \| jq -c '([^']*)'", readme)
    items = [
        node_object("a", unschedulable=True),
        node_object("b", cpu="7910m"),
        {"metadata": {"name": "bare"}},
    ]
    items[0]["metadata"]["labels"] |= {"schedtwin.io/tier": "cloud", "other": "x" * 1000}
    items[1]["metadata"]["labels"] = {"failure-domain.beta.kubernetes.io/zone": "old"}
    items[1]["status"] = {"capacity": {"cpu": "8", "nvidia.com/gpu": "2"}, "images": ["x" * 1000]}
    whole = {"apiVersion": "v1", "items": items, "kind": "List"}
    small = subprocess.run(["jq", "-c", program], input=orjson.dumps(whole), capture_output=True, check=True)
    assert len(small.stdout) < 1000
    assert inventory_of_json(orjson.loads(small.stdout)) == inventory_of_json(whole)


def test_the_search_for_garbage_rests_while_a_large_content_is_parsed_and_goes_on_after():
    rounds = []
    gc.callbacks.append(watch := lambda phase, facts: rounds.append(phase))
    try:
        for large in (b"[" + b"[]," * 200_000 + b"[]]", b"[" + b"[]," * 200_000):
            rounds.clear()
            with pytest.raises(QueryError) if large[-1:] == b"," else nullcontext():
                bodies.json_of(large)
            assert rounds == []
            assert gc.isenabled()
    finally:
        gc.callbacks.remove(watch)


def test_questions_are_turned_away_unread_while_the_server_is_behind():
    app = App(made_service())
    app.service.loop_lag.lag_s = SHED_LAG_S + 0.01
    assert asked(app, "/decide", b"not even JSON")[0] == 400  # its callers wait for a deadline of 5 s
    app.service.loop_lag.lag_s = app.service.config.deadline_s + 0.01
    for path in ("/filter", "/prioritize", "/decide"):
        assert asked(app, path, b"not even JSON")[0] == 503
    assert metric(app.service, "shed_total") == 3
    assert asked(app, "/events", [])[0] == 200
    assert asked(app, "/metrics", method="GET")[0] == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=15,
)
PLACES = [
    ("Pod",), ("Nodes",), ("NodeNames",), ("Nodes", "items"), ("Nodes", "items", 0), ("Nodes", "items", 0, "metadata"),
    ("Nodes", "items", 0, "metadata", "name"), ("Nodes", "items", 0, "metadata", "labels"),
    ("Nodes", "items", 0, "status", "allocatable"), ("Nodes", "items", 0, "status", "allocatable", "cpu"),
    ("Pod", "metadata"), ("Pod", "metadata", "uid"), ("Pod", "metadata", "labels"), ("Pod", "metadata", "annotations"),
    ("Pod", "metadata", "creationTimestamp"), ("Pod", "metadata", "ownerReferences"), ("Pod", "spec"),
    ("Pod", "spec", "containers"), ("Pod", "spec", "containers", 0), ("Pod", "spec", "containers", 0, "resources"),
    ("Pod", "spec", "containers", 0, "resources", "requests", "cpu"), ("Pod", "spec", "initContainers"),
    ("Pod", "spec", "nodeSelector"), ("Pod", "spec", "overhead"), ("Pod", "spec", "activeDeadlineSeconds"),
    ("Pod", "spec", "priorityClassName"),
]  # fmt: skip


def dumped(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def spoiled(place: tuple, value: object) -> dict:
    """A good question with one place replaced."""
    content: dict = {
        "Pod": pod(ownerReferences=[]),
        "Nodes": {"items": [node_object("node-0"), node_object("b")]},
    }
    if place[0] == "NodeNames":
        content["Nodes"] = None
    at: object = content
    for key in place[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
    at[place[-1]] = value
    return content


def in_64_bits(value: object) -> bool:
    try:
        dumped(value)
    except TypeError:
        return False
    return True


@settings(max_examples=150)
@given(st.sampled_from(PLACES), JSON.filter(in_64_bits))
@example(
    ("Pod", "spec", "containers"), [{"resources": {"requests": {"cpu": 1e308, "memory": "9" * 40 + "Ei"}}}]
)
@example(("Pod", "spec", "initContainers"), [None])
def test_a_question_spoiled_anywhere_is_answered_or_refused_never_a_crash(app, place, value):
    body = dumped(spoiled(place, value))
    status, result = asked(app, "/prioritize", body)
    assert status in (200, 400)
    if status == 200:
        assert all(0 <= one["Score"] <= 10 for one in result)
    status, result = asked(app, "/filter", body)
    assert status == 200
    assert set(result) == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}


@settings(max_examples=100)
@given(
    st.sampled_from(["/filter", "/prioritize", "/decide", "/events"]),
    JSON.filter(in_64_bits).map(dumped) | st.binary(),
)
@example("/decide", b"[" * 100_000)
@example("/filter", b'{"Pod":' * 50_000)
@example("/decide", b'{"request":{"request_id":"r","cpu_cores":1' + b"0" * 5000 + b"}}")
@example("/decide", b'{"request":{"request_id":"\\ud800"}}')
@example("/prioritize", b'{"Pod":{"metadata":{"uid":"u"}},"NodeNames":' + b"[" * 900 + b"]" * 900 + b"}")
@example("/decide", '{"request":{"request_id":"é\\u0000"}}'.encode("utf-16"))
def test_any_content_is_answered(app, path, body):
    assert asked(app, path, body)[0] in (200, 400)


REQUEST = st.fixed_dictionaries(
    {"request_id": st.text(min_size=1, max_size=8)},
    optional={
        "service": st.text(max_size=5) | st.none(),
        "cpu_cores": st.floats(0, 1e9) | st.integers(0, 99),
        "num_nodes": st.integers(1, 9),
        "deadline_s": st.floats(0, 1e9),
        "arrival": st.datetimes().map(str) | st.floats(0, 4e9),
    },
)


@settings(max_examples=100)
@given(REQUEST, st.lists(st.sampled_from([*NAMES, "x", "y"]), max_size=5))
def test_a_good_plain_question_gets_a_candidate_or_the_reason_why_not(app, request_content, names):
    status, answer = asked(app, "/decide", {"request": request_content, "nodes": names})
    if status == 400:  # characters that a log line cannot hold, instants before 1970
        assert answer["error"]
        return
    assert set(answer["scores"]) == set(names)
    if answer["node"] is None:
        assert set(answer["infeasible"]) == set(names)
    else:
        assert answer["node"] in names
        assert answer["scores"][answer["node"]] == 10


def test_100_questions_at_once(app):
    async def crowd() -> list:
        content = {"Pod": pod(), "NodeNames": list(NAMES)}
        return await asyncio.gather(*(call(app, "/prioritize", content) for _ in range(100)))

    assert {status for status, _ in asyncio.run(crowd())} == {200}
    assert metric(app.service, "in_flight") >= 1
