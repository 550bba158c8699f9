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
from evaluation.certify.model_class import MIN_ROWS, centred, correlation, of_last
from twin.placement.types import COMPLETED, REJECTED

SECTION = "what acceptance depends on"
NAME = "acceptance residuals against how the agent was served lately"
LAST_REQUESTS = 5
"""Of an agent, whose outcome is known when it asks again."""
MIN_REQUESTS = 20
"""Of an agent on a day: what is left is taken less its mean over these, and fewer would tell that mean badly."""


def reaction_line(forecast: Forecast, config: CertifyConfig) -> Line:
    """The line; it is deciding."""
    if reason := few_refusals(forecast):
        return not_applicable(SECTION, NAME, reason)
    agent = np.where(forecast.agent >= 0, forecast.agent * (forecast.day.max() + 1) + forecast.day, -1)
    group, size = np.unique(agent, return_inverse=True, return_counts=True)[1:]
    often = (agent >= 0) & (size[group] >= MIN_REQUESTS)
    ill, known_s = _served_ill(forecast)
    lately = of_last(ill, known_s, forecast.arrival_s, group, LAST_REQUESTS)
    residual = forecast.accepted - forecast.draws_accepted.mean(axis=1)
    known = often & np.isfinite(lately)
    one, two = (centred(np.where(known, column, np.nan), group) for column in (residual, -lately))
    if known.sum() < MIN_ROWS or np.ptp(two[known]) == 0.0:
        return not_applicable(
            SECTION, NAME,
            f"{int(known.sum())} requests come from agents who asked {MIN_REQUESTS} times a day and could be served "
            f"well or ill, fewer than {MIN_ROWS}",
        )  # fmt: skip
    statistic = correlation(one, two, forecast.unit, forecast.num_units)
    return about_zero(
        SECTION, NAME, "correlation", statistic, forecast.num_units, config.thresholds.reaction, config.intervals(),
        deciding=True,
    )  # fmt: skip


def _served_ill(forecast: Forecast) -> tuple[np.ndarray, np.ndarray]:
    """[rows] 1 for requests that were refused, failed or late and 0 for others, NaN where unknown; and when that was
    known, seconds since 1970."""
    due_s, end_s = forecast.arrival_s + forecast.deadline_s, forecast.finish_s
    refused = forecast.status == REJECTED
    with np.errstate(invalid="ignore"):
        late = end_s > due_s
    ill = (refused | late | (forecast.status != COMPLETED)).astype(float)
    known_s = np.where(refused, forecast.arrival_s, np.where(late, due_s, end_s))
    return np.where(forecast.known & np.isfinite(known_s), ill, np.nan), known_s
