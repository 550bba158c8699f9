"""The mean of run times: closed forms against draws, and what is put right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twin.contracts import Array
from twin.placement.outcome_model import FROM_USUAL, NUM_COMPONENTS, Mixture, log_run, mixture_sample
from twin.placement.run_level import MOST, level_shift, mean_run

ROWS, MEMBERS, UNIT_S, LONGEST = 400_000, 2, 2.0, 6.0
LOCATION, LOG_SCALE = np.array([0.2, 2.0, 3.0, 1.0]), np.log([0.8, 1.2, 0.1, 0.5])
LOG_WEIGHT = np.log([0.3, 0.4, 0.2, 0.1])


def mixture(*shape: int) -> Mixture:
    """One in which much lies below 0, where nothing is drawn, and above `LONGEST`."""
    leaves = (LOG_WEIGHT, LOCATION, LOG_SCALE)
    spread = (
        jnp.asarray(leaf, jnp.float32).reshape((NUM_COMPONENTS,) + (1,) * len(shape)) for leaf in leaves
    )
    return Mixture(*(jnp.broadcast_to(leaf, (NUM_COMPONENTS, *shape)) for leaf in spread))


def draws(of: Mixture, seed: int = 0) -> np.ndarray:
    component, value = jax.random.uniform(jax.random.key(seed), (2, *of.location.shape[1:]), minval=1e-30)
    return np.asarray(mixture_sample(of, component, value))


mean = jax.jit(mean_run)


@pytest.mark.parametrize("least", [0.0, pytest.param(1.5, marks=pytest.mark.slow), 4.0])
def test_the_mean_is_that_of_draws(least: float) -> None:
    drawn = draws(mixture(ROWS))
    drawn = np.expm1(np.minimum(drawn[drawn > least], LONGEST))
    found = mean(mixture(1), jnp.full(1, least), jnp.full(1, LONGEST))
    assert found[0] == pytest.approx(drawn.mean(), abs=4.0 * drawn.std() / np.sqrt(len(drawn)))


def test_of_what_took_the_most_nothing_longer_is_expected() -> None:
    assert mean(mixture(1), jnp.full(1, LONGEST), jnp.full(1, LONGEST))[0] == pytest.approx(
        np.expm1(LONGEST), rel=1e-5
    )


@jax.jit
def settled(run_s: Array, is_whole: Array, weight: Array, longest_s: Array) -> Array:
    return level_shift(mixture(MEMBERS, len(run_s)), run_s, is_whole, weight, longest_s, UNIT_S)


def rows(shift: float, count: int = 20_000) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Runs of the mixture whose parts that count from what is usual are longer."""
    of = mixture(count)
    moved = of._replace(location=of.location + shift * jnp.array(FROM_USUAL)[:, None])
    run_s = UNIT_S * np.expm1(draws(moved))
    return run_s, np.ones(count, bool), np.ones(count), UNIT_S * np.expm1(9.0)


@pytest.mark.parametrize("shift", [-0.15, 0.0, 0.15])
def test_a_level_that_is_off_is_put_right(shift: float) -> None:
    assert settled(*rows(shift)) == pytest.approx(shift, abs=0.03)


def test_runs_cut_short_count_as_what_is_expected_of_them() -> None:
    run_s, _, weight, longest_s = rows(0.1)
    cut_s = np.minimum(run_s, 0.5 * np.median(run_s) + 20.0 * np.random.default_rng(0).random(len(run_s)))
    assert np.mean(cut_s < run_s) > 0.2
    assert settled(cut_s, cut_s == run_s, weight, longest_s) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize(
    ("count", "wanted"), [(400, 0.0), pytest.param(40_000, 0.011, marks=pytest.mark.slow)]
)
def test_a_mean_that_is_off_by_chance_is_left(count: int, wanted: float) -> None:
    """Runs that are half as long or half as long again, and in the mean 1 % longer than expected."""
    _, whole, weight, longest_s = rows(0.0, count)
    expected_s = UNIT_S * float(mean(mixture(1), jnp.zeros(1), jnp.full(1, log_run(longest_s, UNIT_S)))[0])
    run_s = expected_s * (1.01 + np.where(np.arange(count) % 2, 0.5, -0.5))
    # The part that does not count from what is usual stays, so the others move by more than 1 %
    assert settled(run_s, whole, weight, longest_s) == pytest.approx(wanted, rel=0.15)


def test_rows_without_weight_say_nothing() -> None:
    run_s, whole, weight, longest_s = rows(0.0)
    long = run_s > np.quantile(run_s, 0.9)
    assert settled(run_s, whole, np.where(long, 0.0, weight), longest_s) == pytest.approx(-MOST, rel=0.02)
    assert settled(run_s, whole, np.zeros(len(run_s)), longest_s) == 0.0
