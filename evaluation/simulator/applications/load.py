"""Request rates: made for an application, or a real series laid under it.

rate(t) = mean * day and week * growth * exp(slow noise) + bursts, split between user types whose shares drift. A real
series (numbers, one a row) replaces pattern, noise and bursts; it is scaled to the application's mean rate.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.simulator.applications.application import Application
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError, FormatError
from logs_schema.formats.swf import is_number

MONTH_DAYS = 30.0
MOST_NUMBERS = 2
"""On a line of a series of rates: an instant and the rate."""


@dataclass(frozen=True)
class LoadConfig:
    """How rates vary.

    Attributes:
        day_amplitude: Of the daily pattern, as a share of the mean.
        weekend: Rate on days 5 and 6 of a week, as a share of others.
        noise: Deviation of the slow noise's logarithm, with a correlation time of `noise_s`.
        noise_s: See `noise`.
        bursts_per_day: Sudden multiplications of the rate.
        burst_factor: Largest such multiplication; the least is 1.3.
        burst_s: Mean length of one.
    """

    day_amplitude: float = 0.55
    weekend: float = 0.8
    noise: float = 0.12
    noise_s: float = 900.0
    bursts_per_day: float = 6.0
    burst_factor: float = 2.2
    burst_s: float = 400.0


def made_rates(
    application: Application,
    days: int,
    interval_s: float,
    seed: int,
    *,
    first_day: int = 0,
    config: LoadConfig | None = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Rates [intervals, users] of `days` days.

    Args:
        application: The application and its users.
        days: How many, >= 1.
        interval_s: Length of an interval.
        seed: Of noise and bursts.
        first_day: Days since the application's day 0; growth and drift count from there.
        config: How rates vary.
        series: A real series of rates, one value an interval, repeated as often as needed.
    """
    config = config or LoadConfig()
    random = np.random.default_rng([seed, first_day, 0x10AD])
    rows = int(days * DAY_S // interval_s)
    if rows < 1:
        raise ConfigError(f"{days} days hold no interval of {interval_s:g} s", allowed="one interval or more")
    time_s = (np.arange(rows) + 0.5) * interval_s + first_day * DAY_S
    if series is None:
        pattern = _day_and_week(time_s, config) * _slow_noise(rows, interval_s, config, random)
        pattern = pattern * _bursts(time_s, days, config, random)
    else:
        pattern = np.resize(series, rows) / np.mean(series)
    total = application.rate_per_s * pattern * np.exp(application.growth * time_s / DAY_S / MONTH_DAYS)
    return split_rates(application, total, time_s)


def split_rates(application: Application, total: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Rates [intervals, users] of a total [intervals] at seconds since the application's day 0: shares drift."""
    age = time_s / DAY_S / MONTH_DAYS
    share = np.stack([user.share * np.exp(user.drift * age) for user in application.users], axis=1)
    return (total[:, None] * share / share.sum(axis=1, keepdims=True)).astype(np.float32)


def read_series(path: Path) -> np.ndarray:
    """A series of rates: the last number of every line (numbers stand apart by spaces, `,` or `;`).

    Raises:
        FormatError: A line holds no number, or more than an instant and a rate, or a rate is negative.
    """
    values, bad = [], []
    for row, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        words = line.replace(";", " ").replace(",", " ").split()
        if (number := sum(map(is_number, words))) > MOST_NUMBERS:
            raise FormatError(
                f"a line holds {number} numbers, and which of them is the rate is not known",
                where=f"{path}, row {row}",
                allowed="a rate on every line, or an instant and a rate",
                advice="write the column that is meant, or the sum of the columns, to a file of its own",
            )
        try:
            values.append(float(words[-1]))
            if not 0.0 <= values[-1] < np.inf:
                bad.append(row)
        except (IndexError, ValueError):
            if row > 1 and words:  # a header may stand above
                bad.append(row)
    if bad or not values or max(values) == 0.0:
        raise FormatError(
            "this is no series of request rates",
            where=f"{path}, row {bad[0] if bad else 1}",
            allowed="text: one rate of 0 or more on every line, some above 0",
            advice="unpack the file first, where it is compressed; leave lines without a rate out",
        )
    return np.asarray(values)


def _day_and_week(time_s: np.ndarray, config: LoadConfig) -> np.ndarray:
    hour = 2.0 * np.pi * time_s / DAY_S
    day = 1.0 - config.day_amplitude * np.cos(hour) - 0.15 * np.cos(2.0 * hour + 0.6)
    weekday = (time_s // DAY_S) % 7
    return np.maximum(day, 0.1) * np.where(weekday >= 5, config.weekend, 1.0)


def _slow_noise(rows: int, interval_s: float, config: LoadConfig, random: np.random.Generator) -> np.ndarray:
    keeps = np.exp(-interval_s / config.noise_s)
    shocks = random.normal(size=rows) * np.sqrt(1.0 - keeps**2)
    level, values = random.normal(), np.empty(rows)
    for row, shock in enumerate(shocks):
        level = keeps * level + shock
        values[row] = level
    return np.exp(config.noise * values - 0.5 * config.noise**2)


def _bursts(time_s: np.ndarray, days: int, config: LoadConfig, random: np.random.Generator) -> np.ndarray:
    factor = np.ones(len(time_s))
    for _ in range(random.poisson(config.bursts_per_day * days)):
        begin = random.uniform(time_s[0], time_s[-1])
        length = random.exponential(config.burst_s)
        inside = (time_s >= begin) & (time_s < begin + length)
        factor[inside] *= random.uniform(1.3, config.burst_factor)
    return np.minimum(factor, 2.0 * config.burst_factor)
