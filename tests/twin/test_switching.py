"""Tides of two states: against enumeration of all paths, found where run times switch and not where they diffuse."""

from itertools import product

import numpy as np
import pytest

from twin.placement.crowding import CrowdedRuns
from twin.placement.switching import TAILS, Switching, chance_along, drawn_states, fit_switching
from twin.placement.tides import Tide, drawn_tide, fit_tides, tide_along, tide_in

NUM_ROWS = 6_000


def arrivals(random: np.random.Generator, num_rows: int = NUM_ROWS) -> np.ndarray:
    return np.cumsum(random.exponential(2.0, num_rows))


def tide_of(at_s: np.ndarray, residual: np.ndarray) -> Tide:
    """Fitted to runs that begin at once and crowd nobody."""
    none = np.zeros(NUM_ROWS, int)
    return fit_tides(
        CrowdedRuns(at_s, at_s, at_s + 1.0, none, none, np.ones(NUM_ROWS), residual), np.zeros(0), 1
    )[0]


def density(error: np.ndarray, scatter: float) -> np.ndarray:
    return (1.0 + error**2 / (TAILS * scatter)) ** (-0.5 * (TAILS + 1.0))


def test_chances_are_those_of_all_paths_given_all_other_runs() -> None:
    random, num = np.random.default_rng(0), 9
    law = Switching(1.1, usual_s=20.0, other_s=6.0, offset=0.1, scatter=0.3)
    at_s, residual = arrivals(random, num), random.normal(0.4, 0.8, num)
    residual[3] = np.nan
    worth = np.stack([density(residual - law.offset - shift, law.scatter) for shift in (0.0, law.shift)])
    worth[:, 3] = 1.0
    keep = np.exp(-np.diff(at_s) * (1.0 / law.usual_s + 1.0 / law.other_s))
    stays = np.stack([1.0 - law.share * (1.0 - keep), law.share + keep * (1.0 - law.share)])
    either = np.zeros((2, num))
    for path in product((0, 1), repeat=num):
        states = np.array(path)
        moved = np.where(states[1:] == states[:-1], stays[states[:-1], range(num - 1)], 0.0)
        moved += np.where(states[1:] != states[:-1], 1.0 - stays[states[:-1], range(num - 1)], 0.0)
        weight = (
            (law.share if states[0] else 1.0 - law.share) * moved.prod() * worth[states, range(num)].prod()
        )
        either[states, range(num)] += weight / worth[states, range(num)]
    np.testing.assert_allclose(chance_along(law, at_s, residual), either[1] / either.sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("shift", [1.6, pytest.param(-0.8, marks=pytest.mark.slow)])
def test_two_states_are_found_under_heavy_scatter(shift: float) -> None:
    random = np.random.default_rng(2)
    at_s, law = arrivals(random), Switching(shift, usual_s=1_200.0, other_s=240.0, offset=0.2, scatter=1.0)
    is_other = drawn_states(random, law, at_s)
    residual = law.offset + shift * is_other + 0.8 * random.standard_t(4.0, NUM_ROWS)
    found, _ = fit_switching(at_s, residual)
    np.testing.assert_allclose([found.shift, found.offset], [law.shift, law.offset], atol=0.25)
    assert 1 / 3 < found.usual_s / law.usual_s < 3.0
    assert 1 / 3 < found.other_s / law.other_s < 3.0
    tide = tide_of(at_s, residual)
    assert tide.switching is not None
    along = tide_along(tide, at_s, residual)
    smooth = tide_along(tide_in(at_s, residual, np.zeros(NUM_ROWS, int), 1), at_s, residual)
    truth = law.shift * (is_other - is_other.mean())
    wrong = [float(np.mean((one - one.mean() - truth) ** 2)) for one in (along, smooth)]
    assert wrong[0] < 0.6 * wrong[1]


@pytest.mark.parametrize("ratio", [5.0, 3.0])
def test_the_mean_run_of_the_other_state_is_that_of_the_log(ratio: float) -> None:
    """The search's steps are a fifth wide, and the log of an exponential run is skew."""
    random = np.random.default_rng(4)
    at_s, law = (
        arrivals(random),
        Switching(np.log(ratio), usual_s=1_200.0, other_s=240.0, offset=0.0, scatter=1.0),
    )
    is_other = drawn_states(random, law, at_s)
    found, _ = fit_switching(at_s, np.log(random.exponential(np.where(is_other, ratio, 1.0))))
    assert found.shift == pytest.approx(np.log(ratio), abs=0.08)


def test_runs_that_begin_together_may_leave_no_doubt_of_the_state() -> None:
    """Thirty of one instant are sure of it to the last digit."""
    random = np.random.default_rng(0)
    at_s = np.floor(arrivals(random, 3_000) / 60.0) * 60.0
    residual = 3.0 * (at_s // 2_000.0 % 2.0) + random.normal(0.0, 0.05, len(at_s))
    law, likelihood = fit_switching(at_s, residual)
    assert law.shift == pytest.approx(3.0, rel=0.01)
    assert np.isfinite(likelihood)


def test_what_diffuses_stays_a_diffusion() -> None:
    random = np.random.default_rng(3)
    at_s = arrivals(random)
    residual = drawn_tide(random, Tide(0.3, 600.0), at_s) + random.normal(0.0, 0.6, NUM_ROWS)
    tide = tide_of(at_s, residual)
    assert tide.variance > 0.0
    assert tide.switching is None


def test_drawn_states_last_as_declared() -> None:
    random = np.random.default_rng(4)
    at_s, law = np.arange(200_000) * 2.0, Switching(1.0, usual_s=300.0, other_s=60.0, offset=0.0, scatter=1.0)
    states = drawn_states(random, law, at_s)
    assert abs(states.mean() - law.share) < 0.02
    begins = np.flatnonzero(np.diff(states.astype(int)) == 1)
    assert abs(states.sum() * 2.0 / len(begins) - law.other_s) < 6.0
    tide = Tide(law.variance, law.memory_s, shift=1.0, usual_s=300.0, other_s=60.0)
    drawn = drawn_tide(random, tide, at_s)
    assert abs(drawn.mean()) < 0.03
    assert abs(drawn.var() - law.variance) < 0.02
    assert len(drawn_states(random, law, at_s[:0])) == 0
