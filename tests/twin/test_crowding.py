"""Pressures of services on the runs beside them, found in logs that were made with known ones."""

import numpy as np
import pytest

from twin.placement.crowding import CrowdedRuns, fit_pressure, time_beside, uncrowded

NUM_SERVICES, NUM_NODES = 4, 3
PRESSURE = np.array([0.0, 0.1, 0.3, 0.6])


def crowded_runs(pressure: np.ndarray, num_rows: int = 4_000, scatter: float = 0.2) -> CrowdedRuns:
    """Requests that begin at once, each longer by the pressure of those beside it when it began."""
    rng = np.random.default_rng(5)
    arrival_s = np.cumsum(rng.exponential(12.0, num_rows))
    node, service = rng.integers(0, NUM_NODES, num_rows), rng.integers(0, NUM_SERVICES, num_rows)
    usual_s, finish_s = rng.uniform(5.0, 30.0, num_rows), np.full(num_rows, np.inf)
    noise, residual = rng.normal(0.0, scatter, num_rows), np.zeros(num_rows)
    for row in range(num_rows):
        before = [
            other
            for other in range(max(0, row - 200), row)
            if node[other] == node[row] and finish_s[other] > arrival_s[row]
        ]
        share = [min(finish_s[other] - arrival_s[row], usual_s[row]) / usual_s[row] for other in before]
        residual[row] = noise[row] + np.dot(pressure[service[before]], share)
        finish_s[row] = arrival_s[row] + usual_s[row] * np.exp(residual[row])
    return CrowdedRuns(arrival_s, arrival_s, finish_s, node, service, usual_s, residual)


def test_known_pressures_are_found() -> None:
    found = fit_pressure(crowded_runs(PRESSURE), NUM_SERVICES)
    np.testing.assert_allclose(found, PRESSURE, atol=0.08)


def test_one_pressure_of_all_services_is_found_as_one() -> None:
    found = fit_pressure(crowded_runs(np.full(NUM_SERVICES, 0.2)), NUM_SERVICES)
    np.testing.assert_allclose(found, 0.2, atol=0.03)


@pytest.mark.parametrize("scatter", [0.05, 1.0])
def test_without_pressure_none_is_found(scatter: float) -> None:
    assert fit_pressure(crowded_runs(np.zeros(NUM_SERVICES), 2_000, scatter), NUM_SERVICES).shape == (0,)


def test_noisy_usual_times_are_no_pressure() -> None:
    """What is taken for short lasts longer, and spends more of its usual run beside others: nobody presses for that."""
    runs = crowded_runs(np.zeros(NUM_SERVICES))
    noise = np.random.default_rng(6).normal(0.0, 0.7, len(runs.node))
    noisy = runs._replace(usual_s=runs.usual_s * np.exp(noise), residual=runs.residual - noise)
    assert fit_pressure(noisy, NUM_SERVICES).shape == (0,)


def test_too_few_runs_show_nothing() -> None:
    assert fit_pressure(crowded_runs(PRESSURE, 100), NUM_SERVICES).shape == (0,)


def test_time_beside_by_hand() -> None:
    """A run of 10 s from 10 on, beside one of service 1 to its middle, one of service 2 all along and one that is gone;
    the one on another node, the one that never runs and the one that comes later do not count."""
    never = np.inf
    runs = CrowdedRuns(
        arrival_s=np.array([0.0, 1.0, 2.0, 3.0, 4.0, 10.0, 11.0]),
        start_s=np.array([0.0, 1.0, 2.0, 3.0, never, 10.0, 11.0]),
        finish_s=np.array([15.0, 40.0, 9.0, 40.0, 30.0, 20.0, 12.0]),
        node=np.array([0, 0, 0, 1, 0, 0, 0]),
        service=np.array([1, 2, 2, 3, 3, 0, 3]),
        usual_s=np.full(7, 10.0),
        residual=np.zeros(7),
    )
    beside = time_beside(runs, np.array([5]), NUM_SERVICES)
    np.testing.assert_allclose(beside, [[0.0, 0.5, 1.0, 0.0]])
    shifted = runs._replace(
        **{name: getattr(runs, name) + 1e6 for name in ("arrival_s", "start_s", "finish_s")}
    )
    np.testing.assert_allclose(time_beside(shifted, np.array([5]), NUM_SERVICES), beside, atol=1e-6)


def test_without_crowding_the_scatter_is_left() -> None:
    runs = crowded_runs(PRESSURE)
    left = uncrowded(runs, PRESSURE)
    assert runs.residual.std() > 0.25
    np.testing.assert_allclose(left.std(), 0.2, rtol=0.05)
    never = runs._replace(start_s=np.where(np.arange(len(left)) < 5, np.inf, runs.start_s))
    np.testing.assert_array_equal(np.isnan(uncrowded(never, PRESSURE)), np.arange(len(left)) < 5)
    assert uncrowded(never, np.zeros(0)) is never.residual
