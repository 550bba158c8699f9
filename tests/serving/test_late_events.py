"""Events that come after the time of their request: they still count, and nothing that waits for them is unbounded."""

import asyncio
import heapq

import pytest

from offline_rl.runner import Request
from offline_rl.serving import cluster as cluster_module
from offline_rl.serving import placed as placed_module
from offline_rl.serving.cluster import PATIENCE_S, LiveCluster
from offline_rl.serving.errors import QueryError
from offline_rl.serving.plain import RequestEvent
from offline_rl.serving.policies import LedgerBooks, load_policy
from offline_rl.serving.queries import PlacementQuery
from tests.serving.bundles import make_bundle
from tests.serving.making import NAMES, made_policy, made_service, metric


def place(cluster: LiveCluster, identity: str, now_s: float, names=NAMES, run_s: float = 10.0) -> None:
    query = PlacementQuery(identity, now_s, Request(cpu_cores=2.0, requested_run_s=run_s), names)
    cluster.place(cluster.placement(query, cluster.view(query), names[0], now_s))


def held(cluster: LiveCluster) -> float:
    return cluster.view(PlacementQuery("q", 0.0, Request(), NAMES)).num_held.sum()


def test_starts_later_than_the_expected_end_are_heard_from_the_beginning():
    now, num_known = [0.0], 0
    service = made_service(clock=lambda: now[0])
    moments = []
    for number in range(200):
        asked_s = 5.0 * number
        for time_s, what in ((asked_s, "ask"), (asked_s + 30.0, None), (asked_s + 40.0, "completed")):
            heapq.heappush(moments, (time_s, number, str(what), what))

    async def live() -> None:
        nonlocal num_known
        while moments:
            now[0], number, _, what = heapq.heappop(moments)
            if what == "ask":
                await service.decide(
                    PlacementQuery(f"r{number}", now[0], Request(requested_run_s=10.0), NAMES)
                )
            else:
                num_known += service.report([RequestEvent(f"r{number}", now[0], None, what)]).known

    asyncio.run(live())
    assert num_known == 400
    assert metric(service, "unknown_events_total") == 0
    assert service.cluster.hears_events
    assert service.cluster.placements == {}


def test_a_late_event_revives_what_had_left_the_load_for_as_long_as_starts_are_waited_for():
    cluster = LiveCluster(made_policy())
    for identity in ("a", "b", "c"):
        place(cluster, identity, 0.0)
    assert (cluster.expire(10.0), held(cluster)) == (3, 0.0)
    assert not cluster.hears_events
    with pytest.raises(QueryError, match="before it was decided"):
        cluster.refuse_impossible(RequestEvent("a", -60.0, None, None))
    started = cluster.report(RequestEvent("a", 50.0, "node-2", None))
    assert (started.node, started.start_s, held(cluster)) == ("node-2", 50.0, 1.0)
    ended = cluster.report(RequestEvent("a", 60.0, None, "completed"))
    assert (ended.start_s, ended.finish_s, held(cluster)) == (50.0, 60.0, 0.0)
    assert cluster.expire(10.0 + PATIENCE_S - 1.0) == 0
    assert cluster.report(RequestEvent("b", 30.0, None, "rejected")) is not None
    assert cluster.hears_events
    cluster.expire(10.0 + PATIENCE_S)
    assert cluster.report(RequestEvent("c", 30.0, None, None)) is None


def test_the_propensity_of_a_request_that_is_over_already_reaches_its_outcome():
    cluster = LiveCluster(made_policy())
    place(cluster, "a", 0.0)
    placement = cluster.placements["a"]
    cluster.expire(10.0)
    cluster.weigh(placement, 0.25)
    assert cluster.report(RequestEvent("a", 11.0, None, None)).propensity == 0.25


def test_a_request_decided_again_is_no_longer_the_one_that_was_over():
    cluster = LiveCluster(made_policy())
    place(cluster, "a", 0.0)
    cluster.expire(10.0)
    place(cluster, "a", 20.0)
    assert cluster.report(RequestEvent("a", 25.0, None, "completed")).decided_s == 20.0
    assert cluster.report(RequestEvent("a", 25.0, None, "completed")) is None


def test_what_waits_for_late_events_is_bounded_in_requests_and_in_names(monkeypatch):
    monkeypatch.setattr(placed_module, "MAX_OVERDUE", 50)
    monkeypatch.setattr(cluster_module, "MAX_CANDIDATES", 1000)
    cluster = LiveCluster(made_policy())
    for number in range(100):
        place(cluster, f"r{number}", float(number), run_s=1.0)
        cluster.expire(number + 1.0)
    assert len(cluster._overdue) == 50
    for number in range(100):
        names = tuple(f"{number}-{index}" for index in range(100))
        place(cluster, f"s{number}", 100.0 + number, names, run_s=1.0)
        cluster.expire(101.0 + number)
    assert len(cluster._overdue) == 50
    assert cluster._sets.num_names <= 1100
    cluster.expire(1e6)
    assert (len(cluster._overdue), len(cluster._sets), cluster._sets.num_names) == (0, 0, 0)


def test_runs_are_learned_without_their_wait_before_starts_are_heard_too(tmp_path, monkeypatch):
    cluster, learned = LiveCluster(load_policy(make_bundle(tmp_path / "bundle"))), []
    monkeypatch.setattr(LedgerBooks, "_learn", lambda _self, _entry, run_s: learned.append(run_s))
    cluster.question(PlacementQuery("q", 0.0, Request(), NAMES), 0.0)
    now_s, heard = 0.0, []
    for number in range(100):  # nobody reports
        place(cluster, f"silent-{number}", now_s)
        now_s += 20.0
        cluster.expire(now_s)
    for number in range(60):
        place(cluster, f"r{number}", now_s)
        cluster.report(RequestEvent(f"r{number}", now_s + 300.0, None, None))
        heard.append(cluster.hears_events)
        cluster.report(RequestEvent(f"r{number}", now_s + 310.0, None, "completed"))
        now_s += 400.0
    assert (heard[0], heard[-1]) == (False, True)
    assert learned == [10.0] * 60
