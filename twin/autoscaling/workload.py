"""How many requests users send: a daily profile, and deviations from it in pieces that were seen.

The profile is the mean logarithm of the rate by half hours of the day, learned from intervals that are not censored.
New days are the profile with hours of logged deviations laid end to end, so that bursts come as they came. Censored
intervals are among the deviations with the rate that was logged, the least that users wanted: it is bursts that
overload an application, and without these intervals every burst would lose its beginning. The logarithm of no requests
is minus infinity: a half hour without any has it in the profile, single intervals without any have it among the
deviations.
"""

from typing import NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from twin.autoscaling.scaling_log import ScalingLog

BIN_S = 1800.0
PIECE_S = 3600.0


class LoadModel(NamedTuple):
    """Rates of requests as learned from a log; NumPy."""

    log_rate: np.ndarray  # [bins of the day] mean logarithm of requests a second, -inf where none ever came
    deviation: np.ndarray  # [pieces, intervals of a piece] logarithms, -inf where none came
    interval_s: np.ndarray  # []

    @property
    def rows_per_day(self) -> int:
        """Intervals of a day."""
        return int(DAY_S // float(self.interval_s))


def fit_load(log: ScalingLog) -> LoadModel:
    """Learns the rates of a log."""
    rate = log.gateway["request_rate_per_s"]
    known = np.isfinite(rate) & ~log.censored
    asked = known & (rate > 0.0)
    logs = np.where(rate > 0.0, np.log(np.where(rate > 0.0, rate, 1.0)), np.where(known, -np.inf, np.nan))
    log_rate = np.where(asked, logs, np.nan)
    middle_s = log.time_s + 0.5 * log.interval_s
    place = _bin_of(middle_s)
    num_bins = int(DAY_S // BIN_S)
    seen = np.array(
        [
            np.nanmean(log_rate[here]) if np.any(asked[here]) else -np.inf if np.any(known[here]) else np.nan
            for here in (place == one for one in range(num_bins))
        ]
    )
    seen = np.where(np.isnan(seen), _across(seen, -np.inf), seen)
    usual = _profile(seen, middle_s)
    away = np.where(np.isfinite(usual), logs - np.where(np.isfinite(usual), usual, 0.0), np.nan)
    length = max(int(PIECE_S // log.interval_s), 1)
    pieces = away[: len(away) // length * length].reshape(-1, length)
    whole = pieces[np.mean(~np.isnan(pieces), axis=1) > 0.8]
    usually = np.where(np.mean(np.isneginf(whole), axis=1, keepdims=True) > 0.5, -np.inf, 0.0)
    whole = np.where(np.isnan(whole), usually, whole) if len(whole) else np.zeros((1, length))
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


def known_profile(model: LoadModel) -> np.ndarray:
    """[bins of the day] the profile, straight across half hours in which no requests came; 0 where none ever did."""
    return _across(model.log_rate, 0.0)


def _across(log_rate: np.ndarray, otherwise: float) -> np.ndarray:
    """[bins of the day] straight from finite bin to finite bin, around midnight too; `otherwise` where none is."""
    there, size = np.flatnonzero(np.isfinite(log_rate)), len(log_rate)
    if not len(there):
        return np.full(size, otherwise)
    return np.interp(np.arange(size), there, log_rate[there], period=size)


def _bin_of(time_s: np.ndarray) -> np.ndarray:
    found: np.ndarray = ((time_s % DAY_S) // BIN_S).astype(int)
    return found


def _profile(log_rate: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Straight between the middles of half hours; beside one without requests each half hour has its own value."""
    place, own = (time_s % DAY_S) / BIN_S - 0.5, _bin_of(time_s)
    asked = np.isfinite(log_rate)
    finite = np.where(asked, log_rate, 0.0)
    between = np.interp(place, np.arange(len(log_rate)), finite, period=len(log_rate))
    below = np.floor(place).astype(int) % len(log_rate)
    return np.where(asked[below] & asked[(below + 1) % len(log_rate)], between, log_rate[own])
