"""`/assign`: many requests at once, by hand; what cannot be understood is said."""

import asyncio
import shutil
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs_schema.errors import ProductError
from offline_rl.assignment.assigner import SEARCH, Assigner, AssignerSetting
from offline_rl.assignment.export import export_assigner
from offline_rl.assignment.known_edges import KnownEdge, KnownEdges
from offline_rl.assignment.priced import priced_params
from offline_rl.bundle import ARRAYS
from offline_rl.serving.app import App
from offline_rl.serving.assigning import _matrix, assign
from offline_rl.serving.config import ServerConfig, ServiceConfig
from offline_rl.serving.errors import QueryError, ServingError
from offline_rl.serving.policies import load_policy
from offline_rl.serving.server import load_served
from offline_rl.signing import sign_bundle
from tests.serving.making import asked, call, made_service
from twin.assignment.instances import InstanceConfig, draw_instances

EDGES = [
    {"name": "near", "compute": [0.0, 1.0], "replicas": 1},
    {"name": "far", "compute": [0.5, 0.1], "replicas": 2, "local_s": 1.0},
]
WAYS = [[0.0, 0.2], [0.2, 0.0]]


def request(number, **said):
    return {"request_id": f"r{number}", "input_mib": 1.0, "source": "near"} | said


@pytest.fixture(scope="module")
def app() -> App:
    return App(made_service())


def test_a_result_takes_the_way_from_its_edge_to_the_client(app):
    """From near to far a MiB takes 5 s, back a tenth: the result of what stays on near takes the long way."""
    content = {"edges": EDGES, "s_per_mib": [[0.0, 5.0], [0.1, 0.0]]}
    there = request(0, edges=["near"], output_mib=1.0, predicted="far")
    assert asked(app, "/assign", content | {"requests": [there]})[1]["makespan_s"] == pytest.approx(6.0)
    back = request(0, edges=["far"], output_mib=1.0, predicted="near")
    assert asked(app, "/assign", content | {"requests": [back]})[1]["makespan_s"] == pytest.approx(5.4)


def test_two_requests_by_hand(app):
    content = {"edges": EDGES, "requests": [request(0), request(1)], "s_per_mib": WAYS, "bound": True}
    status, answer = asked(app, "/assign", content)
    # one stays: 1 s; the other is there at .2, waits for the backlog until 1 and computes .6 / 2
    assert status == 200
    assert sorted(answer["assignment"].values()) == ["far", "near"]
    assert answer["makespan_s"] == pytest.approx(1.3)
    assert 0.0 <= answer["gap"] <= answer["makespan_s"]
    assert answer["bound_s"] <= 1.3
    both = content | {"requests": [request(0, edges=["near"]), request(1, edges=["near"])], "bound": False}
    status, answer = asked(app, "/assign", both)
    assert (status, answer) == (
        200,
        {"assignment": {"r0": "near", "r1": "near"}, "makespan_s": pytest.approx(2.0)},
    )


def test_what_the_log_says_of_its_edges_may_be_left_out():
    near = KnownEdge("here", 1, "linear", (0.0, 1.0))
    far = KnownEdge("there", 2, "isotonic", sizes=(0.0, 1.0, 3.0), seconds=(0.5, 0.6, 4.0))
    ways = {"here": {"here": 0.05, "there": 0.2}, "there": {"here": 0.3, "there": 0.05}}
    known = KnownEdges({"near": near, "far": far}, {a: dict.fromkeys(ways, 0.0) for a in ways}, ways)
    assigner = Assigner(AssignerSetting(10, 2, network=SEARCH, edges=known), {})
    edges, requests = [{"name": "near"}, {"name": "far", "local_s": 1.0}], [request(0), request(1)]
    said = {"edges": EDGES, "s_per_mib": [[0.0, 0.2], [0.3, 0.0]]}  # an edge is no way from itself
    assert assign({"edges": edges, "requests": requests}, assigner) == assign(
        said | {"requests": requests}, assigner
    )
    large = {"edges": edges, "requests": [request(0, input_mib=3.0, edges=["far"])]}
    assert assign(large, assigner)["makespan_s"] == pytest.approx(1.0 + 4.0 / 2)
    told = {"edges": [{"name": "far", "compute": [2.0]}], "requests": [request(0, source="far")]}
    assert assign(told, assigner)["makespan_s"] == pytest.approx(
        2.0
    )  # one replica, where a question says how it computes
    with pytest.raises(QueryError, match="no function of computing time"):
        assign({"edges": [{"name": "new"}], "requests": []}, assigner)
    assert known.ways(["near", "new"], "latency_s") is None


