"""The objective: worked by hand, against a loop, in JAX, and what must not change it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assignment.making import drawn, makespan_by_loop, plain_costs, small_costs
from twin.assignment import in_jax
from twin.assignment.instances import InstanceConfig, compute_s, draw_instances
from twin.assignment.objective import alone_s, completion_s, makespan_s


def test_a_round_by_hand():
    costs = plain_costs(
        [[1.0, 2.0], [3.0, 4.0], [1.5, 0.5]],
        source=[0, 0, 1],
        transfer_s=[[9.0, 2.5], [9.0, 0.7], [0.4, 9.0]],
        result_s=[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]],
        local_s=[2.0, 1.0],
        arriving_s=[0.5, 3.0],
        transferred_s=[0.25, 0.75],
        returning_s=[0.0, 0.55],
    )
    # both of edge 0 stay, that of edge 1 too: edge 0 computes 2 + 1 + 3; edge 1 has 1.5 and waits for 3
    assert completion_s(costs, np.array([0, 0, 1])) == pytest.approx([6 + 0.25 + 0.3, 3 + 0.75 + 0.6])
    # request 1 is sent to edge 1: it waits for what arrives at 3, then computes 4
    assert completion_s(costs, np.array([0, 1, 1])) == pytest.approx([3 + 0.25 + 0.1, 3 + 4.75 + 0.6])
    # all go the other way: edge 0 has 2 until then and computes 1.5, edge 1 waits for 3
    assert completion_s(costs, np.array([1, 1, 0])) == pytest.approx([2 + 1.75 + 0.5, 3 + 6.75 + 0.55])


def test_identical_machines_without_ways_are_a_sum():
    costs = plain_costs(np.ones((6, 3)))
    assert makespan_s(costs, np.array([0, 1, 2, 0, 1, 2])) == 2.0
    assert makespan_s(costs, np.array([[0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 2, 2]])) == pytest.approx([6.0, 2.0])


@given(costs=small_costs(), seed=st.integers(0, 1000))
def test_it_is_the_loop_over_edges(costs, seed):
    edge = np.random.default_rng(seed).integers(costs.work_s.shape[1], size=(4, len(costs.source)))
    assert makespan_s(costs, edge) == pytest.approx([makespan_by_loop(costs, one) for one in edge])


@given(costs=small_costs())
def test_one_request_alone_ends_when_its_row_says(costs):
    for request in range(len(costs.source)):
        only = costs._replace(**{name: getattr(costs, name)[request][None] for name in costs._fields[:4]})
        ends = [completion_s(only, np.array([edge]))[edge] for edge in range(len(costs.local_s))]
        assert alone_s(costs)[request] == pytest.approx(ends)


def test_jax_says_the_same():
    config = InstanceConfig(6, 4, 9)
    costs = draw_instances(np.random.default_rng(0), config, 5).costs
    edge = np.random.default_rng(1).integers(4, size=(5, 9))
    assert np.asarray(in_jax.completion_s(costs, edge)) == pytest.approx(completion_s(costs, edge), rel=1e-5)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_names_of_edges_and_requests_do_not_matter_and_time_scales(seed):
    costs, rng = drawn(seed).costs, np.random.default_rng(seed)
    edge = rng.integers(3, size=6)
    requests, edges = rng.permutation(6), rng.permutation(3)
    place = np.argsort(edges)
    pairs = (of_pair[requests][:, edges] for of_pair in costs[:3])
    other = type(costs)(*pairs, place[costs.source[requests]], *(leaf[edges] for leaf in costs[4:]))
    assert completion_s(other, place[edge[requests]]) == pytest.approx(completion_s(costs, edge)[edges])
    scaled = type(costs)(*(leaf if leaf is costs.source else 3.0 * leaf for leaf in costs))
    assert makespan_s(scaled, edge) == pytest.approx(3.0 * makespan_s(costs, edge))


def test_drawn_instances_keep_to_their_law():
    config = InstanceConfig(8, 3, 500, replicas=(2, 2), s_per_mib=(0.5, 0.5), backlogs=(0, 0), transfer_s=2.0)
    instance = draw_instances(np.random.default_rng(0), config, 2)
    edges, requests, costs = instance
    assert costs.work_s == pytest.approx(np.repeat(0.25 * requests.input_mib[..., None], 3, axis=2))
    assert not any(leaf.any() for leaf in edges[3:])
    stays = np.arange(3) == costs.source[..., None]
    assert not costs.transfer_s[stays].any()
    assert costs.transfer_s[~stays].min() > 0.0
    at_home = np.arange(3) == requests.predicted[..., None]
    assert not costs.result_s[at_home].any()
    assert np.mean(requests.predicted < 0) == pytest.approx(5 / 8, abs=0.05)
    assert compute_s(np.array([[1.0, 2.0, 3.0]]), np.array([2.0])) == pytest.approx(1 + 4 + 12)
