"""Baselines: legal, deterministic where they should be, uniform where they should be."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import (
    BASELINES,
    CLOUD_ONLY,
    HOME,
    K8S_BALANCED,
    K8S_DEFAULT,
    K8S_LEAST_ALLOCATED,
    K8S_MOST_ALLOCATED,
    LEAST_BACKLOG,
    LEAST_LOADED,
    RANDOM,
)
from evaluation.baselines.kubernetes import (
    balanced_allocation,
    least_allocated,
    most_allocated,
    requested_shares,
)
from evaluation.simulator.presets import preset
from evaluation.simulator.vocabulary import cluster_of
from tests.evaluation.test_decisions import cluster as two_nodes
from twin.placement.features import NODE_FEATURES, request_features
from twin.placement.types import Observation

NAMES = [feature.name for feature in NODE_FEATURES]


def cluster():
    """Four nodes of four cores and 8 GiB at two sites."""
    capacity = np.array([[4.0] * 4, [8.0] * 4, [0.0] * 4])
    return replace(
        two_nodes(),
        node_names=tuple("abcd"),
        capacity=capacity,
        unit_capacity=capacity,
        site_of_node=np.array([0, 0, 1, 1]),
        is_cloud=np.zeros(4, bool),
        rules=np.ones((1, 4), bool),
    )


def observation(name, values):
    """One feature of [nodes] set, for one seat and no streams; the others are a decoy that would mislead."""
    values = jnp.asarray(values, jnp.float32)[:, None]
    decoy = jnp.broadcast_to(-values[None], (len(NAMES), *values.shape))
    return Observation(decoy.at[NAMES.index(name)].set(values), jnp.zeros((1, 1)))


def chosen(baseline, seen, legal):
    return int(baseline.policy(cluster())(jax.random.key(0), seen, jnp.asarray(legal)[:, None])[0])


def seen_as(**features):
    """An observation of nodes by feature name (0 where not named), one seat, no streams, and an empty request."""
    num_nodes = len(next(iter(features.values())))
    node = np.zeros((len(NAMES), num_nodes, 1), np.float32)
    for name, values in features.items():
        node[NAMES.index(name), :, 0] = values
    return Observation(jnp.asarray(node), jnp.zeros((len(request_features(cluster())), 1)))


def often_chosen(baseline, seen, legal=(True,) * 4, num_draws=40):
    """The nodes chosen over some keys."""
    policy, mask = baseline.policy(cluster()), jnp.asarray(legal)[:, None]
    keys = jax.random.split(jax.random.key(0), num_draws)
    return set(np.asarray(jax.vmap(lambda key: policy(key, seen, mask))(keys)).ravel().tolist())


def test_least_loaded_takes_the_largest_free_share_among_legal_nodes_and_any_of_equals():
    seen = observation("free_cpu_cores", [0.2, 0.9, 0.5, 0.5])
    assert often_chosen(LEAST_LOADED, seen) == {1}
    assert often_chosen(LEAST_LOADED, seen, [True, False, True, True]) == {2, 3}
    assert chosen(LEAST_LOADED, seen, [True, False, False, True]) == 3


def test_least_loaded_tells_full_nodes_apart_by_what_waits():
    seen = seen_as(free_cpu_cores=[0.0, 0.0, 0.0, 0.0], waiting_share=np.log1p([2.0, 0.5, 1.0, 3.0]))
    assert often_chosen(LEAST_LOADED, seen) == {1}


def test_least_backlog_takes_the_smallest_backlog_among_legal_nodes():
    seen = observation("backlog", [2.0, 0.1, 0.5, 0.5])
    assert chosen(LEAST_BACKLOG, seen, [True, True, True, True]) == 1
    assert often_chosen(LEAST_BACKLOG, seen, [True, False, True, True]) == {2, 3}


def test_home_stays_at_the_site_whatever_is_free_elsewhere():
    seen = seen_as(free_cpu_cores=[1.0, 0.1, 0.3, 0.9], same_site=[0, 1, 1, 0])
    assert often_chosen(HOME, seen) == {2}
    assert often_chosen(HOME, seen, [True, True, False, True]) == {1}
    assert often_chosen(HOME, seen, [True, False, False, True]) == {0}


def test_cloud_only_takes_the_cloud_whatever_is_free_at_the_edge():
    seen = seen_as(free_cpu_cores=[1.0, 0.1, 0.2, 0.2], is_cloud=[0, 1, 1, 1])
    assert often_chosen(CLOUD_ONLY, seen) == {2, 3}
    assert often_chosen(CLOUD_ONLY, seen, [True, True, False, False]) == {1}
    assert often_chosen(CLOUD_ONLY, seen, [True, False, False, False]) == {0}


def test_home_and_cloud_only_apply_where_there_is_such_a_choice():
    edge_cloud = cluster_of(preset("small"))
    one_site = replace(edge_cloud, sites=("here",), is_cloud=np.zeros(5, bool))
    assert HOME.applies(edge_cloud)
    assert CLOUD_ONLY.applies(edge_cloud)
    assert not HOME.applies(one_site)
    assert not CLOUD_ONLY.applies(one_site)


def test_kubernetes_scores_by_hand():
    """Cores 75 % and 30 %, memory 25 % and 150 %: 100 - 75 = 25 and 100 - 25 = 75 give 50; and so on."""
    shares = jnp.array([[0.75, 0.30, 0.29], [0.25, 1.50, 0.29]])
    np.testing.assert_array_equal(least_allocated(shares), [50.0, 35.0, 71.0])
    np.testing.assert_array_equal(most_allocated(shares), [50.0, 65.0, 29.0])
    np.testing.assert_array_equal(balanced_allocation(shares), [75.0, 65.0, 100.0])


def test_kubernetes_counts_what_runs_what_waits_and_what_is_asked_for():
    seen = seen_as(
        free_cpu_cores=[0.5] * 4,
        waiting_share=np.log1p([0.25] * 4),
        needed_share=[0.25] * 4,
        free_memory_gib=[0.75] * 4,
    )
    names = [feature.name for feature in request_features(cluster())]
    seen = seen._replace(request=seen.request.at[names.index("asked_memory_gib")].set(np.log1p(2.0)))
    cores, memory = requested_shares(cluster(), seen)
    np.testing.assert_allclose(cores[:, 0], 0.5 + 0.25 + 0.25, rtol=1e-6)
    np.testing.assert_allclose(memory[:, 0], 0.25 + 2.0 / 8.0, rtol=1e-6)


def test_kubernetes_prefers_room_now_then_the_empty_or_the_full_node():
    seen = seen_as(
        free_cpu_cores=[0.9, 0.4, 0.0, 0.1], needed_share=[0.2] * 4, free_memory_gib=[0.9, 0.4, 0.5, 0.1]
    )
    assert often_chosen(K8S_DEFAULT, seen) == {0}
    assert often_chosen(K8S_MOST_ALLOCATED, seen) == {1}  # 2 and 3 would be fuller, but there is no room
    assert often_chosen(K8S_MOST_ALLOCATED, seen, [True, False, True, True]) == {0}


def test_kubernetes_plugins_alone_and_together_disagree_where_they_should():
    """Cores and memory that would be asked for: 20 and 60 %, 45 and 45 %, 10 and 75 %, 70 and 30 %.

    Least allocated 60, 55, 57, 50; balanced 80, 100, 67, 80; their sum 140, 155, 124, 130.
    """
    needed, free_cores = 0.1, np.array([0.9, 0.65, 1.0, 0.4])
    free_memory = np.array([0.4, 0.55, 0.25, 0.7])
    seen = seen_as(free_cpu_cores=free_cores, needed_share=[needed] * 4, free_memory_gib=free_memory)
    shares = jnp.stack(requested_shares(cluster(), seen))[..., 0]
    np.testing.assert_array_equal(least_allocated(shares), [60.0, 55.0, 57.0, 50.0])
    np.testing.assert_array_equal(balanced_allocation(shares), [80.0, 100.0, 67.0, 80.0])
    assert often_chosen(K8S_LEAST_ALLOCATED, seen) == {0}
    assert often_chosen(K8S_BALANCED, seen) == {1}
    assert often_chosen(K8S_DEFAULT, seen) == {1}
    assert often_chosen(K8S_DEFAULT, seen, [True, False, True, True]) == {0}
    assert often_chosen(K8S_BALANCED, seen, [True, False, True, True]) == {0, 3}


def test_random_is_uniform_over_legal_nodes():
    legal = jnp.broadcast_to(jnp.array([True, False, True, True])[:, None, None], (4, 1, 30_000))
    node = RANDOM.policy(cluster())(jax.random.key(1), None, legal)
    counts = np.bincount(np.asarray(node).ravel(), minlength=4)
    assert counts[1] == 0
    expected = 10_000
    chi_square = np.sum((counts[[0, 2, 3]] - expected) ** 2 / expected)
    assert chi_square < 13.8  # 99.9 % of chi-square with two degrees of freedom


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.name)
def test_never_illegal_for_any_seats_and_streams(baseline):
    num_request = len(request_features(cluster()))
    key_node, key_legal, key_policy = jax.random.split(jax.random.key(2), 3)
    seen = Observation(jax.random.normal(key_node, (len(NAMES), 4, 2, 64)), jnp.zeros((num_request, 2, 64)))
    legal = jax.random.bernoulli(key_legal, 0.4, (4, 2, 64)).at[0].set(True)
    node = jax.jit(baseline.policy(cluster()))(key_policy, seen, legal)
    assert node.shape == (2, 64)
    assert node.dtype == jnp.int32
    assert bool(jnp.all(jnp.take_along_axis(legal, node[None], axis=0)))
