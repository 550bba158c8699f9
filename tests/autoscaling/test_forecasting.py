"""Forecasts of series whose future is known."""

import numpy as np
import pytest

from logs_schema.errors import ConfigError
from twin.autoscaling.forecasting import AHEAD, PREDICTORS, RecurrentConfig, errors, recurrent, windows_of


def daily(days, noise=0.0, seed=0):
    time_s = np.arange(int(days * 288)) * 300.0
    random = np.random.default_rng(seed)
    return 100.0 * (1.5 - np.cos(2 * np.pi * time_s / 86400.0)) * np.exp(random.normal(0, noise, len(time_s)))


def test_windows_hold_what_was_and_what_came():
    train, held_out = windows_of(np.arange(4 * 288, dtype=float) + 1.0, 300.0)
    top = train.coming.max() / train.past.max()
    assert top > 1.0
    one = held_out.past[0] / (held_out.past[0, 1] - held_out.past[0, 0])
    np.testing.assert_allclose(np.diff(one), 1.0, rtol=1e-6)
    np.testing.assert_allclose(
        held_out.coming[:, 0] - held_out.past[:, -1], held_out.past[0, 1] - held_out.past[0, 0]
    )
    np.testing.assert_allclose(
        held_out.coming - held_out.day_before, 288 * (held_out.past[0, 1] - held_out.past[0, 0])
    )
    with pytest.raises(ConfigError, match="too short"):
        windows_of(np.ones(288), 300.0)


@pytest.mark.slow
def test_a_pure_day_is_foreseen_by_all_who_know_the_day():
    train, held_out = windows_of(daily(5), 300.0)
    for name in ("seasonal_naive", "autoregression"):
        found = PREDICTORS[name](train)(held_out)
        np.testing.assert_allclose(found, held_out.coming, atol=2e-3)
    learned = recurrent(train, RecurrentConfig(updates=400))(held_out)
    assert np.sqrt(np.mean((learned - held_out.coming) ** 2)) < 0.02
    still = PREDICTORS["smoothing"](train)(held_out)
    assert np.mean((still - held_out.coming) ** 2) > np.mean((learned - held_out.coming) ** 2)


@pytest.mark.slow
def test_nobody_foresees_noise():
    """Independent noise of deviation s leaves an error of s^2 at least, to whoever knows the rest."""
    found = errors(daily(6, noise=0.1), 300.0)
    shares = daily(6) / daily(6, noise=0.1)[: int(6 * 288 * 0.7)].max()
    least = 0.01 * np.mean(shares[int(6 * 288 * 0.7) :] ** 2)
    assert set(found) == set(PREDICTORS)
    for name, error in found.items():
        assert error.shape == (AHEAD,)
        assert np.all(error > 0.8 * least), name
    assert found["autoregression"].mean() < found["seasonal_naive"].mean()
