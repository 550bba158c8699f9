"""The filter of run times: settings by the log's own forecasts, levels along a log, never worse than no memory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.calendar import DAY_S
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.encode import cut_windows
from twin.placement.history import answers_of_history
from twin.placement.replay import replayed_answers
from twin.placement.responses import drawn_response
from twin.placement.run_filter import (
    DRIFT_PER_DAY,
    FAST,
    SLOW,
    LoggedRuns,
    NodeLevel,
    RunDynamics,
    fit_dynamics,
    fresh_level,
    later,
    levels_along,
    predicted_likelihood,
    updated_levels,
)
from twin.placement.types import COMPLETED, FAILED
from twin.placement.windows import replayed_arrivals
from twin.rollout import follow

NUM_RUNS, NUM_NODES = 4_000, 3


def runs_of(random, residual_at) -> LoggedRuns:
    """Requests every twenty seconds that run for a minute; `residual_at` (node, arrival) gives their residuals."""
    arrival_s = np.cumsum(random.exponential(20.0, NUM_RUNS))
    node = random.integers(0, NUM_NODES, NUM_RUNS)
    return LoggedRuns(arrival_s, arrival_s + 60.0, node, residual_at(node, arrival_s))


def slow_now(random, periods_s=(3_000.0, 1_000.0)):
    """[instants] -> whether each node is slow, by alternating periods of these mean lengths."""
    changes = [np.cumsum(random.exponential(np.tile(periods_s, 60))) for _ in range(NUM_NODES)]
    return lambda node, at_s: np.array(
        [np.searchsorted(changes[one], instant) % 2 for one, instant in zip(node, at_s, strict=True)], float
    )


def advantage(dynamics: RunDynamics, runs: LoggedRuns) -> float:
    """Share of the squared residuals that the filter's forecasts explain; below 0: they do harm."""
    level = levels_along(dynamics, runs, NUM_NODES, runs.arrival_s).mean.sum(axis=0)
    expected = level[runs.node, np.arange(len(runs.node))]
    return float(1.0 - np.mean((runs.residual - expected) ** 2) / np.mean(runs.residual**2))


@pytest.mark.parametrize("tails", ["normal", "student"])
def test_a_log_without_memory_gets_none(tails):
    random = np.random.default_rng(0)
    draw = random.standard_normal if tails == "normal" else lambda size: random.standard_t(2.0, size)
    runs, again = (runs_of(random, lambda node, _: 0.3 * draw(len(node))) for _ in range(2))
    found = fit_dynamics(runs, NUM_NODES)
    assert found.node_variance == 0.0
    assert found.drift_per_day == DRIFT_PER_DAY
    assert (found.moves, found.moved) == (True, False)  # followed in case later days move
    assert advantage(found, again) > -0.005


@pytest.mark.parametrize("tails", ["normal", "student"])
def test_slow_periods_are_found_and_followed(tails):
    random = np.random.default_rng(1)
    draw = random.standard_normal if tails == "normal" else lambda size: 0.7 * random.standard_t(3.0, size)

    def residual(node, at_s):
        return slow_now(random)(node, at_s) - 0.25 + 0.3 * draw(len(node))

    runs, again = runs_of(random, residual), runs_of(random, residual)
    found = fit_dynamics(runs, NUM_NODES)
    assert found.node_variance > 0.02
    assert found.moved
    assert 120.0 <= found.node_memory_s <= 3_000.0
    assert advantage(found, again) > 0.3


def test_what_moves_faster_than_supposed_is_followed_faster():
    random = np.random.default_rng(2)
    wander = np.cumsum(random.normal(0.0, 0.3 * np.sqrt(20.0 / DAY_S), (NUM_RUNS, NUM_NODES)), axis=0)

    def residual(node, _):
        return wander[np.arange(NUM_RUNS), node] + 0.2 * random.standard_normal(NUM_RUNS)

    runs = runs_of(random, residual)
    found = fit_dynamics(runs, NUM_NODES)
    assert found.moved
    still = RunDynamics(found.scatter, found.offset, 0.0, 600.0, DRIFT_PER_DAY)
    assert advantage(found, runs) > advantage(still, runs) + 0.03


def test_few_runs_tell_nothing():
    runs = LoggedRuns(np.arange(20.0), np.arange(20.0) + 1.0, np.zeros(20, int), np.zeros(20))
    assert not fit_dynamics(runs, 1).moves
    unknown = LoggedRuns(*(np.concatenate([leaf, leaf]) for leaf in runs))._replace(
        residual=np.full(40, np.nan)
    )
    assert not fit_dynamics(unknown, 1).moves


