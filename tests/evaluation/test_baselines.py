"""Baselines: legal, deterministic where they should be, uniform where they should be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import BASELINES, LEAST_BACKLOG, LEAST_LOADED, RANDOM
from tests.evaluation.test_decisions import cluster
from twin.placement.features import NODE_FEATURES
from twin.placement.types import Observation

NAMES = [feature.name for feature in NODE_FEATURES]


def observation(name, values):
    """One feature of [nodes] set, for one seat and no streams; the others are a decoy that would mislead."""
    values = jnp.asarray(values, jnp.float32)[:, None]
    decoy = jnp.broadcast_to(-values[None], (len(NAMES), *values.shape))
    return Observation(decoy.at[NAMES.index(name)].set(values), jnp.zeros((1, 1)))


def chosen(baseline, seen, legal):
    return int(baseline.policy(cluster())(jax.random.key(0), seen, jnp.asarray(legal)[:, None])[0])


def test_least_loaded_takes_the_largest_free_share_among_legal_nodes():
    seen = observation("free_cpu_cores", [0.2, 0.9, 0.5, 0.5])
    assert chosen(LEAST_LOADED, seen, [True, True, True, True]) == 1
    assert chosen(LEAST_LOADED, seen, [True, False, True, True]) == 2
    assert chosen(LEAST_LOADED, seen, [True, False, False, True]) == 3


def test_least_backlog_takes_the_smallest_backlog_among_legal_nodes():
    seen = observation("backlog", [2.0, 0.1, 0.5, 0.5])
    assert chosen(LEAST_BACKLOG, seen, [True, True, True, True]) == 1
    assert chosen(LEAST_BACKLOG, seen, [True, False, True, True]) == 2


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
    key_node, key_legal, key_policy = jax.random.split(jax.random.key(2), 3)
    seen = Observation(jax.random.normal(key_node, (len(NAMES), 5, 2, 64)), jnp.zeros((1, 2, 64)))
    legal = jax.random.bernoulli(key_legal, 0.4, (5, 2, 64)).at[0].set(True)
    node = jax.jit(baseline.policy(cluster()))(key_policy, seen, legal)
    assert node.shape == (2, 64)
    assert node.dtype == jnp.int32
    assert bool(jnp.all(jnp.take_along_axis(legal, node[None], axis=0)))
