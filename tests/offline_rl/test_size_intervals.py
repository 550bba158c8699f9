"""Size intervals: queues as Pollaczek and Khinchine say, equal load, and requests of one size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.rules.size_intervals import fit_size_intervals, size_intervals, size_intervals_of, strength_of
from tests.offline_rl.bundles import made_system
from twin.placement.features import NODE_FEATURES, NUMERIC_REQUEST_FEATURES
from twin.placement.types import Observation

LEAST, LARGEST, SHAPE = 1.0, 100.0, 1.1
LOAD, NUM_JOBS = 0.7, 1_000_000


def observed(size, num_nodes):
    """Requests of these core-times in hand, one a stream: a fourth of the time, on four cores."""
    rows = {feature.name: np.zeros(len(size)) for feature in NUMERIC_REQUEST_FEATURES}
    rows |= {"expected_run": np.log1p(size / 4.0), "asked_cpu_cores": np.full(len(size), np.log1p(4.0))}
    node = jnp.zeros((len(NODE_FEATURES), num_nodes, 1, 1))  # nothing of it is read
    return Observation(node, jnp.asarray(np.stack(list(rows.values())), jnp.float32)[:, None])


def decided(intervals, size, legal=None):
    """[requests] the nodes."""
    num_nodes = len(intervals.first)
    seen = observed(np.asarray(size, float), num_nodes)
    allowed = jnp.asarray([True] * num_nodes if legal is None else legal)[:, None, None]
    allowed = jnp.broadcast_to(allowed, (num_nodes, 1, len(size)))
    return np.asarray(size_intervals(intervals)(jax.random.key(0), seen, allowed))[0]


def moment(power, low, high):
    """The part of E[X ** power] from `low` to `high` of a bounded Pareto law."""
    scale = SHAPE * LEAST**SHAPE / (1.0 - (LEAST / LARGEST) ** SHAPE)
    return scale * (high ** (power - SHAPE) - low ** (power - SHAPE)) / (power - SHAPE)


def mean_wait(arrival, run):
    """Of a queue of one server, first come, first served: Lindley's recursion, written as a running minimum."""
    walk = np.concatenate([[0.0], np.cumsum(run[:-1] - np.diff(arrival))])
    return float(np.mean(walk - np.minimum.accumulate(walk)))


@pytest.mark.slow
def test_two_servers_wait_as_pollaczek_and_khinchine_say_far_less_than_at_random():
    """Poisson arrivals of bounded Pareto sizes; the cut is where each side has half of the work."""
    rng = np.random.default_rng(0)
    tail = 1.0 - (LEAST / LARGEST) ** SHAPE
    size = LEAST * (1.0 - rng.random(NUM_JOBS) * tail) ** (-1.0 / SHAPE)
    rate = 2.0 * LOAD / moment(1, LEAST, LARGEST)
    arrival = np.cumsum(rng.exponential(1.0 / rate, NUM_JOBS))
    node = decided(fit_size_intervals(size, np.ones(2)), size)
    power = 1.0 - SHAPE
    cut = ((LEAST**power + LARGEST**power) / 2.0) ** (1.0 / power)
    assert size[node == 0].max() == pytest.approx(size[node == 1].min(), rel=1e-2)
    assert size[node == 1].min() == pytest.approx(cut, rel=0.05)
    for one, (low, high) in enumerate(((LEAST, cut), (cut, LARGEST))):
        own = node == one
        wait = rate * moment(2, low, high) / (2.0 * (1.0 - LOAD))
        assert mean_wait(arrival[own], size[own]) == pytest.approx(wait, rel=0.1)
    at_random = rate / 2.0 * moment(2, LEAST, LARGEST) / (2.0 * (1.0 - LOAD))
    means = [np.mean(node == one) * mean_wait(arrival[node == one], size[node == one]) for one in range(2)]
    assert sum(means) < at_random / 2.5


def test_work_follows_the_strength_of_nodes_small_requests_go_to_weak_ones():
    size = np.random.default_rng(1).lognormal(0.0, 1.5, 20_000)
    strength = np.array([8.0, 1.0, 3.0])
    node = decided(fit_size_intervals(size, strength), size)
    work = np.bincount(node, weights=size)
    np.testing.assert_allclose(work / work.sum(), strength / strength.sum(), atol=0.01)
    assert size[node == 1].max() <= size[node == 2].min() * 1.01 < size[node == 0].min() * 1.03


@pytest.mark.slow
def test_requests_of_one_size_are_drawn_and_what_is_not_legal_goes_to_the_neighbour():
    intervals = fit_size_intervals(np.full(4_000, 2.0), np.ones(4))
    share = np.bincount(decided(intervals, np.full(4_000, 2.0)), minlength=4) / 4_000
    np.testing.assert_allclose(share, 0.25, atol=0.03)
    assert set(decided(intervals, np.full(400, 2.0), [True, False, True, False]).tolist()) == {0, 2}
    assert decided(intervals, [1.0, 3.0]).tolist() == [0, 3]  # smaller and larger than any of the log
    assert decided(fit_size_intervals(np.zeros(3), np.ones(2)), [1.0]).tolist() == [0]  # no size is known


def test_a_log_gives_its_sizes_and_strengths():
    encoding, windows = made_system(num_steps=32, num_windows=2)
    cluster, unit_s = encoding.cluster, encoding.problem.time_unit_s
    strength = strength_of(cluster)
    assert np.all(np.isfinite(strength) & (strength > 0.0))
    size = np.asarray(windows.request.expected_run_s * windows.request.demand[0])[windows.valid()] / unit_s
    policy = size_intervals_of(windows, cluster, unit_s)
    seen = observed(size, cluster.num_nodes)
    found = policy(jax.random.key(0), seen, jnp.ones((cluster.num_nodes, 1, len(size)), bool))[0]
    np.testing.assert_array_equal(found, decided(fit_size_intervals(size, strength), size))
