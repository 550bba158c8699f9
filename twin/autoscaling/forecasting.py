"""Forecasts of the request rate, 5 to 25 minutes ahead: a recurrent network beside plain predictors (DRPC, table 2).

Rates are means over five minutes, as shares of the largest of the training part. Predictors see the hour before, the
time of day and the same times a day before. The last part of a series is held out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree
from twin.descent import descend_in_batches
from twin.records import at_rows

BIN_S = 300.0
PAST, AHEAD = 12, 5
HELD_OUT = 0.3
SMOOTHING = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class RecurrentConfig:
    """Size and training of the gated recurrent unit."""

    hidden: int = 16
    updates: int = 1500
    batch: int = 64
    learning_rate: float = 3e-3
    seed: int = 0


class LoadWindows(NamedTuple):
    """Pieces of a series: what was, and what came; NumPy."""

    past: np.ndarray  # [windows, PAST] shares
    day_before: np.ndarray  # [windows, AHEAD] shares, of the same times a day ago
    angle: np.ndarray  # [windows] of the time of day, at the last bin of the past
    coming: np.ndarray  # [windows, AHEAD]


Predictor = Callable[[LoadWindows], np.ndarray]
"""Windows -> predictions [windows, AHEAD]."""


def windows_of(rate_per_s: np.ndarray, interval_s: float) -> tuple[LoadWindows, LoadWindows]:
    """Windows of the training part and of the held-out part of a series from midnight on.

    A bin is the mean of what is known of it; windows with a bin of which nothing is known are left out.

    Raises:
        ConfigError: The series is shorter than three days, or its intervals do not fit into bins.
    """
    if BIN_S % interval_s:
        raise ConfigError(
            f"intervals of {interval_s:g} s do not fit into {BIN_S:g} s",
            where="forecasts of the request rate",
            allowed=f"intervals that divide {BIN_S:g} s",
        )
    per_bin = round(BIN_S / interval_s)
    rates = np.asarray(rate_per_s)[: len(rate_per_s) // per_bin * per_bin].reshape(-1, per_bin)
    num_known = np.isfinite(rates).sum(axis=1)
    bins = np.where(num_known > 0, np.nansum(rates, axis=1) / np.maximum(num_known, 1), np.nan)
    day = int(DAY_S // BIN_S)
    if len(bins) < 3 * day:
        raise ConfigError(
            f"a series of {len(bins) * BIN_S / DAY_S:.1f} days is too short to hold out a part",
            where="forecasts of the request rate",
            allowed="three days or more",
        )
    cut = int(len(bins) * (1.0 - HELD_OUT))
    shares = bins / np.nanmax(bins[:cut])
    last = np.arange(day, len(bins) - AHEAD)  # last bin of the past
    ahead = last[:, None] + np.arange(1, AHEAD + 1)
    whole = LoadWindows(
        shares[last[:, None] + np.arange(1 - PAST, 1)],
        shares[ahead - day],
        2.0 * np.pi * (last % day) / day,
        shares[ahead],
    )
    known = np.all([np.isfinite(leaf.reshape(len(last), -1)).all(axis=1) for leaf in whole], axis=0)
    train, held_out = known & (last + AHEAD < cut), known & (last >= cut)
    return at_rows(whole, train), at_rows(whole, held_out)


def seasonal_naive(_train: LoadWindows) -> Predictor:
    """What was at the same time a day ago."""
    return lambda windows: windows.day_before


def smoothing(train: LoadWindows) -> Predictor:
    """Exponential smoothing of the past, held constant; the smoothing with the least error in training."""

    def smoothed(windows: LoadWindows, weight: float) -> np.ndarray:
        level = windows.past[:, 0]
        for column in windows.past.T[1:]:
            level = weight * column + (1.0 - weight) * level
        return np.repeat(level[:, None], AHEAD, axis=1)

    best = min(SMOOTHING, key=lambda weight: float(np.mean((smoothed(train, weight) - train.coming) ** 2)))
    return lambda windows: smoothed(windows, best)


def autoregression(train: LoadWindows) -> Predictor:
    """A linear regression on the past, the time of day and the day before, one for every distance."""

    def features(windows: LoadWindows) -> np.ndarray:
        angle = windows.angle[:, None]
        around = [np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle)]
        return np.concatenate([windows.past, windows.day_before, *around, np.ones_like(angle)], axis=1)

    x = features(train)
    weights = np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ train.coming)
    return lambda windows: features(windows) @ weights


def recurrent(train: LoadWindows, config: RecurrentConfig | None = None) -> Predictor:
    """A gated recurrent unit over the past (Chung et al. 2015); it learns what comes over what is."""
    config = config or RecurrentConfig()
    optimizer = optax.adam(config.learning_rate)
    key_init, key_updates = jax.random.split(jax.random.key(config.seed))

    def loss(params: PyTree, windows: LoadWindows) -> Array:
        return jnp.mean((_unrolled(params, windows) - windows.coming) ** 2)

    @jax.jit
    def learn(params: PyTree, train: LoadWindows) -> PyTree:
        def some(key: Array) -> LoadWindows:
            chosen = jax.random.randint(key, (config.batch,), 0, train.past.shape[0])
            return jax.tree.map(lambda leaf: leaf[chosen], train)

        keys = jax.random.split(key_updates, config.updates)
        return descend_in_batches(optimizer, loss, some, keys, params)[0]

    params = learn(_initial(key_init, config.hidden), jax.tree.map(jnp.asarray, train))
    return lambda windows: np.asarray(jax.jit(_unrolled)(params, jax.tree.map(jnp.asarray, windows)))


PREDICTORS: Mapping[str, Callable[[LoadWindows], Predictor]] = {
    "seasonal_naive": seasonal_naive,
    "smoothing": smoothing,
    "autoregression": autoregression,
    "gru": recurrent,
}


def errors(rate_per_s: np.ndarray, interval_s: float) -> dict[str, np.ndarray]:
    """Predictor -> mean squared errors [AHEAD] on the held-out part, for 5, 10, ... minutes ahead."""
    train, held_out = windows_of(rate_per_s, interval_s)
    return {
        name: np.mean((make(train)(held_out) - held_out.coming) ** 2, axis=0)
        for name, make in PREDICTORS.items()
    }


def _initial(key: Array, hidden: int) -> PyTree:
    keys = jax.random.split(key, 3)
    inputs = 4 + hidden  # a rate, the day before, sine and cosine of the time of day; the state
    return {
        "gates": jax.random.normal(keys[0], (inputs, 2 * hidden)) / np.sqrt(inputs),
        "gates_bias": jnp.zeros(2 * hidden),
        "state": jax.random.normal(keys[1], (inputs, hidden)) / np.sqrt(inputs),
        "state_bias": jnp.zeros(hidden),
        "out": 0.1 * jax.random.normal(keys[2], (hidden + AHEAD, AHEAD)),
        "out_bias": jnp.zeros(AHEAD),
    }


def _unrolled(params: PyTree, windows: LoadWindows) -> Array:
    """Predictions [windows, AHEAD]."""
    hidden = params["state_bias"].shape[0]
    change = jnp.asarray(windows.day_before) - windows.day_before[:, :1]

    def one(state: Array, rate: Array) -> tuple[Array, None]:
        seen = jnp.stack(
            [rate, windows.day_before[:, 0], jnp.sin(windows.angle), jnp.cos(windows.angle)], axis=1
        )
        gates = jax.nn.sigmoid(
            jnp.concatenate([seen, state], axis=1) @ params["gates"] + params["gates_bias"][None]
        )
        reset, update = jnp.split(gates, 2, axis=1)
        fresh = jnp.tanh(
            jnp.concatenate([seen, reset * state], axis=1) @ params["state"] + params["state_bias"][None]
        )
        return update * state + (1.0 - update) * fresh, None

    state, _ = jax.lax.scan(one, jnp.zeros((windows.past.shape[0], hidden)), jnp.asarray(windows.past).T)
    out = jnp.concatenate([state, change], axis=1) @ params["out"] + params["out_bias"][None]
    return windows.past[:, -1:] + out
