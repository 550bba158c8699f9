"""Forecasts of one log from another: twin, nearest neighbour, log-linear model and persistence on the same intervals.

The error is the mean absolute logarithm of forecast over logged (.1 is about 10 %). All but persistence see load and
grants of the other log alone; persistence is the interval before, so it sees what the others have to tell.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evaluation.comparison.rank_correlation import known_rank_correlation
from evaluation.problems.autoscaling.certifying import ReplayedDays, simulated_again
from logs_schema.errors import ConfigError
from twin.autoscaling.fit import fit_application
from twin.autoscaling.fitting import LawsConfig
from twin.autoscaling.gateway_forecasts.forecaster import (
    GatewayForecast,
    GatewayForecaster,
    Replay,
    fit_forecaster,
)
from twin.autoscaling.gateway_forecasts.inputs import (
    CORES,
    QUANTITIES,
    inputs_of,
    load_source_of,
    quantity_of,
)
from twin.autoscaling.gateway_forecasts.predictors import SIMPLE, Columns
from twin.autoscaling.scaling_log import ScalingLog
from twin.records import at_rows

FEWEST_RANKED = 10
QUICK_LAWS = LawsConfig(members=2, rows=800, updates=300)


@dataclass(frozen=True)
class ForecastScore:
    """How one quantity of one log was forecast from another.

    Attributes:
        quantity: One of `QUANTITIES`.
        chosen: The predictor that held-out blocks of the fitted log chose.
        num_intervals: Of the other log, with load, grants and quantity.
        answered: Share of them that was not declined.
        error: Of the twin on those.
        errors: nearest neighbour, log-linear, persistence -> the same, on the same intervals.
        error_all: Of the twin on all intervals, as if nothing were declined.
        errors_all: The simple ones on all intervals.
        covered: Share of answered intervals within the 95 % interval.
        factor: Upper over lower end of the interval, the median.
        rank: Rank correlation of forecast and logged on answered intervals.

    None where too little was answered to tell.
    """

    quantity: str
    chosen: str
    num_intervals: int
    answered: float
    error: float | None
    errors: dict[str, float | None]
    error_all: float
    errors_all: dict[str, float]
    covered: float | None
    factor: float | None
    rank: float | None


@dataclass(frozen=True)
class ForecastRows:
    """One quantity, by intervals of the other log in which load, grants and quantity are logged."""

    rows: np.ndarray  # indices of intervals
    logged: np.ndarray
    forecast: GatewayForecast  # of these intervals alone
    simple: dict[str, np.ndarray]


def quantities_of(log: ScalingLog, other: ScalingLog) -> list[str]:
    """What both logs tell and is not an input: what stands in for the load is none to be forecast."""
    source = load_source_of(log)
    skipped = {"cores_used"} if source == CORES else set()
    if any("gateway" in words for words in (*log.assumed, *other.assumed)):
        skipped.add("response_s")
    return [
        name
        for name in QUANTITIES
        if name not in skipped and all(np.isfinite(quantity_of(one, name)).any() for one in (log, other))
    ]


def refuse_other_interval(log: ScalingLog, other: ScalingLog) -> None:
    """ConfigError where two logs have intervals of different lengths."""
    if log.interval_s != other.interval_s:
        raise ConfigError(
            f"one log has intervals of {log.interval_s:g} s and the other of {other.interval_s:g} s",
            where="deployment_samples",
            allowed="one length",
            advice="import both with the same step",
        )


def laws_replay(quantity: str, kept: dict[Any, ReplayedDays] | None = None) -> Replay:
    """The laws of stations as a candidate: fitted on the intervals to learn from, simulated under those of a log.

    Quantities that share `kept` share what was simulated.
    """
    kept = {} if kept is None else kept

    def again(log: ScalingLog, learned: np.ndarray, other: ScalingLog) -> ReplayedDays:
        key = (id(log), learned.tobytes(), id(other))
        if key not in kept:
            kept[key] = simulated_again(fit_application(_masked(log, learned), QUICK_LAWS), other)
        return kept[key]

    def replay(log: ScalingLog, learned: np.ndarray, other: ScalingLog) -> np.ndarray:
        found = again(log, learned, other)
        return {
            "response_s": found.mean_s,
            "response_p95_s": found.p95_s,
            "response_p99_s": found.p99_s,
            "cores_used": found.cores_used.sum(axis=1),
        }[quantity]

    return replay


def forecaster_of(
    log: ScalingLog, quantity: str, kept: dict[Any, ReplayedDays] | None = None
) -> GatewayForecaster:
    """The forecaster of a log, the laws of stations among its candidates where the log holds enough; `kept` as in
    `laws_replay`."""
    return fit_forecaster(log, quantity, None if log.lacks else laws_replay(quantity, kept))


def forecast_rows(forecaster: GatewayForecaster, log: ScalingLog, other: ScalingLog) -> ForecastRows:
    """Forecasts of another log, the twin's and the simple ones."""
    source, quantity = load_source_of(log), forecaster.quantity
    mine, theirs = inputs_of(log, source), inputs_of(other, source)
    learned, logged = quantity_of(log, quantity), quantity_of(other, quantity)
    with np.errstate(invalid="ignore"):
        fit_rows = np.flatnonzero(mine.known & np.isfinite(learned) & (learned > 0.0))
        rows = np.flatnonzero(theirs.known & np.isfinite(logged) & (logged > 0.0))
    if not len(rows):
        raise ConfigError(
            f"no interval of the other log has load, grants and {quantity}",
            where="deployment_samples",
            allowed="the metrics of the log that was fitted",
            advice="import them with the same mapping",
        )
    columns = Columns(mine.load.shape[1], mine.grants.shape[1])
    simple = {
        name: np.exp(fit(mine.features[fit_rows], np.log(learned[fit_rows]), columns)(theirs.features[rows]))
        for name, fit in SIMPLE.items()
    }
    before = np.where(rows > 0, logged[rows - 1], np.nan)  # before the first there is none
    with np.errstate(invalid="ignore"):
        simple["persistence"] = np.where(before > 0.0, before, np.median(logged[rows]))
    found = forecaster.forecast(other)
    return ForecastRows(rows, logged[rows], at_rows(found, rows), simple)


