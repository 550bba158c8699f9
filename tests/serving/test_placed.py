"""What the memory of decided requests holds at most, and what is counted of that which it forgets."""

import asyncio

from offline_rl.runner import Request
from offline_rl.serving import cluster as cluster_module
from offline_rl.serving.cluster import LiveCluster
from offline_rl.serving.queries import PlacementQuery
from tests.serving.making import NAMES, made_policy, made_service, metric


def query(identity: str, names=NAMES) -> PlacementQuery:
    return PlacementQuery(identity, 0.0, Request(), names)


def test_equal_sets_of_candidates_of_requests_in_flight_are_kept_once():
    cluster = LiveCluster(made_policy())
    for number in range(10):
        asked = query(f"r{number}", names=tuple(f"guest-{index}" for index in range(100)))
        cluster.place(cluster.placement(asked, cluster.view(asked), "guest-0", 0.0))
        cluster.tallies._sets.clear()  # what is in flight outlasts it
    assert len({id(placement.query.names) for placement in cluster.placements.values()}) == 1
    assert (len(cluster._sets), cluster._sets.num_names) == (1, 100)


def test_requests_in_flight_that_are_forgotten_are_counted(monkeypatch):
    monkeypatch.setattr(cluster_module, "MAX_HELD", 3)
    service = made_service()
    for number in range(5):
        asyncio.run(service.decide(query(f"r{number}")))
    assert sorted(service.cluster.placements) == ["r2", "r3", "r4"]
    assert metric(service, 'forgotten_total{what="request"}') == 2
    assert metric(service, 'forgotten_total{what="candidates"}') == 0
