"""Several regions under one scheduler: a single one, and one for every edge, are what they are without regions."""

import numpy as np
import pytest
from hypothesis import given

from offline_rl.assignment.by_regions import by_regions, neighbouring, over_regions, within
from offline_rl.assignment.insertion import insertion
from tests.assignment.making import drawn, makespan_by_loop, plain_costs, small_costs
from twin.assignment.objective import makespan_s


@given(small_costs())
def test_one_region_and_a_region_an_edge_are_the_flat_scheduler(costs):
    flat = insertion(costs)
    num_edges = len(costs.local_s)
    np.testing.assert_array_equal(by_regions(costs, np.zeros(num_edges, int)), flat)
    np.testing.assert_array_equal(by_regions(costs, np.arange(num_edges)), flat)


@given(small_costs())
def test_every_request_goes_where_its_service_is_hosted(costs):
    region = np.arange(len(costs.local_s)) // 2
    edge = by_regions(costs, region)
    assert np.isfinite(costs.work_s[np.arange(len(edge)), edge]).all()


def test_a_region_takes_what_its_edges_take_together():
    """Two edges of 2 s and 2 s are one of 1 s; who hosts nothing adds nothing."""
    costs = plain_costs([[2.0, 2.0, 3.0, np.inf]], source=[3], local_s=[1.0, 3.0, 0.0, 8.0])
    above = over_regions(costs, np.array([0, 0, 1, 1]))
    assert above.work_s.tolist() == [[1.0, 3.0]]
    assert above.local_s.tolist() == [2.0, 4.0]
    assert above.source.tolist() == [1]


def test_a_region_sees_its_own_requests_and_edges():
    costs = plain_costs([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], source=[2, 0])
    own = within(costs, np.array([0, 1]), np.array([1, 2]))
    assert own.work_s.tolist() == [[2.0, 3.0], [5.0, 6.0]]
    assert own.source.tolist() == [1, -1]


@pytest.mark.parametrize("num_regions", [1, 3, 4, 9])
def test_neighbouring_edges_share_a_region(num_regions):
    rng = np.random.default_rng(0)
    xy = rng.random((9, 2))
    region = neighbouring(xy, num_regions)
    assert sorted(set(region.tolist())) == list(range(num_regions))
    assert np.ptp(np.bincount(region)) <= 5 - num_regions // 2 or num_regions == 9
    apart = np.array([[0.0, 0.0], [9.0, 0.0], [0.1, 0.0], [9.1, 0.0]])
    assert neighbouring(apart, 2).tolist() == [0, 1, 0, 1]


def test_regions_of_neighbours_cost_little():
    """20 edges in 4 regions, 200 requests: the makespan grows by an eighth, by a third where regions are not places."""
    ratios = []
    for seed in range(4):
        instance = drawn(seed, 20, 200, backlogs=(0, 0))
        near = neighbouring(instance.edges.xy, 4)
        flat_s = makespan_s(instance.costs, insertion(instance.costs))
        found = [
            by_regions(instance.costs, one) for one in (near, np.random.default_rng(seed).permutation(near))
        ]
        assert makespan_s(instance.costs, found[0]) == pytest.approx(
            makespan_by_loop(instance.costs, found[0])
        )
        ratios.append([makespan_s(instance.costs, edge) / flat_s for edge in found])
    near, anywhere = np.mean(ratios, axis=0)
    assert near < 1.2
    assert near < anywhere