def test_one_run_that_is_a_thousand_times_as_long_counts_as_two_deviations():
    dynamics = RunDynamics(scatter=0.09, node_variance=0.09, node_memory_s=1e9, drift_per_day=1e-9)
    runs = LoggedRuns(np.array([0.0]), np.array([10.0]), np.array([0]), np.array([7.0]))
    level = levels_along(dynamics, runs, 1, np.array([20.0]))
    np.testing.assert_allclose(level.mean[:, 0, 0], [0.0, 0.5 * 2.0 * 0.18**0.5], rtol=1e-4, atol=1e-9)


def test_levels_forget_and_doubt_grows():
    dynamics = RunDynamics(0.1, 0.0, 0.2, 100.0, 0.5, aged_per_day=0.3)
    level = fresh_level(dynamics, (1,))
    told = updated_levels(dynamics, level, np.array([0.3]), np.array([1.0]))
    assert told.variance[FAST] < level.variance[FAST]
    later_on = later(dynamics, told, 1_000.0)
    assert abs(later_on.mean[FAST, 0]) < 1e-4
    np.testing.assert_allclose(later_on.variance[FAST], 0.2, rtol=1e-3)
    np.testing.assert_allclose(
        later_on.variance[SLOW] - told.variance[SLOW], 0.25 / DAY_S * 1_000.0, rtol=1e-3
    )
    np.testing.assert_allclose(fresh_level(dynamics, (1,), DAY_S).variance[SLOW], 0.09)


def test_forecasts_know_nothing_of_their_own_run():
    """A run is predicted by what ended before it came; a wild one changes the forecasts of later runs alone."""
    random = np.random.default_rng(3)
    runs = runs_of(random, lambda node, _: 0.3 * random.standard_normal(len(node)))
    dynamics = RunDynamics(0.1, 0.0, 0.2, 1_000.0, DRIFT_PER_DAY)
    wild = runs.residual.copy()
    wild[100] = 5.0
    same = (
        predicted_likelihood([dynamics], runs, NUM_NODES)[0]
        == predicted_likelihood([dynamics], runs._replace(residual=wild), NUM_NODES)[0]
    )
    ended_s = runs.finish_s[100]
    others = (np.arange(NUM_RUNS) != 100) & (runs.arrival_s < ended_s)
    assert same[others].all()
    assert not same[100]
    assert not same[(runs.arrival_s > ended_s) & (runs.node == runs.node[100])][0]


def test_windows_begin_with_what_the_books_would_know():
    """The state that the log's own replay reaches in a window is the one that the next window begins with."""
    cluster = replace(made_cluster(), dynamics=RunDynamics(0.2, 0.05, 0.1, 60.0, 0.5))
    cluster = replace(cluster, run_variance=np.zeros_like(cluster.run_variance))
    encoding = replace(made_encoding(cluster), problem=replace(made_encoding(cluster).problem, depth=32))
    rows = made_rows(np.random.default_rng(5), cluster, 96)
    anywhere = rows.request._replace(
        demand=np.zeros_like(rows.request.demand), rule=np.zeros_like(rows.request.rule)
    )
    begin_s = rows.arrival_s[0] - (encoding.trained_until_s - DAY_S)  # within the training days
    rows = rows._replace(
        arrival_s=rows.arrival_s - begin_s,
        start_s=rows.start_s - begin_s,
        finish_s=rows.finish_s - begin_s,
        request=anywhere,
    )
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=48)
    table = answers_of_history(windows, encoding)
    response = drawn_response(cluster, 32, replayed_arrivals(windows), replayed_answers(windows, table))
    problem = placement(cluster, encoding.problem)
    system = environment(problem._replace(observe=lambda state: state.levels.node), response)
    actions = jnp.maximum(jnp.asarray(windows.node), 0)[:, None]
    run = jax.jit(lambda taken: follow(jax.random.key(0), system, taken, (windows.num_windows,)).observation)
    played: NodeLevel = jax.tree.map(np.asarray, run(actions))
    assert np.abs(played.mean[..., 0]).max() > 0.02
    times = rows.arrival_s[windows.row[:, 0]]
    table_s = rows.request.expected_run_s * cluster.run_ratio[rows.request.service, rows.node]
    with np.errstate(divide="ignore", invalid="ignore"):
        usual = np.log((rows.finish_s - rows.start_s) / table_s)
    known = np.isin(rows.status, (COMPLETED, FAILED)) & np.isfinite(usual)
    runs = LoggedRuns(rows.arrival_s, rows.finish_s, rows.node, np.where(known, usual, np.nan))
    along = levels_along(cluster.dynamics, runs, cluster.num_nodes, times)
    np.testing.assert_allclose(np.moveaxis(along.mean, -1, 0), played.mean[:, ..., 0], atol=2e-3)
    np.testing.assert_allclose(np.moveaxis(along.variance, -1, 0), played.variance[:, ..., 0], rtol=2e-2)
    np.testing.assert_allclose(windows.level.mean[..., 1], played.mean[47, ..., 0], atol=0.1)