def test_no_requests_need_no_edge_each(app):
    assert asked(app, "/assign", {"edges": EDGES, "requests": [], "bound": True})[1]["assignment"] == {}


def test_the_deadline_is_kept(app):
    rng = np.random.default_rng(0)
    requests = [
        request(number, input_mib=float(size)) for number, size in enumerate(rng.uniform(0.1, 2.0, 400))
    ]
    edges = [{"name": f"e{one}", "compute": [0.0, float(rng.uniform(0.5, 1.5))]} for one in range(8)]
    edges.append(EDGES[0])
    begun_s = time.monotonic()
    status, answer = asked(app, "/assign", {"edges": edges, "requests": requests, "deadline_ms": 30})
    assert status == 200
    assert len(answer["assignment"]) == 400
    assert time.monotonic() - begun_s < 30.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edges": []}, "there is no edge"),
        ({"edges": [EDGES[0], EDGES[0]]}, "edges stand twice"),
        ({"requests": [request(0), request(0)]}, "requests stand twice"),
        ({"requests": [request(0, input_mib=0.0)]}, "zero, negative or no number"),
        ({"requests": [request(0, input_mib=-1.0)]}, "this number cannot be used"),
        ({"requests": [{"request_id": "r"}]}, "a number is missing"),
        ({"requests": [request(0, source="nowhere")]}, "not among the edges"),
        ({"requests": [request(0, edges=[])]}, "no edge hosts the service"),
        ({"requests": [request(0, size=1)]}, "unknown keys"),
        ({"s_per_mib": [[0.0]]}, "ways do not fit"),
        ({"edges": [{"name": "near"}]}, "no function of computing time"),
        ({"deadline_ms": -1}, "this number cannot be used"),
        ({"bound": 1}, "true or false"),
        ({"edges": [EDGES[0] | {"replicas": 1.5}]}, "edges[0].replicas: 1.5"),
        ({"edges": [EDGES[0] | {"replicas": "2"}]}, "edges[0].replicas: '2'"),
        ({"edges": [EDGES[0] | {"compute": [0.0, "1"]}]}, "edges[0].compute[1]: '1'"),
        ({"requests": [request(0, input_mib="1")]}, "requests[0].input_mib: '1'"),
        ({"latency_s": [[0.0, "0"], [0.0, 0.0]]}, "latency_s[0][1]: '0'"),
        ({"deadline_ms": ""}, "not a text"),
    ],
)
def test_bad_questions_are_answered_in_words(app, change, words):
    status, answer = asked(app, "/assign", {"edges": EDGES, "requests": [request(0)]} | change)
    assert status == 400
    assert words in answer["error"]


def test_too_many_pairs_are_refused():
    many = [{"request_id": str(number)} for number in range(2000)]
    with pytest.raises(QueryError, match="too many"):
        assign({"edges": [{"name": str(number)} for number in range(1001)], "requests": many})


def test_ways_that_are_not_told_take_no_table():
    ways = _matrix(None, 1_000_000, "latency_s")  # as many numbers would be 8 TB
    assert (ways.shape, ways[3, 5]) == ((1_000_000, 1_000_000), 0.0)


def test_one_question_at_a_time(app):
    content = {"edges": EDGES, "requests": [request(number) for number in range(50)], "deadline_ms": 200}

    async def both():
        return await asyncio.gather(*(call(app, "/assign", content) for _ in range(2)))

    assert sorted(status for status, _ in asyncio.run(both())) == [200, 503]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3)
)


@settings(max_examples=60)
@given(JSON)
def test_whatever_stands_there_is_answered(value):
    for content in (
        {"edges": value, "requests": []},
        {"edges": EDGES, "requests": value},
        value,
        {"edges": EDGES, "requests": [request(0)], "s_per_mib": value, "deadline_ms": 1},
    ):
        with suppress(QueryError):
            assert "assignment" in assign(content)


LAW = InstanceConfig(4, 2, 10)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    out = tmp_path_factory.mktemp("assigning") / "bundle"
    params, setting = priced_params(np.random.default_rng(0)), AssignerSetting(10, 2)
    export_assigner(params, out, setting, lambda rng, number: draw_instances(rng, LAW, number).costs)
    return out


