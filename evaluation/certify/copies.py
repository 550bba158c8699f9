"""Test of the workload: whether requests are copies, of which the slower one is cancelled.

Where a client sends a request once more to another node when the answer is late, and cancels the slower copy, a twin
takes both for requests of their own: the second comes however soon the first one answers, and one of the two is lost
whatever a policy does. The better a policy, the further the truth is from that.

    share = mean of (cancelled as another of its agent completed - how often that is chance),    of all requests

with both as in `logs_schema.copies`.
"""

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.certify.resampled import mean_of
from evaluation.certify.retries import SECTION
from logs_schema.copies import beyond_chance
from twin.placement.repeats import FEWEST, pairs_of
from twin.placement.types import COMPLETED, DROPPED, FAILED

NAME = "requests that are cancelled as a copy of them completes, beyond chance"


def copies_line(forecast: Forecast, config: CertifyConfig) -> Line:
    """The line; it is deciding."""
    kind = np.where(forecast.agent >= 0, pairs_of(forecast.day, forecast.agent, forecast.service), -1)
    ended_s = forecast.ended_s if len(forecast.ended_s) else forecast.finish_s
    cancelled = (kind >= 0) & np.isin(forecast.status, (FAILED, DROPPED)) & np.isfinite(ended_s)
    if cancelled.sum() < FEWEST:
        why = f"{int(cancelled.sum())} requests of known agents failed or were given up, fewer than {FEWEST}"
        return not_applicable(SECTION, NAME, why)
    found = beyond_chance(kind, ended_s, cancelled, forecast.status == COMPLETED)
    measured = mean_of(found, forecast.unit, forecast.num_units)
    return about_zero(
        SECTION, NAME, "share", measured, forecast.num_units, config.thresholds.repeats, config.intervals(),
        one_sided=True, deciding=True,
        reason=f"of {int(cancelled.sum())} that failed or were given up {found.sum():.0f} as a copy of them completed",
    )  # fmt: skip
