"""Biases of one-step forecasts against the logged outcomes: on average, by node, and in acceptance.

The bias by node is measured by the product of a node's mean residuals in two halves of the units, which are drawn
separately: its expectation is zero without bias, whereas noise makes a mean of squares positive.
"""

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import LEAST_S, Forecast
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.certify.measures import mean_of_known
from evaluation.certify.resampled import mean_of
from evaluation.comparison.bootstrap import Statistic
from twin.placement.types import COMPLETED

SECTION = "biases of one-step forecasts"
MIN_ROWS = 100
MIN_WAITED = 50


def bias_lines(forecast: Forecast, config: CertifyConfig) -> list[Line]:
    """Lines of acceptance, waits, run times and what comes of them together; all of them are deciding."""
    return [
        *_acceptance_lines(forecast, config),
        _waits_line(forecast, config),
        _runs_line(forecast, config),
        _on_time_line(forecast, config),
    ]


def few_refusals(forecast: Forecast) -> str:
    """Why nothing can be said of acceptance; empty where enough offers were refused and enough accepted."""
    num_refused = int((~forecast.accepted).sum())
    if forecast.draws_accepted.size and min(num_refused, int(forecast.accepted.sum())) >= MIN_ROWS // 2:
        return ""
    return f"{num_refused} of {len(forecast.accepted)} offers were refused"


def bias_over_groups(residual: np.ndarray, group: np.ndarray, unit: np.ndarray, num_units: int) -> Statistic:
    """Mean over groups, weighted by their rows, of the squared mean residual, without the bias due to noise.

    Args:
        residual: [rows]; NaN rows do not count.
        group, unit: [rows] of every row.
        num_units: Number of units; even and odd ones are the halves.
    """
    known = np.isfinite(residual)
    labels, place = np.unique(group[known], return_inverse=True)
    cell = unit[known] * len(labels) + place
    shape = (num_units, len(labels))
    total = np.bincount(cell, residual[known], minlength=num_units * len(labels)).reshape(shape)
    count = np.bincount(cell, minlength=num_units * len(labels)).reshape(shape)

    def statistic(weights: np.ndarray) -> np.ndarray:
        sums = [
            (weights[:, half::2] @ total[half::2], weights[:, half::2] @ count[half::2]) for half in (0, 1)
        ]
        with np.errstate(invalid="ignore", divide="ignore"):
            product = np.prod([above / below for above, below in sums], axis=0)
            rows = np.where(np.isfinite(product), sums[0][1] + sums[1][1], 0.0)
            return np.asarray((np.nan_to_num(product) * rows).sum(axis=1) / rows.sum(axis=1))

    return statistic


def _acceptance_lines(forecast: Forecast, config: CertifyConfig) -> list[Line]:
    names = ("bias of acceptance", "bias of acceptance over nodes, squared")
    if reason := few_refusals(forecast):
        return [not_applicable(SECTION, name, reason) for name in names]
    residual = forecast.accepted - forecast.draws_accepted.mean(axis=1)
    limits, intervals = config.thresholds, config.intervals()
    return [
        about_zero(SECTION, names[0], "share", mean_of(residual, forecast.unit, forecast.num_units), forecast.num_units,
                   limits.acceptance_bias, intervals, deciding=True),
        about_zero(SECTION, names[1], "share squared",
                   bias_over_groups(residual, forecast.node, forecast.unit, forecast.num_units), forecast.num_units,
                   limits.acceptance_bias_by_node**2, intervals, one_sided=True, deciding=True),
    ]  # fmt: skip


def _waits_line(forecast: Forecast, config: CertifyConfig) -> Line:
    name = "log of mean wait over mean forecast"
    mean_draw_s = mean_of_known(forecast.draws_wait_s)
    known = np.isfinite(forecast.wait_s) & np.isfinite(mean_draw_s)
    num_waited = int(np.sum(known & (forecast.wait_s > LEAST_S)))
    if num_waited < MIN_WAITED:
        return not_applicable(SECTION, name, f"{num_waited} requests are known to have waited")
    unit = forecast.unit[known]
    seen, drawn = (
        np.bincount(unit, column[known], forecast.num_units) for column in (forecast.wait_s, mean_draw_s)
    )

    def statistic(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.log(weights @ seen) - np.log(weights @ drawn))

    return about_zero(
        SECTION,
        name,
        "1",
        statistic,
        forecast.num_units,
        config.thresholds.wait_bias,
        config.intervals(),
        deciding=True,
        reason=f"{forecast.wait_s[known].mean():.3g} s logged, {mean_draw_s[known].mean():.3g} s forecast",
    )


def _runs_line(forecast: Forecast, config: CertifyConfig) -> Line:
    name = "bias of log run time over nodes, squared"
    residual = np.log(LEAST_S + forecast.run_s) - mean_of_known(np.log(LEAST_S + forecast.draws_run_s))
    num_known = int(np.isfinite(residual).sum())
    if num_known < MIN_ROWS:
        return not_applicable(SECTION, name, f"{num_known} run times are known, fewer than {MIN_ROWS}")
    bias = bias_over_groups(residual, forecast.node, forecast.unit, forecast.num_units)
    return about_zero(
        SECTION, name, "1", bias, forecast.num_units, config.thresholds.run_bias_by_node**2, config.intervals(),
        one_sided=True, deciding=True,
    )  # fmt: skip


def _on_time_line(forecast: Forecast, config: CertifyConfig) -> Line:
    """What a policy earns, of the logged decisions: waits, runs and failures may each be right, and not together, as
    where those fail that run for long."""
    name = "share on time, log less forecast"
    rows = forecast.known & np.isfinite(forecast.deadline_s)
    if forecast.moves:
        return not_applicable(SECTION, name, "later requests move when those before them end")
    if rows.sum() < MIN_ROWS:
        return not_applicable(
            SECTION, name, f"{int(rows.sum())} requests with a deadline have a known outcome"
        )
    deadline_s = forecast.deadline_s[rows]
    with np.errstate(invalid="ignore"):
        on_time = forecast.wait_s[rows] + forecast.run_s[rows] <= deadline_s
        response_s = forecast.draws_wait_s[rows] + forecast.draws_run_s[rows]
        in_time = response_s <= deadline_s[:, None]
    on_time &= forecast.status[rows] == COMPLETED
    completes = forecast.draws_accepted[rows] & (forecast.draws_status[rows] == COMPLETED)
    drawn = mean_of_known(np.where(completes & np.isnan(response_s), np.nan, completes & in_time))
    return about_zero(
        SECTION,
        name,
        "share",
        mean_of(on_time - drawn, forecast.unit[rows], forecast.num_units),
        forecast.num_units,
        config.thresholds.on_time_bias,
        config.intervals(),
        deciding=True,
        reason=f"{on_time.mean():.3f} logged, {np.nanmean(drawn):.3f} forecast",
    )
