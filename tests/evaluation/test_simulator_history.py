"""What holds on every history: nothing lost, nothing beyond capacity, the same key the same bits."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.answers import CoreQueues, answer
from evaluation.simulator.arrivals import request_at
from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.conditions import conditions
from evaluation.simulator.history import play
from evaluation.simulator.laws import constant
from evaluation.simulator.logs import day_of, on_time
from evaluation.simulator.names import own_names
from evaluation.simulator.presets import preset
from tests.evaluation.worlds import interval, simulated

SMALL = replace(preset("small"), requests_per_day=1_200.0)
CROWDED = replace(preset("small"), requests_per_day=4_000.0, name="crowded")


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize(
    ("world", "name"),
    [
        (SMALL, "mix"),
        pytest.param(CROWDED, "random", marks=pytest.mark.slow),
        pytest.param(CROWDED, "cloud_only", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_and_no_core_serves_two(world, name):
    rows = day_of(simulated(world, name, num_streams=1), 0)
    accepted, start_s, finish_s = rows.fate.accepted, rows.fate.start_s, rows.fate.finish_s
    assert np.all(np.diff(rows.arrival_s) >= 0.0)
    assert np.all(np.isinf(start_s[~accepted]) & np.isinf(finish_s[~accepted]))
    assert np.all(start_s[accepted] >= rows.arrival_s[accepted])
    assert np.all((finish_s[accepted] > start_s[accepted]) & np.isfinite(finish_s[accepted]))
    assert 0 < np.sum(~accepted) < len(accepted)
    for index, node in enumerate(world.nodes):
        here = accepted & (rows.node == index)
        times = np.concatenate([finish_s[here], start_s[here]])
        change = np.repeat([-1, 1], here.sum())
        order = np.lexsort((change, times))  # at one instant, who leaves goes first
        running = np.cumsum(change[order])
        assert running.max(initial=0) <= node.cpu_cores
        if here.sum() > 200 and world is CROWDED:
            assert running.max() == node.cpu_cores


def test_same_seed_and_day_same_bits_whatever_days_stand_beside():
    rule = behaviour("mix")
    alone = play(SMALL, rule, [3.0, 3.0], seed=5)
    other = play(SMALL, rule, [2.0, 3.0], seed=5)
    for one, two in zip(leaves(day_of(alone, 0)), leaves(day_of(other, 1)), strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(leaves(day_of(alone, 0)), leaves(day_of(alone, 1)), strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(day_of(other, 0).arrival_s) != len(day_of(other, 1).arrival_s)
    assert not np.array_equal(play(SMALL, rule, [3.0, 3.0], seed=6).arrival_s[:50], alone.arrival_s[:50])


@partial(jax.jit, static_argnums=(0, 1))
def asked_and_answered(world, seed, today, names, free_s, uniform, clock_s, node):
    request = request_at(world, today, names, jnp.full((4, *clock_s.shape), uniform), clock_s, 0)
    queues, fate = answer(
        jax.random.key(seed), world, today, names, CoreQueues(free_s), request, clock_s, node
    )
    return queues.free_s, fate, request


def one_answer(today, names, free_s, node, world=SMALL):
    clock_s = np.array([100.0, 200.0, 300.0], np.float32)
    free_s, fate, _ = asked_and_answered(world, 1, today, names, free_s, np.float32(0.4), clock_s, node)
    return np.asarray(free_s), fate


@pytest.mark.parametrize("num_extra", [0, 2])
def test_permuting_or_padding_nodes_changes_nothing(num_extra):
    today, names = conditions(SMALL, 0.0), own_names(SMALL)
    cores, nodes = today.core_exists.shape
    random = np.random.default_rng(0)
    free_s = np.where(today.core_exists, random.uniform(0, 400, (cores, nodes)), np.inf).astype(np.float32)
    free_s = np.repeat(free_s[..., None], 3, axis=-1)
    node = np.array([1, 0, 4], np.int32)
    expected_free_s, expected = one_answer(today, names, free_s, node)

    # Extra nodes copy node 0
    order = np.concatenate([random.permutation(nodes), np.zeros(num_extra, np.int64)])
    place = np.argsort(order[:nodes])
    moved = today._replace(
        core_exists=today.core_exists[:, order],
        speed=today.speed[order],
        affinity=today.affinity[:, order],
        link=today.link[:, order],
    )
    wide = names._replace(world_node=np.arange(nodes + num_extra, dtype=np.int32))
    got_free_s, got = one_answer(moved, wide, free_s[:, order], place[node].astype(np.int32))
    for one, two in zip(leaves(expected), leaves(got), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)  # programs of two sizes may round differently
    np.testing.assert_allclose(got_free_s[:, place], expected_free_s, rtol=1e-6)


def test_one_stream_is_the_readable_rule():
    today, names = conditions(SMALL, 0.0), own_names(SMALL)
    free_s = np.where(today.core_exists, 250.0, np.inf).astype(np.float32)
    still = replace(SMALL, run=constant(), size=constant())
    always = today._replace(accepts=np.ones_like(today.accepts))
    node = 1
    free_s, fate, request = asked_and_answered(
        still, 0, always, names, free_s, np.float32(0.3), np.float32(200.0), np.int32(node)
    )
    run_s = float(request.expected_run_s) / float(
        today.speed[node] * today.affinity[int(request.service), node]
    )
    assert float(fate.start_s) == 250.0  # input is there within a second; both cores are busy until 250 s
    assert float(fate.finish_s) == pytest.approx(250.0 + run_s, rel=1e-5)
    assert sorted(np.asarray(free_s)[:2, node]) == [250.0, pytest.approx(250.0 + run_s, rel=1e-5)]


def share_on_time(world, name, day, num_streams):
    rows = simulated(world, name, day=day, num_streams=num_streams, seed=int(day) + 1)
    return np.array([on_time(day_of(rows, column)).mean() for column in range(num_streams)])


@pytest.mark.slow
@pytest.mark.parametrize("day", [0.0, 30.0])
def test_easy_policies_are_told_apart_in_edge(day):
    """The cloud is finite, home is small, so neither is an answer; knowing the mechanics beats counting."""
    edge = preset("edge")
    least_gaps = {
        ("fewest_per_core", "home"): 0.05,
        ("fewest_per_core", "cloud_only"): 0.05,
        ("fewest_per_core", "mix"): 0.02,
        ("mix", "random"): 0.1,
        ("least_expected_delay", "fewest_per_core"): 0.02,
    }
    names = sorted({name for pair in least_gaps for name in pair})
    found = {name: interval(share_on_time(edge, name, day, 4)) for name in names}
    for (better, worse), least_gap in least_gaps.items():
        gap = found[better][0] - found[worse][0]
        assert gap > least_gap, (better, worse, found)
        assert gap > 2 * np.hypot(found[better][1], found[worse][1])
