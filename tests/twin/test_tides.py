"""Tides of run times: against Gaussian process regression, found where they are and nowhere else, seen by answers
alone."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encode import cut_windows
from twin.placement.history import labelled_offers, replay_log
from twin.placement.learned import NUM_PENDING
from twin.placement.tides import Tide, drawn_tide, tide_along, tide_in

NUM_ROWS = 6_000


def arrivals(random: np.random.Generator, num_rows: int = NUM_ROWS) -> np.ndarray:
    return np.cumsum(random.exponential(2.0, num_rows))


def regimes(random: np.random.Generator, at_s: np.ndarray, factor: float = 5.0) -> np.ndarray:
    """log of a factor that holds for five minutes of every half an hour, at random."""
    lengths = random.exponential(np.tile([1_500.0, 300.0], 200))
    return np.log(factor) * (np.searchsorted(np.cumsum(lengths), at_s) % 2)


def test_the_tide_is_what_gaussian_process_regression_on_all_other_runs_says() -> None:
    random = np.random.default_rng(0)
    at_s, tide = arrivals(random, 30), Tide(0.3, 20.0, 0.2, offset=0.1, most=9.0)
    residual = random.normal(0.1, 0.7, 30)
    residual[[4, 5, 17]] = np.nan
    prior = tide.variance * np.exp(-np.abs(at_s[:, None] - at_s) / tide.memory_s)
    wanted = []
    for row in range(30):
        others = np.flatnonzero(np.isfinite(residual) & (np.arange(30) != row))
        seen = prior[np.ix_(others, others)] + tide.scatter * np.eye(len(others))
        wanted.append(prior[row, others] @ np.linalg.solve(seen, residual[others] - tide.offset))
    np.testing.assert_allclose(tide_along(tide, at_s, residual), wanted, rtol=1e-5, atol=1e-6)


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
    found = tide_in(at_s, residual)
    assert found.variance > 0.0
    assert np.corrcoef(tide_along(found, at_s, residual), hidden)[0, 1] > 0.75


@pytest.mark.parametrize("tails", ["normal", "student", "none of them known", "few"])
def test_where_nothing_rises_and_falls_there_is_no_tide(tails: str) -> None:
    random = np.random.default_rng(3)
    at_s = arrivals(random)
    residual = {
        "normal": random.standard_normal(NUM_ROWS),
        "student": random.standard_t(2.0, NUM_ROWS),
        "none of them known": np.full(NUM_ROWS, np.nan),
        "few": np.where(np.arange(NUM_ROWS) < 100, regimes(random, at_s), np.nan),
    }[tails]
    found = tide_in(at_s, residual)
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


def test_answers_see_the_tide_and_who_decides_does_not() -> None:
    cluster = made_cluster()
    rows = made_rows(np.random.default_rng(5), cluster, 96)
    wanted, found = np.ones(rows.num_rows, bool), {}
    for variance in (0.0, 0.5):
        tide = Tide(variance, 60.0, 0.5, offset=0.2)
        encoding = made_encoding(replace(cluster, tide=tide, pressure=np.full(3, 0.1)))
        windows = cut_windows(rows, wanted, encoding, num_steps=32)
        offers = labelled_offers(windows, encoding)
        found[variance] = windows, replay_log(windows, encoding), offers.inputs
        told = np.asarray(windows.request.tide)
        assert np.any(told[windows.valid()]) == (variance > 0.0)
    (_, one, still), (windows, two, moving) = found.values()
    seen = [(history.observation, history.global_observation) for history in (one, two)]
    jax.tree.map(np.testing.assert_array_equal, *seen)
    row = len(moving) - NUM_PENDING
    np.testing.assert_array_equal(np.delete(moving, row, axis=0), np.delete(still, row, axis=0))
    np.testing.assert_array_equal(still[row], 0.0)
    tides = 2.0 * np.asarray(windows.request.tide)[windows.valid()]
    assert np.isin(moving[row], tides).all()
    assert len(np.unique(moving[row])) > 64