@pytest.fixture(scope="module")
def trained(bundle) -> App:
    return App(made_service(lambda: load_policy(bundle)))


def test_a_trained_scheduler_answers_and_says_how_far_outside_a_question_is(trained, bundle):
    two = {"edges": EDGES, "requests": [request(0), request(1)], "s_per_mib": WAYS}
    status, answer = asked(trained, "/assign", two | {"bound": True})
    assert status == 200
    assert answer["makespan_s"] == pytest.approx(1.3)
    assert answer["outside"] == {"requests": 0.2, "edges": 1.0, "is_outside": False}
    assert "gap" in answer
    many = two | {"requests": [request(number) for number in range(101)], "deadline_ms": 1}
    assert asked(trained, "/assign", many)[1]["outside"] == {
        "requests": 10.1,
        "edges": 1.0,
        "is_outside": True,
    }
    assert asked(trained, "/assign", two | {"requests": []})[1]["assignment"] == {}
    assert asked(trained, "/assign", two | {"deadline_ms": 0})[0] == 200
    assert asked(trained, "/assign", two | {"requests": [request(0, edges=[])]})[0] == 400
    status, ready = asked(trained, "/readyz", method="GET")
    assert ready["content_hash"] == load_policy(bundle).content_hash


def test_the_network_is_where_the_search_begins():
    class Knowing(Assigner):
        def logits(self, costs):
            seen.append(costs.work_s.shape)
            return np.zeros(costs.work_s.shape)

    seen: list = []
    content = {"edges": EDGES, "requests": [request(0), request(1)], "s_per_mib": WAYS, "deadline_ms": 500}
    assert assign(content, Knowing(AssignerSetting(10, 2), {}))["makespan_s"] == pytest.approx(1.3)
    assert seen == [(2, 2)]


def test_endpoints_of_other_bundles_are_closed(trained):
    for path in ("/decide", "/filter", "/nodes", "/order"):
        status, answer = asked(trained, path, {})
        assert status == 404
        assert "/assign" in answer["error"]


def test_whatever_a_trained_scheduler_is_asked_is_answered(bundle):
    assigner = load_policy(bundle).assigner
    rng = np.random.default_rng(0)
    for number in range(20):
        edges = [
            {"name": str(one), "compute": [float(10.0 ** rng.uniform(-12, 12))], "local_s": (one % 2) * 1e12}
            for one in range(1 + number % 4)
        ]
        requests = [
            request(one, source=None, input_mib=float(10.0 ** rng.uniform(-6, 6))) for one in range(3)
        ]
        answer = assign({"edges": edges, "requests": requests, "deadline_ms": 20}, assigner)
        plain = assign({"edges": edges, "requests": requests, "deadline_ms": 0})
        assert answer["makespan_s"] <= plain["makespan_s"]


def test_what_a_scheduler_of_many_cannot_do_is_refused(bundle, tmp_path):
    assert load_policy(bundle, "onnx").assigner is not None
    with pytest.raises(ProductError, match="many requests at once"):
        load_policy(bundle, rule=bundle)
    for service in (
        ServiceConfig(shadow=True),
        ServiceConfig(canary=0.5),
        ServiceConfig(explore=0.1),
    ):
        with pytest.raises(ServingError, match="served as it is"):
            load_served(ServerConfig(bundle, service=service))
    with pytest.raises(ServingError, match="--log"):
        load_served(ServerConfig(bundle, log=tmp_path / "log"))
    assert load_served(ServerConfig(bundle)).assigner is not None
    with pytest.raises(ProductError, match="expected"):
        load_policy(bundle, expect="0" * 64)
    altered = tmp_path / "altered"
    shutil.copytree(bundle, altered)
    (altered / ARRAYS).write_bytes((altered / ARRAYS).read_bytes()[:-1] + b"x")
    with pytest.raises(ProductError, match="altered"):
        load_policy(altered)


def test_a_signed_scheduler_is_trusted(bundle, tmp_path):
    pytest.importorskip("cryptography")
    from tests.offline_rl.test_signing import key_files

    private, public = key_files(tmp_path, "maker")
    sign_bundle(bundle, private)
    assert load_policy(bundle, trust=public).assigner is not None
    with pytest.raises(ProductError, match="InvalidSignature"):
        load_policy(bundle, trust=key_files(tmp_path, "other")[1])
