"""Lines of a certificate about forecasts of one log from another: two arms, or days before and after."""

import datetime as dt
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from evaluation.certify.certificate import Certificate, certificate_of
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_limit
from evaluation.comparison.bootstrap import ratio_over_units
from evaluation.problems.autoscaling.certifying import ReplayedDays
from evaluation.problems.autoscaling.forecasts import (
    ForecastRows,
    forecast_rows,
    forecaster_of,
    quantities_of,
    refuse_other_interval,
)
from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.autoscaling.gateway_forecasts.forecaster import GatewayForecaster
from twin.autoscaling.gateway_forecasts.predictors import SIMPLE
from twin.autoscaling.scaling_log import ScalingLog, read_scaling_log

PARTS = 12
"""Pieces of the held-out time that are drawn again for intervals."""
MOST_MISSED = 0.1
ABOUT = {
    "forecasts": "What users saw in another log under its load and grants, forecast from the training log: the error, "
    "as mean absolute logarithm of forecast over logged, less that of the better of a table of nearest neighbours and "
    "a log-linear model; and how often 95 % intervals missed. Declined intervals are left out.",
}
WORDS = {
    "response_s": "mean response",
    "response_p95_s": "95 % quantile of the response",
    "response_p99_s": "99 % quantile of the response",
    "cores_used": "cores used",
}


def certify_forecasts(
    log: ScalingLog,
    archive: Archive,
    train_days: Sequence[dt.date],
    days: Sequence[dt.date],
    config: CertifyConfig,
    twin_hash: str,
) -> Certificate:
    """Holds the forecasts of a log against another one, or against later days.

    Raises:
        ConfigError: There are no held-out days, or the logs share no quantity.
    """
    if not days:
        raise ConfigError(
            "there is no day after the training days to hold the twin against",
            where=str(archive.path),
            allowed="one day or more with deployment_samples",
            advice="give a longer log, or that of another autoscaler",
        )
    other = read_scaling_log(archive, days, log.deployments, whole=False)
    lines, notes = forecast_lines(log, other, config)
    return certificate_of(
        lines, ABOUT, {}, config, twin=twin_hash, archive=archive.content_hash, train_days=train_days, days=days,
        num_requests=int(np.nansum(other.gateway["request_rate_per_s"]) * other.interval_s), notes=notes,
    )  # fmt: skip


def forecast_lines(log: ScalingLog, other: ScalingLog, config: CertifyConfig) -> tuple[list[Line], list[str]]:
    """Two lines for every quantity, and what was declined, in words.

    Raises:
        ConfigError: The logs share no quantity, or have intervals of different lengths.
    """
    refuse_other_interval(log, other)
    lines, notes = (
        [],
        [f"Intervals are over {PARTS} pieces of the held-out time: they do not tell how days differ."],
    )
    kept: dict[Any, ReplayedDays] = {}
    for quantity in quantities_of(log, other):
        forecaster = forecaster_of(log, quantity, kept)
        found = forecast_rows(forecaster, log, other)
        lines += _lines(forecaster, found, config)
        notes.append(_note(forecaster, found))
    if not lines:
        raise ConfigError(
            "the two logs share nothing to forecast",
            where="deployment_samples",
            allowed=", ".join(WORDS),
            advice="import response times of the gateway",
        )
    return lines, notes


def _lines(forecaster: GatewayForecaster, found: ForecastRows, config: CertifyConfig) -> list[Line]:
    answered, logs = ~found.forecast.declined, np.log(found.logged)
    part = np.arange(len(logs)) * PARTS // len(logs)

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(part, np.where(answered, values, 0.0), PARTS)

    with np.errstate(invalid="ignore"):
        away = sums(np.abs(np.log(found.forecast.middle) - logs))
        missed = sums((found.logged < found.forecast.low) | (found.logged > found.forecast.high))
    simple = np.stack([sums(np.abs(np.log(found.simple[name]) - logs)) for name in SIMPLE])
    mean = partial(ratio_over_units, below=sums(np.ones(len(logs))))

    def over(weights: np.ndarray) -> np.ndarray:
        best = np.min(np.stack([mean(one)(weights) for one in simple]), axis=0)
        return mean(away)(weights) - best

    name, intervals = WORDS[forecaster.quantity], config.intervals()
    reason = "" if answered.any() else "all intervals are declined: the training log says too little of them"
    return [
        against_limit("forecasts", f"{name}: error over the simple models'", "logarithm", over, PARTS, 0.0,
                      intervals, deciding=True, reason=reason),
        against_limit("forecasts", f"{name}: intervals that miss", "share", mean(missed), PARTS, MOST_MISSED,
                      intervals, deciding=True, reason=reason),
    ]  # fmt: skip


def _note(forecaster: GatewayForecaster, found: ForecastRows) -> str:
    declined, far = found.forecast.declined.mean(), found.forecast.far.mean()
    return (
        f"{WORDS[forecaster.quantity]}: '{forecaster.chosen}' erred least on held-out blocks of the training log "
        f"({forecaster.errors[forecaster.chosen]:.3f}); {declined:.1%} of the intervals are declined, {far:.1%} for "
        "load and grants unlike the training log's."
    )
