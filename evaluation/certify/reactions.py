"""Test of the model class of acceptance: whether agents answer by how they were served.

Where agents that were refused or served late accept less, and the forecasts do not follow that (`discontent`), what is
left of acceptance falls with the share of an agent's last requests that went so. Such agents accept more under a policy
that serves them well than the twin has it, and less under one that does not.
"""

import numpy as np

from evaluation.certify.biases import few_refusals
from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.certify.model_class import MIN_ROWS, correlation, of_last
from twin.placement.discontent import LEAST_LATER, forward_deviations, gone_ill

SECTION = "what acceptance depends on"
NAME = "acceptance residuals against how the agent was served lately"
LAST_REQUESTS = 5
"""Of an agent, whose outcome is known when it asks again."""


def reaction_line(forecast: Forecast, config: CertifyConfig) -> Line:
    """The line; it is deciding."""
    if reason := few_refusals(forecast):
        return not_applicable(SECTION, NAME, reason)
    group = np.where(forecast.agent >= 0, forecast.agent * (forecast.day.max() + 1) + forecast.day, -1)
    ill, known_s = _served_ill(forecast)
    lately = of_last(ill, known_s, forecast.arrival_s, group, LAST_REQUESTS)
    one = forward_deviations(forecast.accepted - forecast.draws_accepted.mean(axis=1), group)
    known = (group >= 0) & np.isfinite(lately) & np.isfinite(one)
    one, two = (np.where(known, column, np.nan) for column in (one, -lately))
    two -= np.mean(two[known]) if known.any() else 0.0
    if known.sum() < MIN_ROWS or np.ptp(two[known]) == 0.0:
        return not_applicable(
            SECTION,
            NAME,
            f"{int(known.sum())} requests of agents who ask {LEAST_LATER} times more that day and could be served well "
            f"or ill, fewer than {MIN_ROWS}",
        )
    statistic = correlation(one, two, forecast.unit, forecast.num_units)
    return about_zero(
        SECTION, NAME, "correlation", statistic, forecast.num_units, config.thresholds.reaction, config.intervals(),
        one_sided=True, deciding=True,
    )  # fmt: skip


def _served_ill(forecast: Forecast) -> tuple[np.ndarray, np.ndarray]:
    """[rows] 1 for requests that were refused, failed or late and 0 for others, NaN where unknown; and when that was
    known, seconds since 1970."""
    due_s = forecast.arrival_s + forecast.deadline_s
    with np.errstate(invalid="ignore"):
        ill, known_s = gone_ill(forecast.arrival_s, forecast.finish_s, forecast.status, due_s)
    return np.where(forecast.known & np.isfinite(known_s), ill, np.nan), known_s
