"""Tides of run times: against Gaussian process regression, found where they are and nowhere else, seen by answers
alone."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.arrays import save_arrays
from twin.placement import tides
from twin.placement.crowding import CrowdedRuns
from twin.placement.encode import cut_windows
from twin.placement.history import labelled_offers, replay_log
from twin.placement.learned import NUM_PENDING
from twin.placement.model import load_windows
from twin.placement.tides import Tide, drawn_tide, fit_tides, node_tides_along, tide_along, tide_in

NUM_ROWS = 6_000


def arrivals(random: np.random.Generator, num_rows: int = NUM_ROWS) -> np.ndarray:
    return np.cumsum(random.exponential(2.0, num_rows))


def regimes(random: np.random.Generator, at_s: np.ndarray, factor: float = 5.0) -> np.ndarray:
    """log of a factor that holds for five minutes of every half an hour, at random."""
    lengths = random.exponential(np.tile([1_500.0, 300.0], 200))
    return np.log(factor) * (np.searchsorted(np.cumsum(lengths), at_s) % 2)


@pytest.mark.parametrize(("num_nodes", "at_once"), [(1, 1), (3, 60), (3, 1_000)])
def test_tides_are_what_gaussian_process_regression_on_all_other_runs_says(
    num_nodes: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tides, "MOST_AT_ONCE", at_once)
    random = np.random.default_rng(0)
    at_s, tide = arrivals(random, 30), Tide(0.3, 20.0, 0.2, offset=0.1, most=9.0)
    residual, node = random.normal(0.1, 0.7, 30), random.integers(0, num_nodes, 30)
    residual[[4, 5, 17]] = np.nan
    prior = tide.variance * np.exp(-np.abs(at_s[:, None] - at_s) / tide.memory_s)
    wanted = np.empty((num_nodes, 30))
    for row in range(30):
        for here in range(num_nodes):
            others = np.flatnonzero(np.isfinite(residual) & (node == here) & (np.arange(30) != row))
            seen = prior[np.ix_(others, others)] + tide.scatter * np.eye(len(others))
            told = np.linalg.solve(seen, residual[others] - tide.offset)
            wanted[here, row] = prior[row, others] @ told
    found = node_tides_along(tide, at_s, residual, node, num_nodes)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_run_does_not_tell_of_its_own_tide() -> None:
    random = np.random.default_rng(1)
    at_s, tide = arrivals(random, 50), Tide(0.3, 20.0, 0.2)
    residual = random.normal(0.0, 0.7, 50)
    other = residual.copy()
    other[20] = -residual[20]
    one, two = (tide_along(tide, at_s, column) for column in (residual, other))
    assert one[20] == two[20]
    assert np.all(one[[19, 21]] != two[[19, 21]])


def test_regimes_under_heavy_scatter_are_found() -> None:
    random = np.random.default_rng(2)
    at_s = arrivals(random)
    hidden = regimes(random, at_s)
    residual = hidden + 1.3 * random.standard_t(4.0, NUM_ROWS)
    found = tide_in(at_s, residual, np.zeros(NUM_ROWS, int), 1)
    assert found.variance > 0.0
    assert np.corrcoef(tide_along(found, at_s, residual), hidden)[0, 1] > 0.75


def runs_of(
    random: np.random.Generator, residual: np.ndarray, at_s: np.ndarray, node: np.ndarray
) -> CrowdedRuns:
    """Runs that begin at once and crowd nobody."""
    usual_s = np.full(len(residual), 1.0)
    return CrowdedRuns(at_s, at_s, at_s + 1.0, node, np.zeros(len(residual), int), usual_s, residual)


@pytest.mark.slow
def test_slow_periods_of_nodes_are_told_from_what_rises_everywhere() -> None:
    random = np.random.default_rng(6)
    at_s, node = arrivals(random), random.integers(0, 4, NUM_ROWS)
    slow = np.stack([regimes(random, at_s, 3.0) for _ in range(4)])
    residual = slow[node, np.arange(NUM_ROWS)] + 0.3 * random.standard_normal(NUM_ROWS)
    for hidden in (np.zeros(NUM_ROWS), regimes(random, at_s)):
        both = residual + hidden
        everywhere, on_nodes = fit_tides(runs_of(random, both, at_s, node), np.zeros(0), 4)
        assert on_nodes.variance > 0.0
        tide = tide_along(everywhere, at_s, both)
        assert not hidden.any() or np.corrcoef(tide, hidden)[0, 1] > 0.8
        found = node_tides_along(on_nodes, at_s, both - tide, node, 4)
        least = min(np.corrcoef(found[one], slow[one])[0, 1] for one in range(4))
        assert least > (0.5 if hidden.any() else 0.75)
    assert fit_tides(runs_of(random, residual, at_s, 0 * node), np.zeros(0), 1)[1].variance == 0.0
    weak = 0.15 * slow[node, np.arange(NUM_ROWS)] + 0.3 * random.standard_normal(NUM_ROWS)
    assert tide_in(at_s, weak, node, 4).variance > 0.0
    assert fit_tides(runs_of(random, weak, at_s, node), np.zeros(0), 4)[1].variance == 0.0


@pytest.mark.parametrize("tails", ["normal", "student", "none of them known", "few"])
def test_where_nothing_rises_and_falls_there_is_no_tide(tails: str) -> None:
    random = np.random.default_rng(3)
    at_s, node = arrivals(random), random.integers(0, 4, NUM_ROWS)
    residual = {
        "normal": random.standard_normal(NUM_ROWS),
        "student": random.standard_t(2.0, NUM_ROWS),
        "none of them known": np.full(NUM_ROWS, np.nan),
        "few": np.where(np.arange(NUM_ROWS) < 100, regimes(random, at_s), np.nan),
    }[tails]
    for found in fit_tides(runs_of(random, residual, at_s, node), np.zeros(0), 4):
        assert found.variance == 0.0
        np.testing.assert_array_equal(tide_along(found, at_s, residual), 0.0)


def test_drawn_tides_move_as_declared() -> None:
    random = np.random.default_rng(4)
    at_s = 3.0 * np.arange(40_000.0)
    drawn = drawn_tide(random, Tide(0.3, 60.0), at_s)
    np.testing.assert_allclose(drawn.var(), 0.3, rtol=0.1)
    np.testing.assert_allclose(np.corrcoef(drawn[:-20], drawn[20:])[0, 1], np.exp(-1.0), atol=0.05)
    starts = [drawn_tide(random, Tide(0.3, 60.0), at_s[:1])[0] for _ in range(2_000)]
    np.testing.assert_allclose(np.var(starts), 0.3, rtol=0.15)
    assert drawn_tide(random, Tide(), at_s).tolist() == [0.0] * len(at_s)
    assert len(drawn_tide(random, Tide(0.3), at_s[:0])) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tide", "node_tide"])
def test_answers_see_the_tide_and_who_decides_does_not(name: str) -> None:
    cluster = made_cluster()
    rows = made_rows(np.random.default_rng(5), cluster, 96)
    wanted, found = np.ones(rows.num_rows, bool), {}
    for variance in (0.0, 0.5):
        tide = Tide(variance, 60.0, 0.5, offset=0.2)
        encoding = made_encoding(replace(cluster, **{name: tide}, pressure=np.full(3, 0.1)))
        windows = cut_windows(rows, wanted, encoding, num_steps=32)
        offers = labelled_offers(windows, encoding)
        found[variance] = windows, replay_log(windows, encoding), offers.inputs
    (_, one, still), (windows, two, moving) = found.values()
    seen = [(history.observation, history.global_observation) for history in (one, two)]
    jax.tree.map(np.testing.assert_array_equal, *seen)
    row = len(moving) - NUM_PENDING
    np.testing.assert_array_equal(np.delete(moving, row, axis=0), np.delete(still, row, axis=0))
    np.testing.assert_array_equal(still[row], 0.0)
    told = np.asarray(getattr(windows.request, name))
    if name == "node_tide":
        node = np.maximum(windows.node, 0)
        told = np.take_along_axis(told, node[None], axis=0)[0]
    assert np.isin(moving[row], 2.0 * told[windows.valid()]).all()
    assert len(np.unique(moving[row])) > 64


@pytest.mark.parametrize("variance", [0.0, 0.5])
def test_windows_keep_their_tides(tmp_path: Path, variance: float) -> None:
    cluster = replace(made_cluster(), node_tide=Tide(variance, 60.0, 0.5))
    rows = made_rows(np.random.default_rng(7), cluster, 40)
    windows = cut_windows(rows, np.ones(40, bool), made_encoding(cluster), num_steps=16)
    save_arrays(tmp_path / "windows.npz", windows)
    found = load_windows(tmp_path / "windows.npz", cluster)
    assert (found.request.node_tide is None) == (variance == 0.0)
    jax.tree.map(np.testing.assert_array_equal, found, windows)