def scored(forecaster: GatewayForecaster, found: ForecastRows) -> ForecastScore:
    """The score of forecasts."""
    answered = ~found.forecast.declined
    logs = np.log(found.logged)

    def error(values: np.ndarray, rows: np.ndarray) -> float | None:
        return float(np.mean(np.abs(np.log(values[rows]) - logs[rows]))) if rows.any() else None

    every = np.ones(len(logs), bool)
    middle, low, high = found.forecast.middle, found.forecast.low, found.forecast.high
    inside = (low <= found.logged) & (found.logged <= high)
    return ForecastScore(
        forecaster.quantity,
        forecaster.chosen,
        len(logs),
        float(answered.mean()),
        error(middle, answered),
        {name: error(values, answered) for name, values in found.simple.items()},
        error(middle, every) or 0.0,
        {name: error(values, every) or 0.0 for name, values in found.simple.items()},
        float(inside[answered].mean()) if answered.any() else None,
        float(np.median((high / low)[answered])) if answered.any() else None,
        known_rank_correlation(middle[answered], logs[answered]) if answered.sum() >= FEWEST_RANKED else None,
    )


def forecast_scores(log: ScalingLog, other: ScalingLog) -> list[ForecastScore]:
    """All quantities of one log, forecast from another."""
    found: list[ForecastScore] = []
    kept: dict[Any, ReplayedDays] = {}
    for quantity in quantities_of(log, other):
        forecaster = forecaster_of(log, quantity, kept)
        found.append(scored(forecaster, forecast_rows(forecaster, log, other)))
    return found


def halves(log: ScalingLog) -> tuple[ScalingLog, ScalingLog]:
    """The first and the later half of a log, by its intervals with grants."""
    there = np.flatnonzero(np.isfinite(log.columns["num_replicas"]).any(axis=1))
    cut = int(there[len(there) // 2])
    return cut_out(log, slice(0, cut)), cut_out(log, slice(cut, None))


def cut_out(log: ScalingLog, rows: slice) -> ScalingLog:
    """Some intervals of a log."""
    return replace(
        log,
        time_s=log.time_s[rows],
        columns={name: values[rows] for name, values in log.columns.items()},
        gateway={name: values[rows] for name, values in log.gateway.items()},
    )


def _masked(log: ScalingLog, learned: np.ndarray) -> ScalingLog:
    """A log that holds nothing in the intervals that are not to be learned from."""
    return replace(
        log,
        columns={name: np.where(learned[:, None], values, np.nan) for name, values in log.columns.items()},
        gateway={name: np.where(learned, values, np.nan) for name, values in log.gateway.items()},
    )
