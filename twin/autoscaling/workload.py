"""How many requests users send: a daily profile, and deviations from it in pieces that were seen.

The profile is the mean logarithm of the rate by half hours of the day, learned from intervals that are not censored.
New days are the profile with hours of logged deviations laid end to end, so that bursts come as they came.
"""

from typing import NamedTuple

import numpy as np

from twin.autoscaling.scaling_log import DAY_S, ScalingLog

BIN_S = 1800.0
PIECE_S = 3600.0


class LoadModel(NamedTuple):
    """Rates of requests as learned from a log; NumPy."""

    log_rate: np.ndarray  # [bins of the day] mean logarithm of requests a second
    deviation: np.ndarray  # [pieces, intervals of a piece] logarithms
    interval_s: np.ndarray  # []

    @property
    def rows_per_day(self) -> int:
        """Intervals of a day."""
        return int(DAY_S // float(self.interval_s))


def fit_load(log: ScalingLog) -> LoadModel:
    """Learns the rates of a log."""
    rate = log.gateway["request_rate_per_s"]
    known = np.isfinite(rate) & (rate > 0.0) & ~log.censored
    logs = np.where(known, np.log(np.where(known, rate, 1.0)), np.nan)
    middle_s = log.time_s + 0.5 * log.interval_s
    place = ((middle_s % DAY_S) // BIN_S).astype(int)
    num_bins = int(DAY_S // BIN_S)
    seen = np.array(
        [np.nanmean(logs[place == one]) if np.any(known[place == one]) else np.nan for one in range(num_bins)]
    )
    holes, there = np.flatnonzero(np.isnan(seen)), np.flatnonzero(np.isfinite(seen))
    seen[holes] = np.interp(holes, there, seen[there], period=num_bins)
    away = logs - _profile(seen, middle_s)
    length = max(int(PIECE_S // log.interval_s), 1)
    pieces = away[: len(away) // length * length].reshape(-1, length)
    whole = pieces[np.mean(np.isfinite(pieces), axis=1) > 0.8] if len(pieces) else np.zeros((1, length))
    whole = np.where(np.isfinite(whole), whole, 0.0) if len(whole) else np.zeros((1, length))
    return LoadModel(seen, whole, np.asarray(log.interval_s))


LEVEL_SPREAD = 0.5
"""To learn in: logarithms of the levels of days lie within this of those of the log, so that what is learned has met
the load of a month later, and of a quiet week."""


def made_rates(model: LoadModel, num_days: int, seed: int, level_spread: float = 0.0) -> np.ndarray:
    """Requests a second [intervals] of `num_days` new days, from midnight on.

    Args:
        model: Of the log.
        num_days: How many.
        seed: Of what is drawn.
        level_spread: Every day is as a whole `exp(u)` times as busy, `u` uniform within this of zero.
    """
    random = np.random.default_rng([seed, 0x7A7E])
    rows = model.rows_per_day * num_days
    length = model.deviation.shape[1]
    drawn = random.integers(0, len(model.deviation), -(-rows // length))
    away = model.deviation[drawn].reshape(-1)[:rows]
    time_s = (np.arange(rows) + 0.5) * float(model.interval_s)
    level = np.repeat(random.uniform(-level_spread, level_spread, num_days), model.rows_per_day)
    return np.exp(_profile(model.log_rate, time_s) + away + level).astype(np.float32)


def _profile(log_rate: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    place = (time_s % DAY_S) / BIN_S - 0.5
    return np.interp(place, np.arange(len(log_rate)), log_rate, period=len(log_rate))
