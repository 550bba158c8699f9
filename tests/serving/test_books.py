"""Questions of the server's books, which are answered later and in another thread, and books that are opened again."""

from functools import partial

import numpy as np
import pytest

from offline_rl.runner import Held, Node, Policy, Request
from offline_rl.runner.features import RECENT_STARTS, RECENT_WAIT
from offline_rl.serving.cluster import LiveCluster
from offline_rl.serving.plain import RequestEvent
from offline_rl.serving.policies import LedgerBooks, ServedPolicy, facts_of
from offline_rl.serving.queries import PlacementQuery
from tests.serving.bundles import drawn_policy
from tests.serving.making import NAMES

NODES = tuple(map(Node, NAMES))
RESIZE, DETECT = Request(service="resize"), Request(service="detect")
ONE_AT_A_TIME = [[0] * 4, [1] * 4, [1] * 4]
"""[services][nodes] of `concurrency`."""


def _served(policy: Policy) -> ServedPolicy:
    return ServedPolicy(
        "drawn", facts_of(policy), partial(LedgerBooks, policy), True, expected_run_s=policy.expected_run_s
    )


def _query(identity: str, request: Request = RESIZE) -> PlacementQuery:
    return PlacementQuery(identity, 0.0, request, NAMES)


def _place(cluster: LiveCluster, identity: str, node: str, now_s: float, request: Request = RESIZE) -> None:
    query = _query(identity, request)
    cluster.place(cluster.placement(query, cluster.view(query), node, now_s))


@pytest.fixture
def busy() -> LedgerBooks:
    """Books of nodes that run one request of a service at a time, and one that does."""
    books = LedgerBooks(drawn_policy(concurrency=ONE_AT_A_TIME), NODES, 0.0)
    books.hold("a", "node-1", Held(0.0, 0.0, 100.0, "resize"))
    return books


def test_a_question_waits_for_places_of_its_own_service_whatever_is_asked_after_it(busy):
    question = busy.question(RESIZE, 1.0)
    before = question().scores
    other = busy.question(DETECT, 1.0)
    np.testing.assert_array_equal(question().scores, before)
    assert not np.array_equal(other().scores, before)


def test_nodes_that_a_question_describes_are_waited_for_as_those_of_the_books(busy):
    expected = busy.question(RESIZE, 1.0)()
    told = busy.question(RESIZE, 1.0, NODES)()
    np.testing.assert_array_equal(told.scores, expected.scores)
    assert told.num_out_of_range == expected.num_out_of_range
    turned = busy.question(RESIZE, 1.0, NODES[::-1])()
    np.testing.assert_allclose(turned.scores[::-1], expected.scores, rtol=1e-5)


def test_waits_that_were_seen_fade_on_when_books_are_opened_again():
    cluster = LiveCluster(_served(drawn_policy()))
    cluster.question(_query("first"), 0.0)
    _place(cluster, "a", "node-1", 0.0)
    cluster.report(RequestEvent("a", 60.0, None, None))
    now = cluster._open(100.0).load(100.0)
    assert now[RECENT_STARTS].tolist() == [0.0, 1.0, 0.0, 0.0]
    _place(cluster, "b", "node-2", 100.0)
    cluster.report(RequestEvent("b", 110.0, None, None))
    cluster.stock([*NODES[:3], Node("new", cpu_cores=4.0)])
    then = cluster._open(400.0).load(400.0)
    fading = np.exp(-1.0)  # memory_s of the setting
    assert then[RECENT_STARTS].tolist() == pytest.approx([0.0, fading, 1.0, 0.0, 0.0])
    assert then[RECENT_WAIT].tolist() == pytest.approx([0.0, 60.0 * fading, 10.0, 0.0, 0.0])


COLD = {"memory_s": 100.0, "startup_s": [0.0, 0.0, 20.0]}
MOVING = {"scatter": 0.1, "offset": 0.0, "node_variance": 0.1, "node_memory_s": 1e6}
MOVING |= {"drift_per_day": 0.0, "aged_per_day": 0.0}


@pytest.mark.parametrize("hears", [True, False])
def test_a_reported_start_leaves_the_books_as_those_that_were_told_at_once(hears):
    """Of a run of which nobody knows whether it began cold nothing is learned, also where its start was reported."""
    policy = drawn_policy(
        cold_starts=COLD, run_dynamics=MOVING, wakes={"after_s": [5.0] * 4, "wake_s": [9.0] * 4}
    )
    cluster, books = LiveCluster(_served(policy)), LedgerBooks(policy, NODES, 0.0)
    cluster._reported, cluster._num_left = float(hears), 1000
    cluster.question(_query("q", DETECT), 0.0)
    books.question(DETECT, 0.0)
    _place(cluster, "a", "node-1", 1.0, DETECT)
    for time_s in (2.0, 2.5):  # an event that is sent again changes nothing
        cluster.report(RequestEvent("a", time_s, None, None))
    held = Held(1.0, None if hears else 2.0, policy.expected_run_s(DETECT), "detect")
    books.hold("a", "node-1", held)
    books.start("a", 2.0)
    for clock_s in (3.0, 4.0):
        np.testing.assert_array_equal(
            cluster.question(_query("q", DETECT), clock_s)().scores, books.question(DETECT, clock_s)().scores
        )
    cluster.report(RequestEvent("a", 42.0, None, "completed"))
    books.finish("a", 42.0)
    found, expected = cluster.question(_query("q", DETECT), 60.0)(), books.question(DETECT, 60.0)()
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_where_ends_alone_are_reported_runs_are_no_waits():
    cluster = LiveCluster(_served(drawn_policy()))
    cluster.question(_query("first"), 0.0)
    for number, node in enumerate(("node-1", "node-1", "node-2")):
        _place(cluster, f"r{number}", "node-1", 10.0 * number)
        cluster.report(RequestEvent(f"r{number}", 10.0 * number + 9.0, node, "completed"))
    assert cluster.hears_events
    load = cluster._open(30.0).load(30.0)
    assert not load[RECENT_WAIT].any()
    assert not load[RECENT_STARTS].any()
    assert cluster.placements == {}
    assert cluster._books._entries == {}
